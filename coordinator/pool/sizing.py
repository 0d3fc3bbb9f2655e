"""How large a task is, how long its lease, and who is too slow for it: pure functions of what was
measured.

Guided self-scheduling (Polychronopoulos and Kuck 1987): a worker gets its share, by speed, of half
of what is left, so that tasks shrink towards the end of a batch and all workers end together.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import msgspec

UNKNOWN_SPEED = 1000.0
"""Environment steps per second assumed of a worker that neither said nor showed its speed."""
UNKNOWN_LEASE = 60.0
"""Seconds of a lease while the session's speed or the length of episodes is not measured."""
MESSAGE_SECONDS = 0.004
"""What a task costs beside its work: so many seconds of a core, on all sides together."""
RESTART_SECONDS = 20.0
"""A lease of what failed before is no shorter: who has it may have to start a process twice, of one
to four seconds each, for every direction that ends it."""
NOT_WORTH_SHARING = 4
"""What is left goes to one worker whole where it takes this part of the shortest task's time."""
SLOWER = 2.0
"""A batch waits for a worker that takes so many times as long for a unit as the average one: in
the end somebody has to be the last."""
MOST_MEDIANS = 20.0
"""No lease is longer than so many of the pool's median tasks: nobody may claim to be arbitrarily
slow."""
EMPTY = 0.5
"""Of what a step of full lanes takes, where they step together: what it takes with none in use."""
MOST_TIMES = 4.0
"""As much slower a unit may be than one of many, for lack of others to fill the lanes with."""
OVERDUE_MEDIANS = 3.0
"""A lease is overdue after so many times the pool's median task, however slow its worker is."""


class Factor(NamedTuple):
    """How many times the predicted duration is allowed: as the median task needs, and `deviations`
    median absolute deviations more, within bounds."""

    deviations: float
    least: float
    most: float
    unknown: float
    """while too few tasks were seen"""

    def of(self, median: float | None, deviation: float) -> float:
        """Of the durations seen, as parts of what was predicted."""
        if median is None:
            return self.unknown
        return min(max(median + self.deviations * deviation, self.least), self.most)


OVERDUE = Factor(3.0, 1.1, 3.0, 1.5)
"""When somebody else is given the same work, and a batch goes without it: about one honest task in
fifty is that much slower than predicted, as episodes differ in length."""
DEADLINE = Factor(10.0, 2.0, 10.0, 3.0)
"""When a lease runs out: no honest task is that much slower."""


def as_full(units: float, fill: int) -> float:
    """How many units, in lanes that `fill` of them fill, take as long as so few of them.

    What a worker says of its lanes is believed up to MOST_TIMES: then it looks no faster than that.
    """
    if units >= fill:
        return units
    return min(EMPTY * fill + (1.0 - EMPTY) * units, MOST_TIMES * units)


def least_seconds(batch_seconds: float) -> float:
    """The shortest task that is worth its messages, in a batch that takes so long.

    Tasks of s seconds leave each worker idle for s / 2 at the end of a batch and cost
    batch_seconds / s times MESSAGE_SECONDS: the least in all where s is the root of twice the
    product of both.
    """
    return math.sqrt(2.0 * MESSAGE_SECONDS * batch_seconds)


class Pacing(msgspec.Struct, frozen=True, gc=False):
    """How soon a session would be done with more work."""

    free_in: float
    """seconds until it has done what it holds"""
    unit: float
    """seconds of a unit, as one of many"""
    fill: int = 0
    """units that fill its lanes once where these step together; 0: they don't"""

    def seconds(self, units: int) -> float:
        """Until it would have done so many units."""
        full = as_full(units, self.fill) if self.fill else units
        return self.free_in + self.unit * full


def task_size(
    unleased: int,
    unfinished: int,
    held: int,
    share: float,
    units_per_second: float,
    task_seconds: float,
    minimum_seconds: float,
    idle: bool,
    fill: int = 0,
) -> int:
    """Units (directions, or centre episodes) of the next task of a worker; 0: it has its share.

    `unleased` units have no lease, `unfinished` have no result (the leased ones included), `held`
    are leased to this worker; `share` is its part of the pool's speed. Where a whole share would
    make less than two tasks of the minimum length it is given as one: messages cost more than a
    better balance is worth.

    Where `fill` units take about as long as a few of them, as they fill a worker's lanes, tasks are
    whole numbers of fills, for which it may get a third more than its share; what is too little for
    the next worker it gets as well, and what is too little for itself is left to others.
    """
    if unleased <= 0:
        return 0
    if unleased <= units_per_second * minimum_seconds / NOT_WORTH_SHARING:
        return unleased
    fair = math.ceil(share * unfinished) - held
    if fair <= 0 and not idle:
        return 0
    # For every lease: comparisons, which cost a third of what calls of min and max do.
    minimum = int(units_per_second * minimum_seconds) or 1
    if minimum < fill:
        minimum = fill
    size = fair
    if fair <= 0 or fair >= 2 * minimum:
        size = math.ceil(share * unleased / 2) or 1
        if size < minimum and fair > 0:
            size = minimum
    most = int(units_per_second * task_seconds) or 1
    if fill:
        if size < unleased and not idle and size < fill / 2:
            return 0
        return _in_fills(min(size, most), fill, most, unleased)
    if size > most:
        size = most
    return size if size < unleased else unleased


def _in_fills(size: int, fill: int, most: int, unleased: int) -> int:
    """A size close to this that leaves no lanes empty, and no rest that would."""
    whole = min(size + fill // NOT_WORTH_SHARING, most) // fill * fill
    size = whole or size
    if unleased - size <= min(size, fill) / NOT_WORTH_SHARING:
        size = unleased
    return min(size, most, unleased)


def lease_seconds(
    expected: float | None,
    factor: float,
    floor: float,
    median: float | None,
    attempts: int,
    failed: bool = False,
) -> float:
    """Seconds until a lease runs out: `factor` x what is expected; None: nothing is known yet.

    At least `floor`, at most MOST_MEDIANS x the pool's `median` task, doubled for each earlier
    lease of the same range that ran out: a deadline that is wrong for every worker must not starve
    the range. What `failed` before, in whatever way, has RESTART_SECONDS at least.
    """
    seconds = UNKNOWN_LEASE
    if expected is not None:
        seconds = factor * expected
        if median is not None and seconds > MOST_MEDIANS * median:
            seconds = MOST_MEDIANS * median
    if seconds < floor:
        seconds = floor
    if attempts:
        seconds = float(seconds * 2 ** min(attempts, 10))
    return RESTART_SECONDS if failed and seconds < RESTART_SECONDS else seconds


NOTHING = (0.0, 0.0)
"""Steps and seconds of no result."""


class Pace:
    """Environment steps per second of one session, over its last three results.

    A sum of steps over a sum of seconds: results that a network held back and delivered at once
    don't make it fast.
    """

    __slots__ = ("_believed", "_first", "_last", "_last_but_one", "measured", "speed")

    def __init__(self, declared: float) -> None:
        self.speed = declared or UNKNOWN_SPEED
        self.measured = False
        """whether the speed was seen and not only declared"""
        self._first = False
        self._believed = math.inf
        """the most that the next result alone may say"""
        self._last = self._last_but_one = NOTHING

    def observe(self, steps: float, seconds: float) -> None:
        """A result of so many steps arrived so long after the last, or after its lease."""
        if self._first:
            # The first task also paid for the start of the worker's processes.
            self._last = self._last_but_one = NOTHING
        self._first = not self.measured
        self.measured = True
        if steps > seconds * self._believed:
            seconds = steps / self._believed
        self._believed = math.inf
        one, two = self._last_but_one, self._last
        self._last_but_one, self._last = two, (steps, seconds)
        seconds = seconds + one[1] + two[1]
        if seconds > 0.0:
            steps = steps + one[0] + two[0]
            self.speed = (steps if steps > 1.0 else 1.0) / seconds

    def ran_out(self, steps: float, seconds: float) -> None:
        """So many steps were not done in so many seconds: at most that fast, and at most half.

        The seconds are none where its last result came in the very moment: they bound nothing.
        """
        # It may be the network that was slow, which then brings the next result at once: that does
        # not make the session faster than it was.
        if self.measured and self._believed == math.inf:
            self._believed = self.speed
        bound = steps / seconds if seconds > 0.0 else math.inf
        self.speed = max(min(0.5 * self.speed, bound), 1e-6)
        self.measured, self._first = True, True  # the next result says more than this bound


class Window:
    """Median and median absolute deviation of the last SIZE values."""

    SIZE = 101
    EVERY = 20
    """values between two looks at all of them"""

    def __init__(self, fewest: int = 1) -> None:
        """`fewest`: values before anything is said."""
        self._recent: deque[float] = deque(maxlen=self.SIZE)
        self._ordered: list[float] = []
        """as they were at the last look"""
        self._unseen = fewest
        """values until the next look"""
        self.median: float | None = None

    def add(self, value: float) -> bool:
        """One more; the first few and then every twentieth change what is said: whether it did."""
        self._recent.append(value)
        self._unseen -= 1
        if self._unseen:
            return False
        count = len(self._recent)
        self._unseen = 1 if count + 1 < self.EVERY else self.EVERY
        self._ordered = sorted(self._recent)
        self.median = self._ordered[count // 2]
        return True

    @property
    def deviation(self) -> float:
        """The median distance from the median, at the same look; 0 before one."""
        if self.median is None:
            return 0.0
        distances = sorted([abs(value - self.median) for value in self._ordered])
        return distances[len(distances) // 2]
