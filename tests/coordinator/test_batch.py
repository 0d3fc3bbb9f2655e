from __future__ import annotations

import numpy as np

from coordinator.pool.batch import Batch


def test_a_batch_holds_its_directions_and_no_others() -> None:
    batch = Batch(3, 24, 8)
    assert (batch.work.first, batch.work.end, batch.work.missing) == (24, 32, 8)
    assert (batch.begun, batch.settled) == (0, 0)


def test_accepted_and_dropped_directions_are_settled_leased_ones_only_begun() -> None:
    batch = Batch(0, 0, 8)
    batch.work.claim(3, "a", {"a"})
    assert (batch.begun, batch.settled) == (3, 0)
    batch.work.accept(0, np.array([True, True, True]))
    batch.drop(7)
    assert (batch.begun, batch.settled, batch.dropped) == (4, 4, [7])
    assert batch.work.missing == 4
