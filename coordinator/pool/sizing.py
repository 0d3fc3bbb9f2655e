"""How large a task is and how long its lease: pure functions of what was measured.

Guided self-scheduling (Polychronopoulos and Kuck 1987): a worker gets its share, by speed, of half
of what is left, so that tasks shrink towards the end of a batch and all workers end together.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median as median_of

UNKNOWN_SPEED = 1000.0
"""Environment steps per second assumed of a worker that neither said nor showed its speed."""
UNKNOWN_LEASE = 60.0
"""Seconds of a lease while the session's speed or the length of episodes is not measured."""
SMALLEST_PART = 6
"""No task is cut smaller than this part of its worker's share of the whole: as many more messages
would buy less than that much better a balance."""
NOT_WORTH_SHARING = 4
"""What is left goes to one worker whole where it takes this part of the shortest task's time."""
OVERDUE = 1.5
"""A lease is overdue after this many times what was expected of it: episodes differ in length."""
PATIENCE = 3.0
"""It is also overdue after so many times the pool's median task, however slow its worker is."""


def task_size(
    *,
    whole: int,
    unleased: int,
    unfinished: int,
    held: int,
    share: float,
    units_per_second: float,
    task_seconds: float,
    minimum_seconds: float,
    idle: bool,
) -> int:
    """Units (directions, or centre episodes) of the next task of a worker; 0: it has its share.

    Of `whole` units, `unleased` have no lease, `unfinished` have no result (the leased ones
    included), `held` are leased to this worker; `share` is its part of the pool's speed. Where a
    whole share would make less than two tasks of the minimum length it is given as one: messages
    cost more than a better balance is worth.
    """
    if unleased <= 0:
        return 0
    if unleased <= units_per_second * minimum_seconds / NOT_WORTH_SHARING:
        return unleased
    fair = math.ceil(share * unfinished) - held
    if fair <= 0 and not idle:
        return 0
    minimum = max(
        1, math.floor(units_per_second * minimum_seconds), math.floor(share * whole / SMALLEST_PART)
    )
    most = max(1, math.floor(units_per_second * task_seconds))
    guided = max(1, math.ceil(share * unleased / 2))
    size = max(minimum, guided) if fair >= 2 * minimum else max(fair, 0) or guided
    return max(1, min(size, most, unleased))


def lease_seconds(
    expected: float | None, floor: float, median: float | None, attempts: int
) -> float:
    """Seconds until a lease runs out: 3 x what is expected; None: nothing is known yet.

    At least `floor`, at most 20 x the pool's `median` task (nobody may claim to be arbitrarily
    slow), doubled for each earlier lease of the same range that ran out: a deadline that is wrong
    for every worker must not starve the range.
    """
    if expected is None:
        seconds = UNKNOWN_LEASE
    elif median is None:
        seconds = 3.0 * expected
    else:
        seconds = min(3.0 * expected, 20.0 * median)
    return float(max(floor, seconds) * 2 ** min(attempts, 10))


class Pace:
    """Environment steps per second of one session, over its last three results.

    A sum of steps over a sum of seconds: results that a network held back and delivered at once
    don't make it fast.
    """

    def __init__(self, declared: float) -> None:
        self.speed = declared or UNKNOWN_SPEED
        self.measured = False
        """whether the speed was seen and not only declared"""
        self._first = False
        self._results: deque[tuple[float, float]] = deque(maxlen=3)

    def observe(self, steps: float, seconds: float) -> None:
        """A result of so many steps arrived so long after the last, or after its lease."""
        if self._first:
            # The first task also paid for the start of the worker's processes.
            self._results.clear()
        self._first = not self.measured
        self.measured = True
        self._results.append((steps, seconds))
        done = spent = 0.0
        for steps, seconds in self._results:
            done += steps
            spent += seconds
        if spent > 0.0:
            self.speed = max(done, 1.0) / spent

    def ran_out(self, steps: float, seconds: float) -> None:
        """So many steps were not done in so many seconds: at most that fast, and at most half."""
        self.speed = max(min(0.5 * self.speed, steps / seconds), 1e-6)
        self._results.clear()
        self._results.append((self.speed * seconds, seconds))
        self.measured, self._first = True, False


class Durations:
    """The median of the last hundred tasks' durations, in seconds."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=101)
        self._unseen = 0
        self.median: float | None = None

    def add(self, seconds: float) -> None:
        """A task took so long; every tenth changes the median."""
        self._recent.append(seconds)
        self._unseen += 1
        if self.median is None or self._unseen >= 10 or len(self._recent) < 10:
            self._unseen = 0
            self.median = median_of(self._recent)
