from __future__ import annotations

import numpy as np

from coordinator.pool.events import SendTask, SessionId
from coordinator.pool.past import used
from protocol.messages import Cohort, Update
from protocol.packing import pack_integers
from tests.coordinator.simulation import result

WHO = SessionId("a", "s")


def update(cohorts: list[tuple[int, int, list[int]]], dropped: tuple[int, ...] = ()) -> Update:
    return Update(
        epoch=1,
        version=4,
        cohorts=tuple(
            Cohort(first, version, 1, pack_integers(np.array(weights)))
            for first, version, weights in cohorts
        ),
        scale=1.0,
        learning_rate=1.0,
        sigma=1.0,
        observed=(),
        episodes=1,
        steps=1,
        digest_before=bytes(16),
        digest_after=bytes(16),
        dropped=dropped,
    )


def test_what_cohorts_span_and_updates_drop_is_used() -> None:
    updates = [update([(40, 4, [5, -300, 0, 2]), (30, 3, [1, 1])], dropped=(44, 50)), update([])]
    assert used(updates, []) == ((30, 2), (40, 5), (50, 1))


def test_what_was_kept_because_no_update_used_it_is_not() -> None:
    kept = [
        result(SendTask(WHO, 7, "members", 4, 41, 2)),
        result(SendTask(WHO, 8, "centre", 4, 0, 100)),
    ]
    assert used([update([(40, 4, [1, 0, 0, 1])])], kept) == ((40, 1), (43, 1))


def test_cohorts_of_one_batch_may_overlap() -> None:
    updates = [update([(40, 4, [1, 0, 1]), (41, 3, [1, 0, 1])])]
    assert used(updates, []) == ((40, 4),)
