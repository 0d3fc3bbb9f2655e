import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from protocol import noise, normalizer
from tests.worker import reference
from tests.worker.evaluating import (
    DEADLINE,
    EVERY,
    LANES,
    alive,
    alone,
    assert_same,
    assert_usable,
    cursed,
    members,
    processes,
    started,
    toy,
    until,
    waiting,
    whole,
)
from tests.worker.reference import TOYS, run_spec
from worker.evaluation import answers, environments, progress
from worker.evaluation import children as hands
from worker.evaluation.children import Evaluators
from worker.evaluation.choosing import MOST_VECTOR_LANES
from worker.evaluation.jobs import Evaluation, EvaluationJob, WorkerFailure, join
from worker.evaluation.lanes import Lanes
from worker.evaluation.process import Child

pytestmark = pytest.mark.asyncio(loop_scope="module")


def retrying(evaluators: Evaluators) -> bool:
    """Whether something is tried a second time."""
    return any(child.parts and child.parts[0].suspect for child in evaluators._children)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes of the pool's environment with a seed that EVERY divides wait for this file."""
    return tmp_path_factory.mktemp("gate") / "open"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def slow_gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A slow episode of that environment makes this file by its third step."""
    return tmp_path_factory.mktemp("slow") / "gate"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def slow(slow_gate: Path) -> AsyncIterator[Evaluators]:
    """One child, all of whose episodes but the cursed ones are over with their first step."""
    evaluators = await started(
        toy(trouble="slow", every=EVERY, lasts=1, gate=str(slow_gate), slow_steps=900), 1
    )
    yield evaluators
    await evaluators.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(gate: Path) -> AsyncIterator[Evaluators]:
    """Two children that every test leaves as it found them: usable."""
    evaluators = await started(waiting(gate), 2)
    yield evaluators
    await evaluators.close()


async def full(pool: Evaluators) -> None:
    """Wait until both children of the pool are there."""
    await until(lambda: pool.ready == 2)


async def test_two_children_give_what_one_process_gives(pool):
    job = members(0, 40, episodes=2)
    assert len(processes(pool)) == 2
    assert_same(await whole(pool, job), alone(toy(), job))


async def test_lanes_that_step_together_are_told_of_and_filled():
    spec, evaluators = run_spec("CartPole-v1"), Evaluators(DEADLINE)
    await evaluators.start(spec, 2)
    await until(lambda: evaluators.ready == 2)
    assert evaluators.lanes == 2 * MOST_VECTOR_LANES
    counts = [MOST_VECTOR_LANES * lanes // 2 for lanes in (1, 2, 4)]  # both mirrors are played
    assert [evaluators._pieces(members(0, count)) for count in counts] == [2, 2, 4]
    await evaluators.close()


async def test_one_and_three_children_agree_on_continuous_actions():
    spec = run_spec("Pendulum-v1", policy={"hidden": [8]}, environment={"max_steps": 50})
    jobs = [members(0, 9), EvaluationJob("centre", 0, 3, 7)]
    one, three = (Evaluators(DEADLINE) for _ in range(2))
    one.prepare(1)  # before the run is known
    await until(lambda: len(one._children) == 1)
    prepared = processes(one)
    await asyncio.gather(one.start(spec, 1), three.start(spec, 3, lanes=LANES))
    await until(lambda: three.ready == 3)
    assert processes(one) == prepared
    assert one.speed > 0 and len(one.numeric_class) == 16
    assert one.lanes == three.lanes == 0, "they step one by one"
    assert one.numeric_class == three.numeric_class
    for evaluators in (one, three):
        await evaluators.set_theta(0, reference.theta(spec))
    for job in jobs:
        found = await whole(one, job)
        assert_same(found, await whole(three, job))
        assert_same(found, alone(spec, job))
        assert (found.lengths == 50).all() and np.ptp(found.returns) > 0
    await asyncio.gather(one.close(), three.close())


async def test_what_is_finished_of_a_long_job_is_told_while_it_runs(monkeypatch):
    monkeypatch.setattr(progress, "TELL_SECONDS", 0.0)
    monkeypatch.setattr(progress, "SOON_SECONDS", 0.0)
    monkeypatch.setattr(hands, "LOOK_SECONDS", 0.01)
    spec = toy(trouble="slow", every=EVERY)
    evaluators = await started(spec, 2)
    job, pieces = cursed(before=11, after=20), list[Evaluation]()
    await evaluators.evaluate(job, pieces.append)
    await evaluators.close()
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # nothing is slow in this process
    for piece in pieces:
        assert_same(piece, alone(spec, members(piece.first, len(piece.returns))))
    whole = join(sorted(pieces, key=lambda piece: piece.first))
    assert (whole.first, whole.end) == (job.first, job.first + job.count)
    assert whole.failed and len(whole.failed) < job.count
    # The other child's share did not wait for the slow one.
    assert any(piece.first > cursed().first for piece in pieces[:-1])


async def test_a_cancelled_job_tells_first_what_is_finished(slow, slow_gate, monkeypatch):
    monkeypatch.setattr(hands, "HAND_OVER_SECONDS", DEADLINE)
    spec = toy(trouble="slow", every=EVERY, lasts=1)
    job, parts = cursed(before=5, after=7), list[Evaluation]()
    running = asyncio.create_task(slow.evaluate(job, parts.append))
    await until(slow_gate.exists)  # by a third step, when all others are over
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (piece,) = parts
    assert (piece.first, piece.end) == (job.first, cursed().first)
    assert_same(piece, alone(spec, members(job.first, 5)))


async def test_the_next_job_goes_on_beside_the_last_episodes_of_one_and_without_them(
    slow, monkeypatch
):
    monkeypatch.setattr(hands, "HAND_OVER_SECONDS", DEADLINE)
    spec = toy(trouble="slow", every=EVERY, lasts=1)
    await until(lambda: not any(child.parts for child in slow._children))
    job, told = cursed(before=5, after=2), list[Evaluation]()
    running = asyncio.create_task(slow.evaluate(job, told.append))
    await until(lambda: any(child.parts for child in slow._children))
    others = [members(0, 5), members(5, 60)]
    assert_same(await whole(slow, others[0]), alone(spec, others[0]))
    beside = asyncio.create_task(whole(slow, others[1]))
    await until(lambda: len(slow._children[0].parts) == 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (piece,) = told
    assert_same(piece, alone(spec, members(job.first, 5)))
    assert_same(await beside, alone(spec, others[1]))


async def test_a_job_that_hangs_is_cancelled_all_the_same(pool, gate, monkeypatch):
    monkeypatch.setattr(hands, "HAND_OVER_SECONDS", 0.1)
    await full(pool)
    told = list[Evaluation]()
    running = asyncio.create_task(pool.evaluate(cursed(), told.append))
    await until(Path(f"{gate}.waiting").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, DEADLINE)
    assert told == []
    (hung,) = [child for child in pool._children if child.parts]
    os.kill(hung.process.pid, signal.SIGKILL)
    await until(lambda: hung not in pool._children)
    await full(pool)


async def test_a_large_part_is_answered_by_a_child_that_had_nothing_to_do(pool):
    await full(pool)
    before, job = processes(pool), members(0, 600)
    assert_same(await whole(pool, job), alone(toy(), job))
    assert processes(pool) == before  # none was taken to talk nonsense, and its part retried


async def test_a_child_killed_once_in_mid_job_costs_a_retry(pool, gate):
    await full(pool)
    before = processes(pool)
    job = asyncio.create_task(whole(pool, cursed()))
    await until(lambda: any(child.parts for child in pool._children))
    victim = next(child for child in pool._children if child.parts).process.pid
    os.kill(victim, signal.SIGKILL)
    await until(lambda: retrying(pool))
    gate.touch()
    found = await asyncio.wait_for(job, DEADLINE)
    assert_same(found, alone(waiting(gate), cursed()))
    assert found.failed == ()
    await full(pool)
    gate.unlink()
    assert victim not in processes(pool) and len(set(before) & set(processes(pool))) == 1
    await asyncio.gather(*(assert_usable(pool) for _ in range(6)))


async def test_all_that_a_lost_child_had_is_done_by_others(pool, gate):
    await full(pool)
    blocked = [asyncio.create_task(whole(pool, cursed())) for _ in range(2)]
    await until(lambda: sum(bool(child.parts) for child in pool._children) == 2)
    queued = [asyncio.create_task(assert_usable(pool)) for _ in range(2)]
    await until(lambda: all(len(child.parts) == 2 for child in pool._children))
    os.kill(processes(pool)[0], signal.SIGKILL)
    await until(lambda: retrying(pool))
    gate.touch()
    await asyncio.wait_for(asyncio.gather(*queued), DEADLINE)
    for found in await asyncio.gather(*blocked):
        assert_same(found, alone(waiting(gate), cursed()))
    gate.unlink()


async def test_a_cancelled_job_leaves_the_pool_usable(pool, gate):
    await full(pool)
    held = [asyncio.create_task(whole(pool, cursed())) for _ in range(2)]
    await until(lambda: all(child.parts for child in pool._children))
    queued = asyncio.create_task(whole(pool, members(0, 64)))
    await until(lambda: all(len(child.parts) == 2 for child in pool._children))
    for task in (queued, *held):
        task.cancel()
    done = await asyncio.gather(queued, *held, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in done)
    assert not len(pool._waiting)
    gate.touch()
    await assert_usable(pool)
    gate.unlink()


async def test_cancelling_stops_the_work_itself(pool, gate):
    gate.touch()
    long = asyncio.create_task(whole(pool, members(0, 4000, episodes=1000)))
    await until(lambda: all(child.parts for child in pool._children))
    long.cancel()
    await assert_usable(pool)
    gate.unlink()


async def test_a_step_that_does_not_return_is_found_and_closing_does_not_wait_for_one():
    evaluators = await started(toy(trouble="hang", every=EVERY), 1)
    before = processes(evaluators)
    evaluators.patience = 1.5
    ((direction, reason),) = (await asyncio.wait_for(whole(evaluators, cursed()), DEADLINE)).failed
    assert direction == cursed().first
    assert re.match(r"twice its process said nothing for 1.5 s: a step.*ToyWalk-v0 does n", reason)
    evaluators.patience = DEADLINE
    await until(lambda: any(child.ready for child in evaluators._children))
    await assert_usable(evaluators)
    pids = processes(evaluators)
    assert pids != before and not alive(before[0])

    job = asyncio.create_task(whole(evaluators, cursed()))
    await until(lambda: any(child.parts for child in evaluators._children))
    await asyncio.wait_for(evaluators.close(), DEADLINE)
    with pytest.raises(WorkerFailure, match="closed"):
        await job
    assert not alive(pids[0])


async def test_silence_while_this_process_stood_still_is_no_fault_of_its_children(pool, gate):
    await full(pool)
    gate.touch()
    before, pool.patience = processes(pool), 2.0
    job = asyncio.create_task(whole(pool, members(0, 4000, episodes=1000)))
    await until(lambda: all(child.parts for child in pool._children))
    time.sleep(3.0)  # as if it had been stopped
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    await assert_usable(pool)
    assert processes(pool) == before
    pool.patience = DEADLINE
    gate.unlink()


async def test_what_ends_processes_fails_alone_and_by_name(monkeypatch):
    evaluators = await started(toy(trouble="crash", every=EVERY), 1)
    first = processes(evaluators)
    bad = cursed().first
    job, beside = members(bad - 3, 8), members(0, 6)
    together = asyncio.gather(whole(evaluators, job), whole(evaluators, beside))
    found, harmless = await asyncio.wait_for(together, DEADLINE)
    assert_same(harmless, alone(toy(), beside))
    assert found.failed == ((bad, "twice its process died (SIGSEGV)"),)
    assert np.isnan(found.returns[3]).all() and not found.lengths[3].any()
    sound = [alone(toy(), members(bad - 3, 3)), alone(toy(), members(bad + 1, 4))]
    for piece, place in zip(sound, (slice(3), slice(4, None)), strict=True):
        np.testing.assert_array_equal(found.returns[place], piece.returns)
    assert found.observed == normalizer.merge([one.observed for one in sound if one.observed])
    assert first != processes(evaluators)

    seeds = noise.episode_seeds(7, np.arange(9000, dtype=np.uint64), noise.Domain.CENTRE)
    episode = int(np.flatnonzero((seeds % EVERY == 0) & (seeds % 2 == 0))[0])
    centre = EvaluationJob("centre", 0, episode - 2, 4)
    monkeypatch.setattr(hands, "MOST_CRASHED", 0)
    with pytest.raises(WorkerFailure, match=r"an evaluation process died \(exit code 3\)"):
        await asyncio.wait_for(whole(evaluators, centre), DEADLINE)
    await evaluators.close()


async def test_a_direction_that_ends_the_trial_too_does_not_keep_the_worker_from_the_others():
    told = list[str]()
    spec = toy(trouble="crash", every=noise.episode_seed(7, 0))  # direction 0
    evaluators = Evaluators(DEADLINE, on_lost=told.append)
    await evaluators.start(spec, 1, [TOYS])
    assert told == 2 * ["an evaluation process died (SIGSEGV)"]
    await evaluators.set_theta(0, reference.theta(spec), reference.normalization(spec))
    found = await whole(evaluators, members(0, 3))
    await evaluators.close()
    assert [direction for direction, _ in found.failed] == [0]
    np.testing.assert_array_equal(found.returns[1:], alone(toy(), members(1, 2)).returns)


async def test_an_episode_of_the_centre_that_ends_its_process_is_named_by_its_number():
    found = answers.crashed(toy(), EvaluationJob("centre", 0, 7, 1), "x" * 999)
    assert found.failed == ((7, "x" * 200),)
    assert (found.first, found.returns.shape, found.observed) == (7, (1,), None)


async def test_without_fresh_processes_a_job_whose_process_died_fails(pool, gate, monkeypatch):
    await full(pool)
    job = asyncio.create_task(whole(pool, cursed()))
    await until(lambda: any(child.parts for child in pool._children))
    other = next(child for child in pool._children if not child.parts)
    other.fresh = False

    async def none() -> Child:
        raise OSError("no processes left")

    monkeypatch.setattr(Child, "spawn", none)
    os.kill(next(child for child in pool._children if child.parts).process.pid, signal.SIGKILL)
    with pytest.raises(WorkerFailure, match="no processes left"):
        await asyncio.wait_for(job, DEADLINE)
    await assert_usable(pool)
    monkeypatch.undo()
    await full(pool)


async def test_failed_episodes_come_back_named_and_what_was_printed_does_not():
    kwargs = {"trouble": "raise", "every": 4}
    evaluators = await started(run_spec("ToyChatter-v0", environment={"kwargs": kwargs}), 1)
    job = members(0, 12)
    found = await whole(evaluators, job)
    await evaluators.close()
    assert found.failed and "broken leg" in found.failed[0][1]
    assert_same(found, alone(run_spec("ToyWalk-v0", environment={"kwargs": kwargs}), job))


async def test_versions_are_kept_until_they_are_dropped(pool):
    spec = toy()
    other = reference.theta(spec, seed=1)
    await pool.set_theta(5, other, reference.normalization(spec))
    job = EvaluationJob("centre", 5, 0, 4)
    lanes = Lanes(spec, environments.maker(spec.environment, [TOYS]), 2)
    expected = lanes.evaluate(job, other, reference.normalization(spec))
    assert_same(await whole(pool, job), expected)
    await assert_usable(pool)
    pool.drop(5)
    pool.drop(6)
    with pytest.raises(WorkerFailure, match="version 5 is not among"):
        await whole(pool, job)


async def test_interrupts_do_not_reach_the_children(pool):
    for pid in processes(pool):
        assert os.getpgid(pid) != os.getpgrp()
        os.kill(pid, signal.SIGINT)
    await assert_usable(pool)
    assert all(alive(pid) for pid in processes(pool))
