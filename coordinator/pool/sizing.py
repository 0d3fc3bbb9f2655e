"""How large a task is and how long its lease: pure functions of what was measured.

Guided self-scheduling (Polychronopoulos and Kuck 1987): a worker gets its share, by speed, of half
of what is left, so that tasks shrink towards the end of a batch and all workers end together.
"""

from __future__ import annotations

import math

UNKNOWN_SPEED = 1000.0
"""Environment steps per second assumed of a worker that neither said nor showed its speed."""
UNKNOWN_LEASE = 60.0
"""Seconds of a lease while nothing of the environment's episode lengths is known."""


def task_size(
    *,
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

    `unleased` units have no lease, `unfinished` have no result (the leased ones included), `held`
    of them are leased to this worker, `share` is its part of the pool's speed. Where a whole share
    would make less than two tasks of the minimum length it is given as one: messages cost more than
    a better balance is worth.
    """
    if unleased <= 0:
        return 0
    fair = math.ceil(share * unfinished) - held
    if fair <= 0 and not idle:
        return 0
    minimum = max(1, math.floor(units_per_second * minimum_seconds))
    most = max(1, math.floor(units_per_second * task_seconds))
    guided = max(1, math.ceil(share * unleased / 2))
    size = max(minimum, guided) if fair >= 2 * minimum else max(fair, 0) or guided
    return max(1, min(size, most, unleased))


def lease_seconds(
    predicted: float, queued: float, floor: float, median: float | None, attempts: int
) -> float:
    """Seconds until a lease runs out: 3 x what is predicted, after what the worker holds already.

    At least `floor`, at most 20 x the pool's `median` task (nobody may claim to be arbitrarily
    slow), doubled for each earlier lease of the same range that ran out: a deadline that is
    wrong for every worker must not starve the range.
    """
    seconds = 3.0 * (predicted + queued)
    if median is not None:
        seconds = min(seconds, 20.0 * median)
    return float(max(floor, seconds) * 2 ** min(attempts, 10))


def follow(estimate: float, measured: float, observations: int) -> float:
    """A moving estimate that forgets half with each observation, and all of a mere declaration."""
    return measured if observations == 0 else 0.5 * (estimate + measured)
