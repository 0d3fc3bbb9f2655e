"""When to ask a run's leader or a peer for what is missing, and how often. Pure."""

from __future__ import annotations

from random import Random

from protocol.backoff import Patience, jittered

FIRST_PATIENCE = 2.0
"""Seconds that an answer may take before we ask again; doubled each time."""
LONGEST_PATIENCE = 15.0


class Asking:
    """Asks for one thing: after some grace, since it may come by itself, then again and again.

    Attributes:
        asked: whether we did, since something began to be missing.
    """

    def __init__(self, grace: float, random: Random) -> None:
        """`grace`: seconds that what is missing may take to come unasked."""
        self.asked = False
        self._grace = grace
        self._random = random
        self._patience = Patience(FIRST_PATIENCE, LONGEST_PATIENCE, random)
        self._begun = False
        self._urgent = False
        self._ask_at = 0.0

    def begin_anew(self) -> None:
        """What is missing from now on is something else."""
        self._begun = False

    def hurry(self) -> None:
        """Likewise, and it will not come by itself."""
        self._begun, self._urgent = False, True

    def rest(self) -> None:
        """Nothing is missing."""
        self._begun = self._urgent = self.asked = False

    def moved(self, pause: float, now: float) -> None:
        """Some of it came, and the rest may be on its way for `pause` seconds."""
        if self._begun:
            self._patience.begin_anew()
            self._ask_at = now + jittered(pause, self._random)

    def due(self, now: float) -> bool:
        """Something is missing: whether to ask for it now."""
        if not self._begun:
            self._begun = True
            self._patience.begin_anew()
            self._ask_at = now if self._urgent else now + jittered(self._grace, self._random)
            self._urgent = False
        if now < self._ask_at:
            return False
        self._ask_at = now + self._patience.next()
        self.asked = True
        return True
