"""What a key does: keys and what is on the screen in, orders out; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

Order = Literal["pause", "resume", "more", "fewer", "stop", "leave", ""]
"""`stop` ends the run; `leave` only ceases to lead it, and workers wait; empty: nothing."""

_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""What arrows and the like send."""


@dataclass(frozen=True, slots=True)
class Mode:
    """What the screen shows beside the run."""

    asks: bool = False
    """how to quit"""
    helps: bool = False


def keys_in(data: bytes) -> list[str]:
    """The keys that a terminal sent, those left out that have no character."""
    text = data.decode("utf-8", errors="replace")
    escapes = text == "\x1b"
    return ["esc"] if escapes else [key for key in _SEQUENCE.sub("", text) if key.isprintable()]


def press(mode: Mode, key: str, *, leads: bool, paused: bool) -> tuple[Mode, Order]:
    """What is shown after a key, and what is to be done.

    Who only follows the run has nothing of it to pause or to stop: `q` ends this process.
    """
    if mode.asks:
        if key in ("q", "s"):
            return Mode(), "stop"
        return Mode(), "leave" if key == "p" else ""
    if key == "q":
        return (Mode(asks=True), "") if leads else (mode, "stop")
    if key == "?":
        return replace(mode, helps=not mode.helps), ""
    if key == "p" and leads:
        return mode, "resume" if paused else "pause"
    if key in ("+", "=") and leads:
        return mode, "more"
    if key in ("-", "_") and leads:
        return mode, "fewer"
    return replace(mode, helps=False), ""
