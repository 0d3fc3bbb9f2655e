"""Whether the coordinator keeps up with what it has to do, and whom to ask to slow down. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from coordinator.pool.events import SessionId
from protocol.backoff import jittered

LATE, ANSWER, UNSENT, UNKEPT, HELLOS = 0.5, 0.5, 512 * 1024, 5_000, 1_000
"""From where on the figures of a `Load` are too high."""
UNSENT_HOLDS = 2 << 20
"""Bytes behind which a task would wait for so long that it had better stay with us."""
FIRM_AFTER = 1.0
"""Seconds for which a mark must be passed before that counts: a moment is no strain."""
CALM_AFTER = 3.0
"""Seconds for which a figure must be under half of its mark before all is well again."""
SLOW_DOWN_SECONDS = 20.0
"""For which a session is asked to slow down, give or take a quarter; then again, if need be."""
ASKED_AT_ONCE = 250
"""Sessions that one call asks at most: these requests must be no strain of their own."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much there is to do at one moment.

    Attributes:
        late: seconds that the event loop is behind its timers.
        answer: seconds after which the broker answers.
        unsent: bytes that wait for the broker to take them.
        unkept: accepted results that wait for the disk.
        hellos: sessions that wait for a welcome.
    """

    late: float = 0.0
    answer: float = 0.0
    unsent: int = 0
    unkept: int = 0
    hellos: int = 0


class _Gauge:
    """One figure against its mark, with patience both ways."""

    def __init__(self, mark: float) -> None:
        self.mark = mark
        self.high = False
        self._since: float | None = None

    def look(self, value: float, now: float) -> None:
        """Learn what the figure is now."""
        other = value <= self.mark / 2 if self.high else value >= self.mark
        if not other:
            self._since = None
        elif self._since is None:
            self._since = now
        if self._since is not None:
            patience = CALM_AFTER if self.high else FIRM_AFTER
            if now - self._since >= patience:
                self.high, self._since = not self.high, None


class Strain:
    """How hard it is to keep up.

    Attributes:
        busy: why we strain, in words; empty while we don't.
        holds: why nothing new should be leased, in words; empty where it may.
        asks: whether workers should be asked to slow down: not over a line that is full already,
            nor where it is only far to the broker.
    """

    def __init__(self) -> None:
        self.busy = ""
        self.holds = ""
        self.asks = False
        self._figures: tuple[tuple[_Gauge, Callable[[Load], float], Callable[[Load], str]], ...] = (
            (_Gauge(LATE), lambda load: load.late, _late),
            (_Gauge(UNSENT), lambda load: load.unsent, _unsent),
            (_Gauge(UNKEPT), lambda load: load.unkept, _unkept),
            (_Gauge(HELLOS), lambda load: load.hellos, _hellos),
        )
        self._far = _Gauge(ANSWER)
        self._full = _Gauge(UNSENT_HOLDS)

    def look(self, load: Load, now: float) -> None:
        """Learn how much there is to do now."""
        reasons = []
        for gauge, value, words in self._figures:
            gauge.look(value(load), now)
            if gauge.high:
                reasons.append(words(load))
        self.asks = bool(reasons) and load.unsent < UNSENT
        self._far.look(load.answer, now)
        if self._far.high:
            reasons.append(_answer(load))
        self._full.look(load.unsent, now)
        self.busy = ", ".join(reasons)
        self.holds = _unsent(load) if self._full.high else ""


class SlowDown:
    """Asks session after session to slow down for a while, none twice within that time."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._until: dict[SessionId, float] = {}
        self._round: list[SessionId] = []

    def due(self, here: Iterable[SessionId], now: float) -> list[tuple[SessionId, float]]:
        """Whom to ask now, and for how many seconds."""
        if not self._round:
            # Who was asked while we strained before is not asked again before that time is up.
            self._until = {id: until for id, until in self._until.items() if until > now}
            self._round = [id for id in here if id not in self._until]
            self._random.shuffle(self._round)
        asked = []
        for _ in range(min(ASKED_AT_ONCE, len(self._round))):
            id = self._round.pop()
            seconds = jittered(SLOW_DOWN_SECONDS, self._random)
            self._until[id] = now + seconds
            asked.append((id, seconds))
        return asked


def _late(load: Load) -> str:
    return f"the coordinator is {load.late:.1f} s behind"


def _answer(load: Load) -> str:
    return f"the broker answers after {load.answer:.1f} s"


def _unsent(load: Load) -> str:
    return f"the broker has yet to take {load.unsent / 1e6:.1f} MB"


def _unkept(load: Load) -> str:
    return f"{load.unkept:,} results wait for the disk"


def _hellos(load: Load) -> str:
    return f"{load.hellos:,} workers wait for a welcome"
