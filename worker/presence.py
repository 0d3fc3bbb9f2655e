"""Whether broker, coordinator and session are there, and when to say hello. Pure."""

from __future__ import annotations

from random import Random

from protocol.backoff import Patience

BEAT_LATE = 10.0
"""Seconds without a beat (there should be one every 2 s) after which the coordinator is silent."""
LOST_AFTER = 4.0
"""Seconds without a beat, after one that anybody may have forged said that it is gone, after
which the coordinator is gone."""
HELLO_AFTER = 3.0
"""Seconds without a welcome after which we say hello again; doubled each time."""
LONGEST_HELLO = 30.0
HELLO_APART = 1.0
"""Seconds between two hellos at least, whatever the reason."""
HELLO_APART_UNPROVED = 10.0
"""The same where only a beat, which anybody may forge, is the reason."""


class Presence:
    """Who is there.

    Attributes:
        connected: whether the broker is.
        welcomed: whether the coordinator answered our latest hello, and stayed.
        absent: how the coordinator is missed; empty while it is there as far as we know.
        phase: of the run, by the last beat.
    """

    def __init__(self, random: Random) -> None:
        self.connected = False
        self.welcomed = False
        self.absent = ""
        self.phase = ""
        self._heard = 0.0
        self._doubted: float | None = None
        self._hello_at: float | None = None
        self._patience = Patience(HELLO_AFTER, LONGEST_HELLO, random)
        self._last_hello: float | None = None
        self._beaten = False
        self._slow_until = 0.0

    @property
    def greeted(self) -> bool:
        """Whether we ever said hello, so that somebody may know us."""
        return self._last_hello is not None

    def connect(self, now: float) -> None:
        """The broker is there; the coordinator has time to show."""
        self.connected = True
        self._beaten = False
        self._doubted, self._heard = None, now
        self.greet(now)

    def disconnect(self) -> None:
        """The broker is gone, and the session with it."""
        self.connected = self.welcomed = False

    def show(self, now: float) -> bool:
        """The coordinator is there; whether it was missed."""
        missed = bool(self.absent) or self._doubted is not None
        self.absent, self._doubted, self._heard = "", None, now
        return missed

    def doubt(self, now: float) -> None:
        """Somebody says, without proof, that the coordinator is gone."""
        if self._doubted is None:
            self._doubted = now

    def gone(self, now: float) -> bool:
        """Whether that seems true: no beat came since."""
        return self._doubted is not None and now - self._doubted > LOST_AFTER

    def miss(self, what: str) -> bool:
        """The coordinator is not there; whether that is news."""
        if self.absent or not self.connected:
            return False
        self.absent = what
        self.welcomed = False
        return True

    def silence(self, now: float) -> float:
        """Seconds without a beat, where that is too long; else 0."""
        silent = now - self._heard
        return silent if self.connected and silent > BEAT_LATE else 0.0

    def greet(self, now: float) -> None:
        """Say hello as soon as that is possible: a session begins, or begins anew."""
        self._patience.begin_anew()
        self._say_by(now, HELLO_APART)

    def begin_anew(self, now: float) -> None:
        """Somebody proved to lead from now on: hello goes out at once, whatever was before."""
        self.show(now)
        self.welcomed = False
        self._slow_until = 0.0
        self._patience.begin_anew()
        self._hello_at = now

    def beat(self, now: float) -> bool:
        """The leader, or so it seems, gives a sign of life; whether it was missed.

        The first one of a connection may mean that the leader came to this broker after us, so that
        nobody heard our hello.
        """
        if not self._beaten and not self.welcomed:
            self.greet(now)
        self._beaten = True
        return self.show(now)

    def greet_unproved(self, now: float) -> None:
        """The same for a reason that somebody may have forged."""
        self._say_by(now, HELLO_APART_UNPROVED)

    def should_greet(self, now: float) -> bool:
        """Whether it is time to say hello."""
        if not self.connected or self.absent or self.slowed(now):
            return False
        return self._hello_at is not None and now >= self._hello_at

    def said_hello(self, now: float) -> None:
        """It is said, and is said again unless a welcome comes."""
        self._last_hello = now
        self._hello_at = now + self._patience.next()

    def slow_down(self, seconds: float, now: float) -> bool:
        """The coordinator has more to do than it can, and wants to hear nothing that can wait for
        so long; whether that is news."""
        news = not self.slowed(now)
        self._slow_until = max(self._slow_until, now + seconds)
        return news and seconds > 0.0

    def slowed(self, now: float) -> float:
        """Seconds for which that still holds; 0 where it does not."""
        return max(0.0, self._slow_until - now)

    def welcome(self, now: float) -> bool:
        """The coordinator knows us; whether that is news."""
        news, self.welcomed = not self.welcomed, True
        self._hello_at = None
        self.show(now)
        return news

    def _say_by(self, now: float, apart: float) -> None:
        earliest = now if self._last_hello is None else max(now, self._last_hello + apart)
        self._hello_at = earliest if self._hello_at is None else min(self._hello_at, earliest)
