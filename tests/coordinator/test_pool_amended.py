"""A pool whose settings change while it goes on: batches of every size side by side, each direction
in one of them, whoever dies meanwhile."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from coordinator.pool.events import CentreJudged, CloseBatch, EndRun, Updated
from protocol import amendments
from protocol.amended import NOTHING
from protocol.batches import Layout
from protocol.spec import RunSpec
from tests.coordinator.driver import A, B, Driver, finish_all, of, tasks
from tests.coordinator.simulation import Environment, counted, spec
from tests.coordinator.test_pool_restart import (
    ASYNCHRONOUS,
    SYNCHRONOUS,
    World,
    contents,
    world,
)

POPULATIONS = st.dictionaries(
    st.integers(0, 9), st.sampled_from([2, 6, 20, 48, 50, 130]).map(float), min_size=1, max_size=6
)
DEATHS = st.dictionaries(
    st.integers(1, 300), st.sampled_from(["before", "amid", "after"]), max_size=4
)
ANY = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def amended(run: RunSpec, populations: dict[int, float]) -> World:
    made = world(run)
    made.changes = {update: {"strategy.population": p} for update, p in populations.items()}
    return made


def layout_of(run: RunSpec, populations: dict[int, float]) -> Layout:
    """Of all batches, by definition."""
    held = NOTHING
    for version, population in sorted(populations.items()):
        held = amendments.amend(run, held, version, {"strategy.population": population})
    return amendments.layout(run, held)


@ANY
@given(POPULATIONS, DEATHS)
def test_a_synchronous_run_with_changing_batches_comes_out_the_same_whoever_dies(
    populations: dict[int, float], deaths: dict[int, str]
) -> None:
    run = msgspec.structs.replace(SYNCHRONOUS, stop=spec(48, stop={"updates": 12}).stop)
    calm, disturbed = amended(run, populations), amended(run, populations)
    disturbed.deaths = deaths
    calm.run()
    disturbed.run()
    assert calm.ended == disturbed.ended
    assert [contents(u) for u in calm.disk.updates] == [contents(u) for u in disturbed.disk.updates]
    layout = layout_of(run, populations)
    for update in calm.disk.updates:
        settled = {*counted(update).tolist(), *update.dropped}
        first = layout.first(update.version)
        assert settled == set(range(first, first + layout.count(update.version)))


@ANY
@given(POPULATIONS, DEATHS)
def test_no_direction_counts_twice_where_batches_change_and_nobody_is_waited_for(
    populations: dict[int, float], deaths: dict[int, str]
) -> None:
    made = amended(ASYNCHRONOUS, populations)
    made.join("slow", 400.0)
    made.deaths = deaths
    made.run()
    used = Counter(d for update in made.disk.updates for d in counted(update).tolist())
    assert max(used.values()) == 1
    layout = layout_of(ASYNCHRONOUS, populations)
    for update in made.disk.updates:
        own = 0
        for part in update.contributions:
            index = layout.index(part.first)
            assert layout.index(part.first + len(part.returns) - 1) == index, "of two batches"
            assert index <= update.version and 0 <= update.version - part.version <= 2
            own += int(part.valid.sum()) if index == update.version else 0
        lost = len(update.dropped)
        assert own + lost >= 0.7 * layout.count(update.version) - 1, "closed before its quorum"
    for name, arrived in made.told.items():
        if arrived.kind == "members" and name not in made.disk.results:
            whole = range(arrived.first, arrived.first + arrived.count)
            assert arrived.failed or all(d in used for d in whole), f"{name} is lost"


# One by one.


def change(driver: Driver, **tables: dict[str, float]) -> Updated:
    """The next update, which carries these."""
    version, held = driver.pool.version, NOTHING
    changes = {f"{table}.{name}": v for table, names in tables.items() for name, v in names.items()}
    held = amendments.amend(driver.pool.spec, held, version, changes)
    run = driver.pool.spec
    return Updated(version + 1, amendments.in_force(run, held), amendments.layout(run, held))


def until_closed(driver: Driver) -> CloseBatch:
    """Everybody finishes what they hold, until a batch closes."""
    for _ in range(1000):
        if driver.pool.updating:
            return of(driver.said, CloseBatch)[-1]
        held = [t for t in tasks(driver.said) if t.task in driver.pool.leases]
        if held:
            driver.finish(held[0], after=0.05)
        else:
            driver.tick(0.1)
    raise AssertionError(driver.pool.quiet_because())


def test_what_was_begun_early_of_a_batch_keeps_that_batch_as_it_was() -> None:
    driver = Driver(
        spec(32, pool={"max_staleness": 1, "quorum": 0.9, "stale_share": 0.5}, stop={"updates": 5})
    )
    driver.measured(A, credit=2)
    driver.join(B, credit=2)
    until_closed(driver)
    early = [t for t in tasks(driver.said) if t.kind == "members" and t.first >= 16]
    assert early and all(t.version == 0 and t.first + t.count <= 32 for t in early)
    driver.send(change(driver, strategy={"population": 6.0}))
    sizes = []
    for version in range(1, 5):
        closed = until_closed(driver)
        assert closed.version == version
        sizes.append(sorted(counted(closed).tolist()))
        driver.send(Updated(version + 1))
    assert sizes[0][0] >= 0 and {16, 31} <= set(sizes[0])
    assert {32, 33, 34} >= set(sizes[1]) - set(range(32)) != set()
    assert [max(s) for s in sizes[1:]] == [34, 37, 40]


@pytest.mark.parametrize(("before", "after"), [(100.0, 4.0), (4.0, 100.0)])
def test_the_target_that_holds_when_the_centre_is_judged_ends_the_run(
    before: float, after: float
) -> None:
    """That of an evaluation, too, which was under way when the target was changed."""
    fifty = Environment(level=lambda version: 50.0)
    centre = {"evaluate_every": 1, "episodes": 8, "screening": 2}
    driver = Driver(spec(4, centre=centre, stop={"target": before, "updates": 2}))
    driver.join(A)
    while not driver.pool.updating:
        (task,) = [t for t in tasks(driver.said) if t.task in driver.pool.leases]
        assert task.kind == "members"
        driver.finish(task, environment=fifty)
    driver.send(change(driver, stop={"target": after}))
    while not driver.pool.ended:
        if driver.pool.updating:
            driver.send(Updated(driver.pool.version + 1))
        (task,) = [t for t in tasks(driver.said) if t.task in driver.pool.leases]
        driver.finish(task, environment=fifty)
    (end,) = of(driver.said, EndRun)
    assert end.reached is (after == 4.0)
    assert {judged.reached for judged in of(driver.said, CentreJudged)} == {end.reached}
    assert end.version == (0 if end.reached else 2)


def test_a_run_ends_by_the_rule_that_it_was_given_on_its_way() -> None:
    driver = Driver(spec(8, stop={"updates": 100}))
    driver.join(A, credit=2)
    until_closed(driver)
    driver.send(change(driver, stop={"updates": 3.0}))
    finish_all(driver)
    (end,) = of(driver.said, EndRun)
    assert (end.version, end.reason) == (3, "3 updates are made")


def test_tasks_are_cut_as_it_is_set_from_then_on() -> None:
    run = spec(4000, pool={"task_seconds": 0.1, "minimum_task_seconds": 0.0}, stop={"updates": 100})
    driver = Driver(run)
    driver.measured(A)
    until_closed(driver)
    small = max(t.count for t in tasks(driver.said))
    said = driver.send(change(driver, pool={"task_seconds": 1.0}))
    said += driver.tick(0.2)
    assert max(t.count for t in tasks(said)) > 2 * small


def test_how_many_may_be_left_behind_follows_the_batch() -> None:
    """With a quorum of half of it, of a batch that is twice as large."""
    driver = Driver(spec(8, pool={"quorum": 0.5, "patience": 0.0}, stop={"updates": 100}))
    driver.join(A, credit=1)
    until_closed(driver)
    driver.send(change(driver, strategy={"population": 40.0}))
    seen = []
    for version in range(1, 4):
        closed = until_closed(driver)
        seen.append(len(counted(closed)))
        driver.send(Updated(version + 1))
    assert seen[0] <= 4 and all(count >= 10 for count in seen[1:])


def test_batches_follow_one_another_without_a_gap() -> None:
    driver = Driver(spec(8, stop={"updates": 100}))
    driver.join(A, credit=2)
    closed = []
    for version in range(6):
        closed.append(sorted(counted(until_closed(driver)).tolist()))
        event = Updated(version + 1)
        if version == 1:
            event = change(driver, strategy={"population": 20.0})
        driver.send(event)
    assert [len(batch) for batch in closed] == [4, 4, 4, 10, 10, 10]
    assert all(a[-1] + 1 == b[0] for a, b in pairwise(closed))
