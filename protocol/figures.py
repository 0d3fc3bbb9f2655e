"""How numbers, spans of time and strangers' words are shown to people."""

from __future__ import annotations

SECONDS_MATTER = 600.0
"""Seconds: of a longer span, nobody wants to know the seconds."""


def shown(value: float) -> str:
    """A return or what is computed of some: with one decimal, or three digits where it is small."""
    return f"{value:.1f}" if abs(value) >= 1.0 or value == 0.0 else f"{value:.3g}"


def span(seconds: float) -> str:
    """Seconds in the two units that suit, at most: `45 s`, `2 min 5 s`, `12 min`, `2 h 5 min`,
    `3 d 4 h`."""
    left = max(0, round(seconds))
    days, left = divmod(left, 86_400)
    hours, left = divmod(left, 3600)
    minutes, left = divmod(left, 60)
    if days:
        parts = [(days, "d"), (hours, "h")]
    elif hours:
        parts = [(hours, "h"), (minutes, "min")]
    elif seconds < SECONDS_MATTER:
        parts = [(minutes, "min"), (left, "s")]
    else:
        parts = [(minutes, "min")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"


def printable(text: str) -> str:
    """One line that can't steer a terminal: what strangers wrote, `?` for what prints nothing."""
    return "".join(character if character.isprintable() else "?" for character in text)
