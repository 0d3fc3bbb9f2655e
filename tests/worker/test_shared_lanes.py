"""What kills, leaks and cancels do to jobs that share the lanes of a process."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from protocol import noise
from tests.worker import reference
from tests.worker.evaluating import (
    DEADLINE,
    EVERY,
    LANES,
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
from worker.evaluation import children, environments, pipe
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import Evaluation, EvaluationJob, WorkerFailure
from worker.evaluation.lanes import Lanes
from worker.evaluation.memory import Meter
from worker.evaluation.process import Child

NEVER = 2**31
"""No seed but 0 is a multiple of it."""


def shared(evaluators: Evaluators) -> list[Child]:
    """The processes that have two jobs in play."""
    return [
        child for child in evaluators._children if len({id(part.work) for part in child.parts}) == 2
    ]


def directions_of(job: EvaluationJob) -> list[int]:
    return list(range(job.first, job.first + job.count))


def told_of(pieces: list[Evaluation]) -> list[int]:
    """The directions that were told of, each time; and each must be as one process has it."""
    for piece in pieces:
        assert_same(piece, alone(toy(), members(piece.first, len(piece.returns))))
    return sorted(direction for piece in pieces for direction in range(piece.first, piece.end))


async def test_a_kill_with_two_jobs_in_play_costs_only_what_was_not_finished(tmp_path):
    tally = tmp_path / "tally"
    tally.touch()
    evaluators = await started(toy(trouble="tally", every=NEVER, gate=str(tally)), 2)
    jobs = [members(100, 240), members(500, 240)]  # no trial plays any of these
    told: list[list[Evaluation]] = [[], []]
    running = [
        asyncio.create_task(evaluators.evaluate(job, pieces.append))
        for job, pieces in zip(jobs, told, strict=True)
    ]

    def begun() -> list[Child]:
        """Those that have told something of their jobs."""
        return [c for c in shared(evaluators) if c.answered or any(p.finished for p in c.parts)]

    await until(lambda: begun() != [])
    victim = begun()[0]
    (other,) = (child for child in evaluators._children if child is not victim)
    os.kill(victim.process.pid, signal.SIGKILL)
    lost = list(victim.parts)
    await asyncio.wait_for(asyncio.gather(*running), DEADLINE)
    assert other in evaluators._children
    await evaluators.close()
    began = Counter(map(int, tally.read_text().split()))
    for job, pieces in zip(jobs, told, strict=True):
        assert told_of(pieces) == directions_of(job)
        rests = [part.rest for part in lost if part.work.job == job]
        again = {direction for rest in rests for direction in directions_of(rest)}
        for direction in directions_of(job):
            times = began[noise.episode_seed(7, direction * 65536)]
            # Both members, once; what was not finished is begun once more, as far as it was begun.
            assert 2 <= times <= 4 if direction in again else times == 2, direction


async def test_who_is_killed_twice_fails_as_a_worker_and_blames_no_direction(tmp_path):
    gate = tmp_path / "gate"
    evaluators = await started(waiting(gate), 1)
    job, told = cursed(before=2, after=2), list[Evaluation]()
    running = asyncio.create_task(evaluators.evaluate(job, told.append))
    beside = asyncio.create_task(whole(evaluators, members(0, 40)))
    await until(lambda: shared(evaluators) != [])
    for _ in range(2):
        await until(Path(f"{gate}.waiting").exists)
        Path(f"{gate}.waiting").unlink()
        (pid,) = processes(evaluators)
        os.kill(pid, signal.SIGKILL)
        await until(lambda killed=pid: killed not in processes(evaluators))
    with pytest.raises(WorkerFailure, match=r"was killed from outside \(SIGKILL\)"):
        await asyncio.wait_for(running, DEADLINE)
    assert told_of(told) == [job.first, job.first + 1]  # suspects come one by one
    assert_same(await asyncio.wait_for(beside, DEADLINE), alone(toy(), members(0, 40)))
    await assert_usable(evaluators)
    await evaluators.close()


async def test_kills_while_it_starts_are_survived_and_told():
    told = list[str]()
    evaluators = Evaluators(DEADLINE, on_lost=told.append)
    evaluators.prepare(2)
    starting = asyncio.create_task(evaluators.start(toy(), 2, [TOYS], lanes=LANES))
    killed = set[int]()
    for _ in range(3):
        await until(lambda: bool(set(processes(evaluators)) - killed))
        pid = next(pid for pid in processes(evaluators) if pid not in killed)
        killed.add(pid)
        os.kill(pid, signal.SIGKILL)
    await asyncio.wait_for(starting, DEADLINE)
    await until(lambda: evaluators.ready == 2)
    assert len(told) == 3 and all("killed from outside" in words for words in told)
    await evaluators.set_theta(0, reference.theta(toy()), reference.normalization(toy()))
    await assert_usable(evaluators)
    await evaluators.close()


async def test_who_shares_lanes_with_what_takes_too_much_is_not_blamed(monkeypatch):
    monkeypatch.setattr(children, "LOOK_SECONDS", 0.002)
    evaluators = await started(toy(trouble="gulp", every=EVERY), 1)
    lost = list[str]()
    monkeypatch.setattr(evaluators, "on_lost", lost.append)
    await whole(evaluators, members(0, 1))
    (pid,) = processes(evaluators)
    evaluators.memory_limit = Meter(pid).own() + (100 << 20)
    greedy, modest = cursed(before=3, after=3), members(0, 60)
    both = asyncio.gather(whole(evaluators, greedy), whole(evaluators, modest))
    await until(lambda: shared(evaluators) != [])
    found, innocent = await asyncio.wait_for(both, DEADLINE)
    await evaluators.close()
    assert_same(innocent, alone(toy(), modest))
    assert [direction for direction, _ in found.failed] == [cursed().first]
    assert re.match(r"twice its process grew to .*, the limit is .*MiB", found.failed[0][1])
    sound = np.arange(greedy.count) != 3
    expected = alone(toy(), greedy)
    np.testing.assert_array_equal(found.returns[sound], expected.returns[sound])
    assert 2 <= len(lost) <= 3  # nothing is blamed for what others before it took


@pytest.mark.parametrize("environment", ["CartPole-v1", "ToyWalk-v0"])
def test_a_job_that_is_stopped_beside_others_changes_nothing_for_them(environment):
    """At any moment, and whatever was in play; lanes that remember among them."""
    spec = run_spec(
        environment, policy={"kind": "gru", "hidden": [4]}, normalizer={"enabled": True}
    )
    lanes = Lanes(spec, environments.maker(spec.environment, [TOYS]), 6)
    theta, view = reference.theta(spec), reference.normalization(spec)
    other_view = reference.normalization(spec)
    expected = {n: lanes.evaluate(members(n, 9), theta, view) for n in (0, 50)}
    for moment in range(0, 60, 7):
        jobs = [lanes.start(members(0, 9), theta, view)]
        stopped = lanes.start(members(200, 5), -theta, other_view)
        jobs.append(lanes.start(members(50, 9), theta, view))
        over = list[object]()
        for step in range(100_000):
            if step == moment:
                lanes.stop(stopped)
            over += [job for job in lanes.step() if job is not stopped]
            if len(over) == 2:
                break
        for job, first in zip(jobs, (0, 50), strict=True):
            assert job.over
            found = job.take()
            assert found is not None
            assert_same(found, expected[first])
    assert len(lanes._free) == 6 and not lanes._jobs
    lanes.close()


async def test_a_lease_that_ends_and_a_version_that_goes_leave_who_plays_beside_as_they_were():
    spec = toy(trouble="tally", every=NEVER, gate=os.devnull)
    evaluators = await started(spec, 1)
    theta, view = reference.theta(spec, seed=1), reference.normalization(spec)
    await evaluators.set_theta(1, theta, view)
    for round_ in range(3):
        ended = EvaluationJob("members", 1, 900, 300, 1, 0.3)
        told = list[Evaluation]()
        running = asyncio.create_task(evaluators.evaluate(ended, told.append))
        kept, later = members(10, 40), members(300, 30)
        beside = [asyncio.create_task(whole(evaluators, job)) for job in (kept, later)]
        await until(lambda: evaluators._children[0].parts != [])
        if round_:
            await until(lambda: evaluators._children[0].parts[0].finished > 0)
        running.cancel()
        if round_ == 2:
            evaluators.drop(1)
        with pytest.raises(asyncio.CancelledError):
            await running
        for job, found in zip((kept, later), await asyncio.gather(*beside), strict=True):
            assert_same(found, alone(toy(), job))
        assert not any(child.parts for child in evaluators._children)
    with pytest.raises(WorkerFailure, match="version 1 is not among"):
        await whole(evaluators, ended)
    await assert_usable(evaluators)
    await evaluators.close()


async def test_what_a_copy_of_the_process_says_is_not_taken_for_its_own_words():
    """An environment that forks, and whose copy goes on as if it were the one that was asked."""
    evaluators = await started(toy(trouble="double", every=EVERY), 1)
    job = cursed(before=30, after=300)
    found = await asyncio.wait_for(whole(evaluators, job), DEADLINE)
    assert_same(found, alone(toy(trouble="nothing", every=EVERY), job))
    await assert_usable(evaluators)
    await evaluators.close()


async def test_what_is_said_twice_is_counted_once(monkeypatch):
    evaluators = await started(toy(trouble="tally", every=NEVER, gate=os.devnull), 1)
    lost = list[str]()
    monkeypatch.setattr(evaluators, "on_lost", lost.append)
    book = evaluators._book

    def twice(child: Child, reply: pipe.Evaluated) -> None:
        book(child, reply)
        if child.parts and not lost:
            book(child, reply)

    monkeypatch.setattr(evaluators, "_book", twice)
    job = members(0, 200)
    found = await asyncio.wait_for(whole(evaluators, job), DEADLINE)
    assert_same(found, alone(toy(), job))
    assert lost == [
        f"an evaluation process gave no proper result: directions from 0 where {seen} is the next"
        for seen in re.findall(r"where (\d+) is", lost[0])
    ]
    await evaluators.close()
