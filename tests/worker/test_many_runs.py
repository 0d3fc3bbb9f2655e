"""One worker that was told no run serves all that it finds at a broker, and can."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol import messages, topics
from protocol.envelope import plain
from protocol.identity import Identity, run_id
from tests.protocol.mosquitto import Mosquitto
from tests.worker.reference import run_spec
from tests.worker.scripted import Host
from tests.worker.test_daemon import (
    DEADLINE,
    Coordinator,
    Lines,
    assert_as_expected,
    children_of,
    coordinating,
    ends,
    process,
    volunteering,
)
from tests.worker.test_daemon import evaluates as is_evaluating
from worker import attendance, attending, discovery
from worker.attendance import MOST
from worker.control import ControlError
from worker.daemon import Daemon
from worker.permission import Terms
from worker.shares import Shares
from worker.sharing import SHORTEST
from worker.wishes import NOTHING


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    mosquitto = Mosquitto(tmp_path_factory.mktemp("broker"))
    mosquitto.start()
    yield mosquitto
    mosquitto.kill()


def host_of(name: str, environment: str = "CartPole-v1", population: int = 65_536) -> Host:
    spec = run_spec(environment, name=name, strategy={"population": population})
    return Host(spec, seed=sum(name.encode()) % 250)


async def evaluates(coordinator: Coordinator, first: int = 0) -> None:
    """Lease a task of the run, and see it done as it must be."""
    task = coordinator.host.task(first=first, count=2)
    coordinator.tell(task)
    assert_as_expected(coordinator.host, task, await coordinator.hears(messages.Result))
    coordinator.tell(messages.Acknowledge((task.task,), "accepted"))


async def has_welcomed(coordinator: Coordinator, count: int = 1) -> None:
    await coordinator.until(lambda: coordinator.welcomes >= count)


class Output:
    """What a process writes, line by line."""

    def __init__(self, started: Process) -> None:
        self.lines: list[str] = []
        self._started = started

    async def says(self, words: str) -> str:
        """The first line with these words, which may have come before."""
        async with asyncio.timeout(DEADLINE):
            while not (found := [line for line in self.lines if words in line]):
                assert self._started.stdout is not None
                line = (await self._started.stdout.readline()).decode()
                assert line, f"ended without {words!r}: {''.join(self.lines)}"
                self.lines.append(line)
        return found[0]


async def status(home: Path) -> Any:
    """What `shoal worker status` tells of the only worker there."""
    asking = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal", "worker", "status", "--home", str(home), "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await asyncio.wait_for(asking.communicate(), DEADLINE)
    return json.loads(said)


async def test_it_serves_two_runs_one_ends_and_a_third_comes(
    broker: Mosquitto, tmp_path: Path
) -> None:
    one, two, third = host_of("one"), host_of("two"), host_of("third")
    missing = host_of("missing", "Unheard-v0")
    options = ("--share", "two=1.5,refused=0", "--log-format", "plain")
    async with (
        coordinating(one, broker.url) as first,
        coordinating(two, broker.url) as second,
        coordinating(missing, broker.url),
        coordinating(host_of("refused"), broker.url) as refused,
        process(broker.url, tmp_path, *options) as started,
    ):
        second.priority = 2.0
        output = Output(started)
        for coordinator in (first, second):
            await has_welcomed(coordinator)
        await asyncio.gather(evaluates(first), evaluates(second))
        line = await output.says("no environment 'Unheard-v0'")
        assert missing.run in line
        told = await status(tmp_path)
        shares = {run["run"]: run["wanted"] for run in told["view"]["runs"]}
        assert shares == {one.run: 0.25, two.run: 0.75}
        assert told["view"]["done"] == 2
        first.announce("finished", reason="the target is reached")
        await output.says(f"{one.run}: the run {one.run} is finished: the target is reached")
        async with coordinating(third, broker.url) as later:
            await has_welcomed(later)
            await asyncio.gather(evaluates(later), evaluates(second, first=2))
        assert refused.welcomes == 0
        started.terminate()
        code, rest = await ends(started)
        assert code == 0
        assert "Traceback" not in rest
        said = "".join([*output.lines, rest])
        assert said.count("no environment") == 1
        assert f"{two.run}, with weight 3: share 1.5 times the host's 2" in said
        assert said.count("with weight") == 1, "of the others nobody said anything"


async def test_an_idle_worker_waits_for_runs_and_leaves_when_told_to(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "ANSWERS_WITHIN", 0.1)
    monkeypatch.setattr(discovery, "ASK_EVERY", 0.2)
    host = host_of("late")
    async with volunteering(broker.url) as (daemon, running, console):
        async with asyncio.timeout(DEADLINE):
            while "no run is led" not in console.text:
                await asyncio.sleep(0.01)
        assert daemon.view().idle_because == attending.IDLE
        async with coordinating(host, broker.url) as coordinator:
            await has_welcomed(coordinator)
            await evaluates(coordinator)
            coordinator.announce("stopped", reason="enough")
            await coordinator.until(lambda: not daemon.members)
        assert daemon.view().done == 1, "what ended runs had counts"
        daemon.interrupt()
        async with asyncio.timeout(DEADLINE):
            assert await running == 0
    terms = Terms(exit_when_idle=0.5)
    async with volunteering(broker.url, terms=terms) as (_, running, console):
        async with asyncio.timeout(DEADLINE):
            assert await running == 0
        assert "idle for" in console.text


@asynccontextmanager
async def several(broker: Mosquitto, *names: str) -> AsyncIterator[list[Coordinator]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(coordinating(host_of(name), broker.url))
            for name in names
        ]


@asynccontextmanager
async def two_served(broker: Mosquitto) -> AsyncIterator[tuple[list[Coordinator], Daemon, Lines]]:
    """Two runs of which a worker has evaluated something."""
    async with (
        several(broker, "alpha", "beta") as coordinators,
        volunteering(broker.url) as (daemon, _, console),
    ):
        for coordinator in coordinators:
            await has_welcomed(coordinator)
            await evaluates(coordinator)
        yield coordinators, daemon, console


async def test_a_pause_is_of_all_runs_and_said_once_a_policy_of_one(broker: Mosquitto) -> None:
    async with two_served(broker) as (coordinators, daemon, console):
        daemon._steering._governor.wishes = NOTHING.pause(None, time.time())
        await coordinators[0].until(lambda: bool(daemon.view().paused))
        for coordinator in coordinators:
            while (await coordinator.hears(messages.Credit)).credit:
                pass
        assert [line for line in console.lines if "paused" in line] == [daemon.view().paused]
        with pytest.raises(ControlError, match="choose one with --run"):
            await daemon.policy("")
        with pytest.raises(ControlError, match="choose one with --run"):
            await daemon.policy("gamma")
        alpha = coordinators[0].host.run
        for name in ("alpha", alpha):
            text, data = await daemon.policy(name)
            assert text == f"version 0 of {alpha}" and data


async def test_what_a_run_had_is_told_while_its_task_is_at_work(broker: Mosquitto) -> None:
    async with two_served(broker) as ((alpha, _), daemon, _):
        run = alpha.host.run

        def had() -> float:
            return next(each.core_seconds for each in daemon.view().runs if each.run == run)

        before, work = had(), daemon.members[run].session.workload
        assert work is not None
        alpha.tell(alpha.host.task(first=4, count=4096))
        await alpha.until(lambda: bool(work.leases.running) and had() > before)


async def test_a_run_that_is_over_begins_no_task_more_and_its_processes_are_kept(
    broker: Mosquitto,
) -> None:
    async with two_served(broker) as ((alpha, _), daemon, _):
        run = alpha.host.run
        await alpha.leases(*(alpha.host.task(first=4 * COUNT * n, count=COUNT) for n in range(6)))
        member = daemon.members[run]
        assert member.session.ready, "some wait for those that are at work"
        alpha.announce("finished", reason="the target is reached")
        await alpha.until(lambda: run not in daemon.members)
        assert daemon._attending is not None
        assert daemon._attending._spares.take(alpha.host.spec) is member.evaluating.evaluators
        await member.evaluating.close()


async def test_runs_for_which_there_is_no_room_take_turns(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attending, "Attendance", lambda: attendance.Attendance(1))
    monkeypatch.setattr(attendance, "IDLE_FOR", 0.3)
    monkeypatch.setattr(attendance, "PARKED_FOR", 0.3)
    monkeypatch.setattr(attending, "EPOCH_WITHIN", DEADLINE)
    async with (
        several(broker, "alpha", "beta") as coordinators,
        volunteering(broker.url) as (daemon, _, console),
    ):
        for welcomes in (1, 2):
            for coordinator in coordinators:
                await has_welcomed(coordinator, welcomes)
                assert len(daemon.members) <= 1
        for coordinator in coordinators:
            assert (await coordinator.hears(messages.Bye)).reason == "left"
            assert f"{coordinator.host.run}: makes room for others" in console.lines


async def test_those_who_only_say_that_they_are_here_keep_nobody_from_work(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attending, "EPOCH_WITHIN", 0.5)
    spec = run_spec(name="flood")
    keys = [Identity(number.to_bytes(32, "big")).public_key for number in range(1, 200)]
    async with volunteering(broker.url) as (daemon, _, _), several(broker, "true") as (real,):
        for key in keys:
            here = messages.Here(run_id(spec.name, key), key, "CartPole-v1", "running", 100.0)
            real.link.publish(topics.HERE, plain(here))
            real.link.publish(topics.HERE, b"nonsense")
        await real.until(lambda: len(daemon.members) == MOST)
        assert len(list(filter(is_evaluating, children_of(os.getpid())))) <= 1
        await has_welcomed(real)
        await evaluates(real)


async def test_max_tasks_hold_for_all_runs_together(broker: Mosquitto) -> None:
    terms = Terms(most_tasks=3)
    async with (
        several(broker, "alpha", "beta") as coordinators,
        volunteering(broker.url, terms=terms) as (daemon, running, console),
    ):
        alpha, beta = coordinators
        for coordinator in coordinators:
            await has_welcomed(coordinator)
        for first in (0, 2):
            await evaluates(alpha, first)
        await evaluates(beta)
        async with asyncio.timeout(DEADLINE):
            assert await running == 0
        assert "--max-tasks 3 is reached" in console.text
        assert daemon.view().done == 3
        for coordinator in coordinators:
            assert (await coordinator.hears(messages.Bye)).reason == "left"


COUNT = 200
"""Directions of a task, which is much shorter than a quantum."""


class Busy(Coordinator):
    """A host that always has work: a task for each that is done, as fast as it can."""

    counted = 0

    def serve(self, message: messages.AnyMessage) -> None:
        super().serve(message)
        if isinstance(message, messages.Result):
            self.counted += message.count
            self.tell(messages.Acknowledge((message.task,), "accepted"))
            self.more()

    def more(self) -> None:
        self.first = getattr(self, "first", 0) + COUNT
        self.tell(self.host.task(first=self.first, count=COUNT))


async def test_runs_that_have_work_get_their_shares_of_a_worker(broker: Mosquitto) -> None:
    names = ("big", "small", "tiny")
    hosts = [host_of(name) for name in names]
    async with AsyncExitStack() as stack:
        busy = [
            await stack.enter_async_context(coordinating(host, broker.url, Busy)) for host in hosts
        ]
        options = {"shares": Shares({"big": 2.0}), "lanes": 16}
        daemon, running, _ = await stack.enter_async_context(volunteering(broker.url, **options))
        for coordinator in busy:
            await has_welcomed(coordinator)
        for coordinator in busy:
            for _ in range(2):
                coordinator.more()
        await busy[0].until(lambda: all(coordinator.counted for coordinator in busy))

        def had() -> list[float]:
            seconds = {run.run: run.core_seconds for run in daemon.view().runs}
            return [seconds[host.run] for host in hosts]

        before = had()
        await busy[0].until(lambda: sum(had()) >= sum(before) + 40 * SHORTEST)
        parts = [now - then for now, then in zip(had(), before, strict=True)]
        assert [part / sum(parts) for part in parts] == pytest.approx([0.5, 0.25, 0.25], abs=0.1)
        daemon.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(running), DEADLINE)
