"""A volunteer's throttle: a process that works for a share of the time, in short turns. Pure."""

from __future__ import annotations

PERIOD = 0.1
"""Seconds of one turn of work and rest: short enough that whoever sits there does not notice."""


class Throttle:
    """Says when to rest, so that processor time stays below a share of the time that passes.

    What was not used can be made up for within one turn, and no further: who had nothing to do
    for a minute does not take a minute in full.

    Args:
        share: of a core, above 0.
        cpu, now: processor time used so far, and the time, in seconds.
    """

    def __init__(self, share: float, cpu: float, now: float) -> None:
        self.share = share
        self._cpu = cpu
        self._paid = now
        """the time by which all that was used is within the share"""

    def rest(self, cpu: float, now: float) -> float:
        """Seconds to rest now; 0 until a turn's work is done."""
        used, self._cpu = cpu - self._cpu, cpu
        self._paid = max(self._paid, now - PERIOD) + used / self.share
        ahead = self._paid - now
        return ahead if ahead >= (1.0 - self.share) * PERIOD else 0.0
