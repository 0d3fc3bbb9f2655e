"""Who counts as alive, and what becomes of those who were away."""

from __future__ import annotations

import contextlib
from pathlib import Path

from coordinator.pool.events import Happened, HeldLease, Joined, SendAcknowledge, Tick
from protocol.identity import Identity
from protocol.state import params_hash
from tests.coordinator.runs import led, spec_of, states_of
from tests.coordinator.simulation import spec
from tests.coordinator.test_pool import A, B, Driver, of, tasks


def test_results_are_signs_of_life() -> None:
    driver = Driver(spec(100_000))
    held = driver.join(A)
    for _ in range(20):
        held = [task for task in tasks(driver.finish(held[0], after=5.0)) if task.session == A]
        driver.send(Tick())
    assert A in driver.pool.sessions
    assert not [said for said in of(driver.said, Happened) if "silent" in said.what]


def test_a_laptop_that_slept_for_an_hour_finds_its_place_again() -> None:
    driver = Driver(spec(4096))
    (mine,) = driver.measured(A)
    for _ in range(3600):
        driver.send(Tick(), 1.0)
    assert A not in driver.pool.sessions, "it was forgotten"
    driver.join(B)
    # It wakes, says hello with what it holds, and sends its old result.
    held = HeldLease(mine.task, mine.kind, mine.version, mine.first, mine.count)
    driver.send(Joined(A, 1, 1000.0, (held,)))
    answers = driver.finish(mine, after=0.5) + driver.tick(3.0)
    named = [task for said in of(answers, SendAcknowledge) for task in said.results]
    named += [task for said in tasks(answers) for task in said.acknowledged]
    assert mine.task in named, "its result is answered for"
    assert any(task.session == A for task in tasks(driver.said[-200:])), "and it is given work"


SPEC = spec_of(stop={"updates": 6})


async def test_two_workers_of_one_name_and_one_key_are_two_machines(tmp_path: Path) -> None:
    identity = Identity.generate()
    async with led(SPEC, tmp_path) as run, contextlib.AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(run.worker(identity=identity, pause_at=0, credit=1))
            for _ in range(2)
        ]
        for worker in workers:
            await worker.until(lambda worker=worker: bool(worker.heard.tasks))
        assert len(run.server._pool.sessions) == 2
        first, second = (worker.heard.tasks[0] for worker in workers)
        assert first.first != second.first or first.kind != second.kind
        for worker in workers:
            worker.resume()
        outcome = await run.outcome()
        assert all(worker.heard.acknowledged or len(worker.heard.tasks) > 1 for worker in workers)
    assert outcome.params_hash == params_hash(states_of(SPEC, 6)[-1].theta)


async def test_a_will_frees_at_once_what_would_run_out_much_later(tmp_path: Path) -> None:
    spec = spec_of(pool={"lease_floor": 600.0}, stop={"updates": 6})
    async with led(spec, tmp_path) as run, run.worker(busy=False) as lost:
        await lost.until(lambda: bool(lost.heard.tasks))
        await lost.vanish()
        async with run.worker():
            outcome = await run.outcome()
    assert outcome.params_hash == params_hash(states_of(SPEC, 6)[-1].theta)
    assert any("gone: its connection broke" in line for line in run.lines)
