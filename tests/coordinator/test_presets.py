"""The presets are one machine: nothing but fields of the spec tells them apart."""

from __future__ import annotations

from pathlib import Path

import pytest

import coordinator.pool
from coordinator.pool.presets import PRESETS
from protocol import spec as run_spec
from protocol.spec import PoolSpec
from tests.coordinator.simulation import Record, Simulation, spec


def test_each_preset_says_all_that_decides_when_a_batch_closes() -> None:
    fields = {"quorum", "max_staleness", "discount", "patience", "copies", "stale_share"}
    assert fields <= set(PoolSpec.__struct_fields__)
    for name, preset in PRESETS.items():
        assert set(preset) == fields, name


def played(pool: dict[str, object]) -> Record:
    """What comes of three workers of different speeds, one of which vanishes."""
    simulation = Simulation(spec(64, pool=pool))
    for name, speed in (("a", 30_000.0), ("b", 10_000.0), ("c", 1_000.0)):
        simulation.join(name, speed=speed)
    gone = simulation.join("d")
    simulation.run_for(0.3)
    simulation.vanish(gone)
    assert simulation.run(lambda: len(simulation.record.closed) == 4, 300.0)
    return simulation.record


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_laid_over_any_other_is_the_same_run(name: str) -> None:
    alone = played(dict(PRESETS[name]))
    for other in PRESETS.values():
        merged = played(run_spec.merge(other, PRESETS[name]))
        assert merged.tasks == alone.tasks
        assert [at for at, _ in merged.closed] == [at for at, _ in alone.closed]


def test_presets_differ_in_what_they_do() -> None:
    assert len({tuple(at for at, _ in played(dict(p)).closed) for p in PRESETS.values()}) == 3


def test_no_code_of_the_pool_asks_for_a_preset_by_its_name() -> None:
    folder = Path(coordinator.pool.__file__).parent
    for path in folder.glob("*.py"):
        if path.name != "presets.py":
            source = path.read_text()
            assert "PRESETS" not in source, path.name
            assert '"async"' not in source and '"sync"' not in source, path.name
