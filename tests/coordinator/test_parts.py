"""Results in parts, from the wire to the update: any cut of the work comes to the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from coordinator import update
from coordinator.pool import Pool
from coordinator.pool.events import (
    Arrived,
    CloseBatch,
    Event,
    Joined,
    KeepResult,
    Kept,
    SendAcknowledge,
    SendTask,
    SessionId,
)
from coordinator.results import judge
from protocol import replay
from protocol.identity import lease_token
from protocol.messages import Credit, Part, Refusal, Result, ResultName, Task, decode, encode
from protocol.snapshot import state_digest
from protocol.state import params_digest, params_hash
from tests.coordinator.runs import broker, led, resumed, spec_of, states_of
from tests.coordinator.scripted import ScriptedWorker, evaluate, evaluate_part

EXACT: dict[str, Any] = {
    "normalizer": {"enabled": True},
    "strategy": {"population": 64},
    "optimizer": {"kind": "adam", "learning_rate": 0.05},
    "pool": {"quorum": 1.0, "max_staleness": 0, "minimum_task_seconds": 0.0, "task_seconds": 0.1},
    "stop": {"updates": 6},
}
FAST = 1e6
"""Steps per second that a worker claims, so that its first task has several directions."""
RUN = "test-00000000"
SECRET = b"s" * 32


def pieces_of(count: int, cuts: set[int]) -> list[tuple[int, int]]:
    """(units before, units) of each piece."""
    edges = [0, *sorted(cut for cut in cuts if cut < count), count]
    return [(begin, end - begin) for begin, end in pairwise(edges)]


def cutting(seed: int) -> Callable[[Task], list[tuple[int, int]]]:
    """Any pieces of a task, in any order, some of them twice; now and then all of it at once."""
    random = Random(seed)

    def cut(task: Task) -> list[tuple[int, int]]:
        cuts = {random.randint(1, task.count) for _ in range(random.randint(0, 3))}
        pieces = pieces_of(task.count, cuts)
        if len(pieces) == 1:
            return []
        pieces += random.sample(pieces, random.randint(0, 2))
        random.shuffle(pieces)
        return pieces

    return cut


def accepted(worker: ScriptedWorker) -> set[int]:
    """The directions whose returns were acknowledged as accepted."""
    found: set[int] = set()
    for name, outcome in worker.heard.acknowledged.items():
        result = worker.sent[name]
        if outcome == "accepted" and result.kind == "members":
            found |= set(range(result.first, result.first + result.count))
    return found


def asked(worker: ScriptedWorker, epoch: int) -> set[int]:
    """The directions that the worker was given in that epoch."""
    return {
        direction
        for task in worker.heard.tasks
        if task.kind == "members" and (task.task - 1) >> 32 == epoch - 1
        for direction in range(task.first, task.first + task.count)
    }


# Without any wire.


class Desk:
    """The pool of one batch at version 0 with two workers, and what it has said so far."""

    def __init__(self) -> None:
        self.spec = spec_of(**{**EXACT, "centre": {"evaluate_every": 0}})
        self.state = replay.initial_state(self.spec)
        self.ids = [SessionId(letter * 16, letter * 6) for letter in "ab"]
        self.pool = Pool(self.spec, 0, 0.0)
        self.now = 0.0
        self.tasks: list[tuple[SessionId, Task]] = []
        self.kept: dict[tuple[SessionId, ResultName], KeepResult] = {}
        self.answers: list[tuple[SessionId, ResultName, str]] = []
        self.closed: CloseBatch | None = None
        for id in self.ids:
            self.hear(Joined(id, 4, FAST))

    def hear(self, event: Event) -> None:
        self.now += 0.01
        for command in self.pool.handle(event, self.now):
            match command:
                case SendTask():
                    self.tasks.append((command.session, self.task(command)))
                case KeepResult(arrived):
                    assert (arrived.session, arrived.name) not in self.kept, "accepted twice"
                    self.kept[arrived.session, arrived.name] = command
                case SendAcknowledge():
                    for name in command.results:
                        self.answers.append((command.session, name, command.outcome))
                case CloseBatch():
                    self.closed = command
        if isinstance(event, Arrived) and (event.session, event.name) in self.kept:
            self.hear(Kept(((event.session, event.name),)))

    def take_tasks(self) -> list[tuple[SessionId, Task]]:
        """Those that are new."""
        taken, self.tasks = self.tasks, []
        return taken

    def task(self, sent: SendTask) -> Task:
        lease = (sent.task, sent.session.worker, sent.version, sent.first, sent.count, 1)
        token = lease_token(SECRET, RUN, *lease, sent.kind)
        digest = params_digest(self.state.theta)
        return Task(sent.task, sent.kind, sent.version, digest, sent.first, sent.count, 1, token)

    def brings(self, id: SessionId, result: Result) -> None:
        wired = decode(encode(result))
        assert isinstance(wired, Result)
        self.hear(judge(self.spec, RUN, SECRET, id, wired))


@pytest.mark.parametrize("seed", range(30))
def test_any_cut_in_any_order_doubled_makes_the_same_update(seed: int) -> None:
    desk, random, cut = Desk(), Random(seed), cutting(seed)
    waiting: list[tuple[SessionId, Result]] = []
    while desk.closed is None:
        for id, task in desk.take_tasks():
            pieces = [evaluate_part(desk.spec, desk.state, task, *piece) for piece in cut(task)]
            results = pieces or [evaluate(desk.spec, desk.state, task)]
            waiting += [(id, result) for result in results]
        assert waiting, "nothing is on its way, and the batch is not full"
        desk.brings(*waiting.pop(random.randrange(len(waiting))))
    after = update.make(desk.spec, replay.arithmetic(desk.spec), desk.state, 1, desk.closed).after
    assert state_digest(after) == state_digest(states_of(desk.spec, 1)[1])
    counted = [
        direction
        for part in desk.closed.contributions
        for direction in range(part.first, part.first + len(part.returns))
    ]
    assert sorted(counted) == list(range(desk.spec.directions)), "once each"
    assert {outcome for _, _, outcome in desk.answers} <= {"accepted", "duplicate"}


# Over a real broker.


@pytest.mark.parametrize("seed", range(2))
async def test_parts_in_any_order_and_doubled_come_to_the_same_end(
    seed: int, tmp_path: Path
) -> None:
    spec = spec_of(**{**EXACT, "strategy": {"population": 128}, "stop": {"updates": 12}})
    async with (
        led(spec, tmp_path) as run,
        run.worker(speed=FAST, credit=3, cut=cutting(seed)) as one,
        run.worker(speed=FAST, credit=3, cut=cutting(seed + 10)) as other,
    ):
        outcome = await run.outcome()
    assert outcome.params_hash == params_hash(states_of(spec, 12)[-1].theta)
    names = {*one.heard.acknowledged, *other.heard.acknowledged}
    assert sum(isinstance(name, tuple) for name in names) > 20, "few parts: little is shown"
    for worker in (one, other):
        # A copy of the batch's last directions may come when the batch is closed.
        assert set(worker.heard.acknowledged.values()) <= {"accepted", "duplicate", "late"}


@pytest.mark.parametrize("seed", range(2))
async def test_parts_that_were_answered_for_outlive_their_coordinator(
    seed: int, tmp_path: Path
) -> None:
    """Three lives, stopped anywhere, with the same workers, which are told nothing."""
    moments = Random(seed)
    spec = spec_of(**{**EXACT, "stop": {"updates": 24}})
    async with broker(tmp_path / "broker") as url, contextlib.AsyncExitStack() as stack:
        async with led(spec, tmp_path, url) as run:
            pool = [
                run.worker(speed=FAST, credit=3, cut=cutting(seed + number)) for number in (1, 2)
            ]
            for worker in pool:
                await stack.enter_async_context(worker)
            parts = moments.randint(1, 30)
            # The other may be given nearly all of the run.
            await pool[0].until(
                lambda: len(pool[0].heard.acknowledged) >= parts or pool[0].version >= 12
            )
        for epoch in (2, 3):
            safe = accepted(pool[0]) | accepted(pool[1])
            reached = max(worker.version for worker in pool)
            async with resumed(tmp_path, url) as run:
                goal = min(23, reached + moments.randint(1, 3))
                if epoch == 3:
                    outcome = await run.outcome()
                else:
                    await pool[1].until(lambda goal=goal: pool[1].version >= goal)
            for worker in pool:
                assert not asked(worker, epoch) & safe, "answered for, and asked for again"
    assert outcome.params_hash == params_hash(states_of(spec, 24)[-1].theta)


async def test_parts_sent_again_to_the_next_coordinator_count_once(tmp_path: Path) -> None:
    spec = spec_of(**EXACT)
    async with (
        broker(tmp_path / "broker") as url,
        led(spec, tmp_path, url) as run,
        run.worker(busy=False, credit=1, speed=FAST) as worker,
    ):
        await worker.until(lambda: bool(worker.heard.tasks))
        task, state = worker.heard.tasks[0], states_of(spec, 0)[0]
        assert task.kind == "members" and task.count > 5
        before, middle, rest = (
            evaluate_part(spec, state, task, *piece)
            for piece in ((0, 3), (3, 2), (5, task.count - 5))
        )
        worker.ask(Credit(0, 0, 1))  # who takes no tasks is answered at once
        for part in (middle, before):
            worker.send(part)
        await worker.until(lambda: len(worker.heard.acknowledged) == 2)
        assert worker.heard.acknowledged == {before.name: "accepted", middle.name: "accepted"}
        await run.end()
        async with resumed(tmp_path, url) as again:
            kept = [(one.arrived.name, one.arrived.first) for one in again.course.recovered.kept]
            assert sorted(kept) == [(before.name, task.first), (middle.name, task.first + 3)]
            await worker.until(lambda: len(worker.heard.welcomes) == 2)
            worker.heard.acknowledged.clear()
            worker.ask(Credit(0, 0, 1))
            for part in (rest, middle, before, rest):
                worker.send(part)
            await worker.until(lambda: len(worker.heard.acknowledged) == 3)
            assert worker.heard.acknowledged[before.name] == "duplicate"
            assert worker.heard.acknowledged[middle.name] == "duplicate"
            async with again.worker(speed=FAST) as other:
                outcome = await again.outcome()
    assert outcome.params_hash == params_hash(states_of(spec, 6)[-1].theta)
    given = set(range(task.first, task.first + task.count))
    assert not asked(other, 2) & given


async def test_a_part_counts_after_the_rest_was_handed_back(tmp_path: Path) -> None:
    """However late it comes: the token says that it was leased."""
    spec = spec_of(**EXACT)
    async with led(spec, tmp_path) as run, run.worker(busy=False, credit=1, speed=FAST) as slow:
        await slow.until(lambda: bool(slow.heard.tasks))
        task, state = slow.heard.tasks[0], states_of(spec, 0)[0]
        slow.credit = 0
        slow.ask(Credit(0, 0, 1))
        slow.send(evaluate_part(spec, state, task, 0, 3))
        slow.ask(Refusal(task.task, task.token, "handed-back", "the volunteer leaves"))
        slow.send(evaluate_part(spec, state, task, 5, 1))
        await slow.until(lambda: len(slow.heard.acknowledged) == 2)
        assert set(slow.heard.acknowledged.values()) == {"accepted"}
        async with run.worker(speed=FAST) as fast:
            outcome = await run.outcome()
    assert outcome.params_hash == params_hash(states_of(spec, 6)[-1].theta)
    done = {task.first + unit for unit in (0, 1, 2, 5)}
    left = set(range(task.first, task.first + task.count)) - done
    assert not asked(fast, 1) & done and left <= asked(fast, 1)


FORGERIES: dict[str, dict[str, Any]] = {
    "beyond the end": {"part": Part(6, 4000)},
    "before the beginning": {"part": Part(0, 4)},
    "longer lease": {"part": Part(5, 4)},
    "moved": {"first": 2**40, "part": Part(2, 4)},
    "whole": {"part": None},
    "beyond any task": {"part": Part(4096, 4096)},
    "of frames that are not its own": {"observed": b""},
}


async def test_parts_that_were_never_leased_are_refused_and_cost_their_sender_alone(
    tmp_path: Path,
) -> None:
    spec = spec_of(**EXACT)
    async with (
        led(spec, tmp_path) as run,
        run.worker(busy=False, credit=1, speed=FAST) as mallory,
        run.worker(busy=False, credit=1, speed=FAST) as honest,
    ):
        await mallory.until(lambda: bool(mallory.heard.tasks))
        await honest.until(lambda: bool(honest.heard.tasks))
        task, state = mallory.heard.tasks[0], states_of(spec, 0)[0]
        assert task.count > 4
        good = evaluate_part(spec, state, task, 2, 2)
        for case, changes in FORGERIES.items():
            bad = msgspec.structs.replace(good, **changes)
            mallory.heard.acknowledged.clear()
            mallory.send(bad)
            await mallory.until(lambda: bool(mallory.heard.acknowledged))
            assert mallory.heard.acknowledged == {bad.name: "refused"}, case
            assert mallory.heard.reasons[bad.name], case
        mallory.credit = 0
        mallory.ask(Credit(0, 0, 1))
        theirs = honest.heard.tasks[0]
        honest.cut = lambda task: [(2, task.count - 2), (0, 2)] if task == theirs else []
        honest.resume()
        outcome = await run.outcome()
    assert outcome.params_hash == params_hash(states_of(spec, 6)[-1].theta)
    assert set(honest.heard.acknowledged.values()) == {"accepted"}
