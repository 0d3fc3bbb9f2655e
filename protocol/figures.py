"""How numbers are shown to people."""

from __future__ import annotations


def shown(value: float) -> str:
    """A return or what is computed of some: with one decimal, or three digits where it is small."""
    return f"{value:.1f}" if abs(value) >= 1.0 or value == 0.0 else f"{value:.3g}"
