"""What the benchmark of the pool measures is what a simulated pool did."""

from __future__ import annotations

import pytest

from coordinator.pool import Pool
from coordinator.pool.events import Command, Event, SendTask
from scripts import bench_pool
from scripts.bench_pool import Replays

WORKERS, EVENTS = 50, 1_000


@pytest.mark.parametrize("audit_share", [0.0, 0.035])
def test_a_replay_of_whole_batches_decides_what_was_recorded(audit_share: float) -> None:
    replays = Replays(WORKERS, "quorum", 1, EVENTS, audit_share)
    looked = replays.look()
    assert looked.events >= EVENTS
    assert looked.updates >= 1
    assert sum(kind.count for kind in looked.kinds.values()) == looked.events
    assert looked.kinds["Arrived"].count > looked.events / 2
    assert abs(looked.sessions - WORKERS) < WORKERS / 5
    assert 0.0 < looked.slowest[1] <= sum(kind.seconds for kind in looked.kinds.values())
    assert 0.0 < replays.measure() < 0.1


def test_a_replay_that_decides_otherwise_is_no_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Another(Pool):
        def handle(self, event: Event, now: float) -> list[Command]:
            return [each for each in super().handle(event, now) if not isinstance(each, SendTask)]

    replays = Replays(WORKERS, "quorum", seed=1, events=EVENTS)
    monkeypatch.setattr(bench_pool, "Pool", Another)
    with pytest.raises(RuntimeError, match="decided otherwise"):
        replays.look()
