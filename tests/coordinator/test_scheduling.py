"""What scheduling is for, in virtual time: nobody idles, little is stale, nothing is biased."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordinator.pool.presets import PRESETS
from scripts.simulation.environments import Formula, Returns
from scripts.simulation.population import Population
from scripts.simulation.report import Report
from scripts.simulation.scenario import Scenario, Stage
from tests.coordinator.simulation import Simulation, spec


def reported(scenario: Scenario) -> Report:
    """Of a simulated run."""
    stage = Stage(scenario)
    stage.run()
    return stage.report()


@pytest.mark.parametrize(("preset", "least"), [("sync", 0.86), ("quorum", 0.90), ("async", 0.95)])
def test_a_mixed_pool_hardly_idles(preset: str, least: float) -> None:
    """Speeds, comings and goings as the defaults of the simulator have them."""
    report = reported(Scenario(Population(workers=40), preset=preset, warm_up=2, updates=6))
    assert report.efficiency >= least
    assert report.stale_share <= 0.25
    assert (report.applied_twice, report.lost) == (0, 0)


@pytest.mark.parametrize("preset", ["quorum", "async"])
@pytest.mark.parametrize("returns", ["long", "short"])
def test_long_episodes_count_as_much_as_short_ones(preset: str, returns: Returns) -> None:
    """Equal workers, one or two directions to a task: an episode's length is a task's."""
    report = reported(
        Scenario(
            Population(workers=20, sigma=0.0, leaving=0.0, vanishing=0.0, late=0.0, twice=0.0),
            preset=preset,
            environment=Formula(mean=1000, spread=900, returns=returns),
            warm_up=2,
            updates=8,
        )
    )
    assert abs(report.length_weight_correlation) <= 0.05


@settings(max_examples=12, deadline=None)
@given(
    speeds=st.lists(st.floats(1e3, 1e5), min_size=2, max_size=8),
    quorum=st.sampled_from([0.5, 0.75, 0.9, 1.0]),
    share=st.sampled_from([0.0, 0.25, 0.5]),
    update_seconds=st.sampled_from([0.01, 1.0]),
)
@example(speeds=[1000.0, 1146.0, 1146.0, 77428.0], quorum=0.9, share=0.0, update_seconds=0.01)
def test_no_more_members_are_stale_than_their_share(
    speeds: list[float], quorum: float, share: float, update_seconds: float
) -> None:
    """Late ones count, too: the share bounds the sum where it is more than may be left behind. What
    two batches left behind may come in one update, so that counts of all updates so far."""
    pool = {"quorum": quorum, "max_staleness": 2, "stale_share": share, "patience": 0.5}
    simulation = Simulation(spec(256, pool=pool), update_seconds=update_seconds)
    for number, speed in enumerate(speeds):
        simulation.join(f"w{number}", speed=speed)
    assert simulation.run(lambda: len(simulation.record.closed) == 6, 3000.0)
    stale = members = 0
    for _, closed in simulation.record.closed:
        for part in closed.contributions:
            members += len(part.returns)
            stale += len(part.returns) * (part.version < closed.version)
        assert stale <= max(share, 1.0 - quorum) * members


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_a_worker_whose_speed_changes_tenfold_is_followed_within_three_tasks(
    preset: str, factor: float
) -> None:
    run = spec(8192, pool={**PRESETS[preset], "task_seconds": 1.0})
    simulation = Simulation(run, Formula(mean=100, spread=20))
    worker = simulation.join("changing", speed=20_000.0)
    simulation.join("steady", speed=20_000.0)
    simulation.run_for(8.0)
    worker.change_pace(factor)
    tasks, now = simulation.record.tasks, simulation.now
    session = simulation.pool.sessions[worker.id]

    def given_since() -> int:
        return sum(at > now and task.session == worker.id for at, task in tasks)

    # It holds two from before, and who has returned three more has been given a sixth.
    assert simulation.run(lambda: given_since() >= 6, 120.0)
    assert session.speed == pytest.approx(20_000.0 * factor, rel=0.15)


@pytest.mark.parametrize("preset", PRESETS)
def test_machines_that_differ_a_thousandfold_end_a_batch_together(preset: str) -> None:
    """The slowest takes a fifth of a batch for one direction, the fastest does most of it."""
    simulation = Simulation(spec(4096, pool=dict(PRESETS[preset])), Formula(mean=200, spread=20))
    for number, speed in enumerate((400.0, 4_000.0, 40_000.0, 400_000.0)):
        simulation.join(f"w{number}", speed=speed)
    ideal = 4096 * 200 / 444_400.0
    assert simulation.run(lambda: len(simulation.record.closed) == 8, 300.0)
    times = [at for at, _ in simulation.record.closed]
    assert (times[-1] - times[3]) / 4 <= 1.35 * ideal
