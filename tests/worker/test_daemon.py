from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import signal
import sys
import threading
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec
import numpy as np
import pytest

from protocol import messages, noise, topics
from protocol.address import parse_address
from protocol.clock import now
from protocol.envelope import Wrapping, open_signed, plain, wrapping_of
from protocol.identity import Identity
from protocol.link import Link
from protocol.normalizer import from_bytes
from protocol.packing import WireError
from protocol.spec import RunSpec
from tests.protocol.mosquitto import Mosquitto
from tests.worker.reference import TOYS, run_spec
from tests.worker.scripted import Host
from worker import discovery
from worker.attending import NoRunError
from worker.daemon import Daemon
from worker.discovery import GONE_AFTER, Runs
from worker.evaluation import environments
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import EvaluationJob, Normalization
from worker.evaluation.lanes import Lanes
from worker.membership import UnreachableError
from worker.settings import Settings
from worker.threads import in_thread
from worker.view import View

DEADLINE = 60.0  # of what takes a few seconds on a quiet machine
ROOT = Path(__file__).parents[2]
BEAT_SECONDS = 2.0
EVERY = 1009  # as toy environments count: none of the first directions has such a seed
M = TypeVar("M", bound=messages.Message)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    mosquitto = Mosquitto(tmp_path_factory.mktemp("broker"))
    mosquitto.start()
    yield mosquitto
    mosquitto.kill()


class Impatient(Random):
    """Hardly any delay before the next attempt to connect."""

    def uniform(self, a: float, b: float) -> float:
        return 0.02


class Coordinator:
    """A scripted host on a real broker; it answers hellos and requests to catch up."""

    def __init__(self, host: Host, url: str) -> None:
        self.host = host
        self.heard: list[messages.AnyMessage] = []
        self.results_by_snapshot = False
        self.welcomes = 0
        self.priority = 1.0
        self.tried: list[str] = []
        self._news = asyncio.Event()
        self._beats_at = math.inf
        """when the next sign of life is due; it gives none before the first"""
        self.link = Link(
            parse_address(url),
            client_id=f"scripted-{host.run}",
            on_message=self.on_message,
            on_connected=lambda first: self.announce(),
            subscriptions=topics.coordinator_filters(host.run),
            random=Impatient(),
        )

    def announce(self, status: str = "running", **changes: object) -> None:
        payload = self.host.epoch(status, **changes)
        self.link.publish(topics.epoch(self.host.run), payload, qos=1, retain=True)
        self.beat()

    def beat(self) -> None:
        """A sign of life, as long as somebody waits for something: a busy machine takes longer
        than a worker waits for a silent host."""
        self._beats_at = now() + BEAT_SECONDS
        self.link.publish(topics.beat(self.host.run), self.host.beat())

    def die(self) -> None:
        """Give no more signs of life until a new announcement, as a broker tells for it."""
        self._beats_at = math.inf
        self.link.publish(topics.beat(self.host.run), self.host.beat("lost"))

    def on_message(self, topic: str, payload: bytes) -> None:
        parsed = topics.parse(topic)
        assert parsed is not None
        host = self.host
        if not payload:
            self.tried.append(topic)
        elif parsed.kind == "epoch":
            pass  # our own
        elif parsed.kind == "who":
            here = messages.Here(
                host.run, host.identity.public_key, "CartPole-v1", "running", self.priority
            )
            self.link.publish(topics.HERE, plain(here))
        elif parsed.kind == "req" and wrapping_of(payload) is Wrapping.SIGNED:
            welcome = host.welcome(topic, payload)
            self.welcomes += 1
            self.link.publish(host.inbox, welcome)
        elif wrapping_of(payload) is Wrapping.SIGNED:
            assert host.hello is not None
            context = (host.run, parsed.session or "")
            self.heard.append(open_signed(payload, host.hello.worker_key, "status", context))
        else:
            message = host.unsealed(payload)
            self.heard.append(message)
            self.serve(message)
        self._news.set()

    def serve(self, message: messages.AnyMessage) -> None:
        host = self.host
        if isinstance(message, messages.CatchUp):
            if self.results_by_snapshot:
                manifest, _ = host.snapshot()
                self.link.publish(host.inbox, host.signed("manifest", manifest))
                return
            for version in range(message.version, host.version):
                self.link.publish(host.inbox, host.update(version))
        elif isinstance(message, messages.ChunkRequest):
            server = topics.peer(host.identity.worker, "aaaaaa")
            topic = topics.snapshot(host.run, server, topics.peer(host.worker, host.session))
            _, chunks = host.snapshot()
            for index in range(message.first, min(message.first + message.count, len(chunks))):
                chunk = messages.Chunk(host.version, index, chunks[index])
                self.link.publish(topic, plain(chunk))

    def tell(self, message: messages.Message) -> None:
        self.link.publish(self.host.inbox, self.host.sealed(message))

    async def sees_work(self) -> None:
        """Returns once a task was evaluated, so that version 0 is there: hello may come before."""
        self.tell(self.host.task(first=0, count=1))
        done = await self.hears(messages.Result)
        self.tell(messages.Acknowledge((done.task,), "accepted"))

    async def leases(self, *tasks: messages.Task) -> None:
        """Send tasks; returns once they have arrived, as the answer to an impossible one tells."""
        for task in tasks:
            self.tell(task)
        self.tell(self.host.task(count=1, episodes=9))
        assert (await self.hears(messages.Refusal)).cause == "spec"

    def grow(self, versions: int = 1) -> None:
        first = self.host.version
        self.host.grow(versions)
        for version in range(first, self.host.version):
            self.link.publish(topics.update(self.host.run), self.host.update(version))

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not true():
                if now() >= self._beats_at:
                    self.beat()
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.05)

    async def hears(self, kind: type[M]) -> M:
        """The next message of a type, taken away."""

        def found() -> list[M]:
            return [message for message in self.heard if isinstance(message, kind)]

        await self.until(lambda: bool(found()))
        message = found()[0]
        self.heard.remove(message)
        return message


C = TypeVar("C", bound=Coordinator)


@asynccontextmanager
async def coordinating(
    host: Host,
    url: str,
    kind: type[C] = Coordinator,  # type: ignore[assignment]
) -> AsyncIterator[C]:
    coordinator = kind(host, url)
    running = asyncio.create_task(coordinator.link.run())
    try:
        await coordinator.until(lambda: coordinator.link.connected)
        yield coordinator
    finally:
        coordinator.link.publish(topics.epoch(host.run), b"", qos=1, retain=True)
        await coordinator.link.close()
        await running


class Lines:
    """A console that keeps everything."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.views: list[View] = []

    def say(self, text: str, warning: bool = False) -> None:
        self.lines.append(text)

    def show(self, view: View, now: float) -> None:
        self.views.append(view)

    def close(self) -> None:
        self.lines.append("closed")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@asynccontextmanager
async def volunteering(
    url: str, **options: object
) -> AsyncIterator[tuple[Daemon, asyncio.Task[int], Lines]]:
    """A daemon in this process, with real evaluation processes."""
    console = Lines()
    settings = Settings(parse_address(url), **options)  # type: ignore[arg-type]
    daemon = Daemon(settings, Identity.generate(), console, Impatient())
    running = asyncio.create_task(daemon.run())
    try:
        yield daemon, running, console
    finally:
        if not running.done():
            daemon.terminate()
        with contextlib.suppress(UnreachableError, NoRunError):
            async with asyncio.timeout(DEADLINE):
                await running
        print(console.text)
        await no_children()
        for thread in threading.enumerate():
            if thread.name == "replica":  # no test may run beside the last one's
                thread.join()


async def no_children() -> None:
    """Wait until every evaluation process of ours is gone and its end was noticed."""
    async with asyncio.timeout(DEADLINE):
        while any(map(evaluates, children_of(os.getpid()))):
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.0)


def evaluates(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return b"worker.evaluation" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def join_url(broker: Mosquitto, host: Host) -> str:
    return f"{broker.url}/{host.run}#{host.identity.fingerprint}"


def expected(host: Host, task: messages.Task) -> tuple[np.ndarray, np.ndarray, bytes]:
    """What a task gives where it is evaluated without daemon, broker and processes."""
    spec, at = host.spec, host.states[task.version]
    lanes = Lanes(spec, environments.maker(spec.environment, [TOYS]), 4)
    view = None if at.normalizer is None else Normalization.of(at.normalizer)
    job = EvaluationJob(task.kind, task.version, task.first, task.count, task.episodes, at.sigma)
    evaluation = lanes.evaluate(job, at.theta, view)
    assert evaluation.observed is not None or not spec.normalizer.enabled
    lanes.close()
    return evaluation.returns, evaluation.lengths, evaluation.observed  # type: ignore[return-value]


def assert_as_expected(host: Host, task: messages.Task, result: messages.Result) -> None:
    assert (result.task, result.token, result.version) == (task.task, task.token, task.version)
    returns, lengths = messages.result_arrays(result)
    want_returns, want_lengths, observed = expected(host, task)
    np.testing.assert_array_equal(returns, want_returns)
    np.testing.assert_array_equal(lengths, want_lengths)
    if observed is not None:
        assert from_bytes(result.observed, host.spec.environment.observation.size) == observed


# In this process.


async def test_it_joins_a_run_by_snapshot_follows_it_and_ends_with_it(broker: Mosquitto) -> None:
    host = Host(run_spec("CartPole-v1", policy={"hidden": [30_000]}, strategy={"population": 4}))
    host.grow(2)
    async with coordinating(host, broker.url) as coordinator:
        coordinator.results_by_snapshot = True
        async with volunteering(join_url(broker, host)) as (daemon, running, console):
            assert (await coordinator.hears(messages.CatchUp)).version == 0
            credit = await coordinator.hears(messages.Credit)
            assert (credit.credit, credit.version) == (2, 2)
            requests = [m for m in coordinator.heard if isinstance(m, messages.ChunkRequest)]
            assert len(requests) == 2  # of eight chunks at most
            task = host.task(count=2)
            coordinator.tell(task)
            result = await coordinator.hears(messages.Result)
            assert_as_expected(host, task, result)
            coordinator.grow()
            centre = host.task(count=3, kind="centre", acknowledged=(task.task,))
            coordinator.tell(centre)
            assert_as_expected(host, centre, await coordinator.hears(messages.Result))
            coordinator.announce("finished", reason="the target is reached")
            async with asyncio.timeout(DEADLINE):
                assert await running == 0
            assert "finished: the target is reached" in console.text
            assert daemon.session is not None and daemon.session.view(now()).accepted == 1
            assert (await coordinator.hears(messages.Bye)).reason == "left"


async def test_broker_and_coordinator_may_go_and_come_back(tmp_path: Path) -> None:
    """Results are kept meanwhile, and sent again under the new session key."""
    broker = Mosquitto(tmp_path)
    broker.start()
    host = Host(run_spec("CartPole-v1", normalizer={"enabled": True}, strategy={"population": 8}))
    async with (
        coordinating(host, broker.url) as coordinator,
        volunteering(join_url(broker, host)) as (daemon, running, console),
    ):
        await coordinator.until(lambda: coordinator.welcomes == 1)
        task = host.task(count=4)
        coordinator.tell(task)
        result = await coordinator.hears(messages.Result)
        assert_as_expected(host, task, result)
        broker.kill()
        await coordinator.until(lambda: "broker unreachable at" in console.text)
        broker.start()
        await coordinator.until(lambda: coordinator.welcomes == 2)
        assert await coordinator.hears(messages.Result) == result
        assert host.hello is not None
        assert host.hello.life >= 2, "over another connection, whose will is another"
        host.number = 2
        coordinator.announce()
        await coordinator.until(lambda: coordinator.welcomes == 3)
        assert await coordinator.hears(messages.Result) == result
        coordinator.tell(messages.Acknowledge((task.task,), "duplicate"))
        coordinator.grow(3)
        later = host.task(first=8, count=2)
        coordinator.tell(later)
        assert_as_expected(host, later, await coordinator.hears(messages.Result))
        daemon.interrupt()
        assert (await coordinator.hears(messages.Credit)).credit == 0
        coordinator.tell(messages.Acknowledge((later.task,), "accepted"))
        async with asyncio.timeout(DEADLINE):
            assert await running == 0
    broker.kill()
    view = daemon.session.view(now()) if daemon.session else View()
    assert (view.duplicate, view.accepted, view.done) == (1, 1, 2)


async def test_an_environment_that_is_not_here_is_one_line_and_exit_code_4(
    broker: Mosquitto,
) -> None:
    host = Host(run_spec("Unheard-v0"))
    async with (
        coordinating(host, broker.url),
        volunteering(join_url(broker, host)) as (_, running, console),
    ):
        async with asyncio.timeout(DEADLINE):
            assert await running == 4
        assert "Unheard-v0" in console.lines[-2]


async def test_what_nobody_foresaw_in_an_evaluation_ends_it_with_the_reason(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it stays, keeps a task that it will never answer, and takes no other."""

    async def breaks(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(Evaluators, "evaluate", breaks)
    host = Host(run_spec("CartPole-v1"))
    with pytest.raises(RuntimeError, match="unforeseen"):
        async with (
            coordinating(host, broker.url) as coordinator,
            volunteering(join_url(broker, host)) as (_, running, _),
        ):
            await coordinator.until(lambda: coordinator.welcomes > 0)
            coordinator.tell(host.task(count=1))
            async with asyncio.timeout(DEADLINE):
                await running


async def test_a_broker_that_is_not_there_ends_it_only_where_it_should_not_wait() -> None:
    url = "mqtt://127.0.0.1:1/test-00000000"
    async with volunteering(url, once=True) as (_, running, _), asyncio.timeout(DEADLINE):
        with pytest.raises(
            UnreachableError, match=r"broker unreachable at mqtt://127\.0\.0\.1:1"
        ) as e:
            await running
        assert e.value.exit_code == 5
    async with volunteering(url) as (daemon, running, console):
        async with asyncio.timeout(DEADLINE):
            while console.text.count("retrying in") < 2:
                await asyncio.sleep(0.01)
        assert "the connection" not in console.text
        daemon.interrupt()
        async with asyncio.timeout(DEADLINE):
            assert await running == 0


async def test_told_not_to_wait_it_ends_with_the_reason_of_the_only_run(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "ANSWERS_WITHIN", 0.3)
    host = Host(run_spec("Unheard-v0", name="one"))
    async with (
        coordinating(host, broker.url),
        volunteering(broker.url, once=True) as (_, running, console),
    ):
        async with asyncio.timeout(DEADLINE):
            assert await running == 4
        assert host.run in console.text
        assert "NOT checked" in console.text


async def test_without_any_run_it_says_so_and_asks_again(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "ANSWERS_WITHIN", 0.2)
    monkeypatch.setattr(discovery, "ASK_EVERY", 0.3)
    async with volunteering(broker.url, once=True) as (_, running, _), asyncio.timeout(DEADLINE):
        with pytest.raises(NoRunError, match="no run is led") as none:
            await running
    assert none.value.exit_code == 5
    host = Host(run_spec("CartPole-v1"))
    async with volunteering(broker.url) as (daemon, _, console), asyncio.timeout(DEADLINE):
        while "no run is led" not in console.text:
            await asyncio.sleep(0.01)
        assert daemon.view().idle_because == "no run is here; asking again"
        async with coordinating(host, broker.url) as coordinator:
            await coordinator.until(lambda: coordinator.welcomes == 1)
            await coordinator.sees_work()


def test_only_runs_that_belong_to_their_key_are_believed() -> None:
    host = Host(run_spec())
    here = messages.Here(host.run, host.identity.public_key, "CartPole-v1", "running")
    runs = Runs(None)
    with pytest.raises(WireError):
        runs.hear(plain(messages.Here("other-00000000", here.host_key, "X", "running")))
    with pytest.raises(WireError):
        runs.hear(plain(messages.Here("\x1b[31m", here.host_key, "X", "running")))
    with pytest.raises(WireError):
        Runs("a" * 26).hear(plain(here))
    assert not runs.open
    runs.hear(plain(messages.Here(host.run, here.host_key, "CartPole-v1", "finished")))
    assert not runs.open
    runs.heard(plain(here), now=0.0)
    runs.heard(plain(here), now=1.0)
    runs.heard(plain(messages.Here(host.run, here.host_key, "CartPole-v1", "finished")), now=1.0)
    assert runs.open == [here]
    runs.expire(GONE_AFTER)
    assert runs.open == [here]
    runs.expire(GONE_AFTER + 1.1)
    assert not runs.open


async def test_work_in_a_thread_leaves_the_loop_free() -> None:
    turned = threading.Event()

    async def turn() -> None:
        for _ in range(10):
            await asyncio.sleep(0.001)
        turned.set()

    turning = asyncio.create_task(turn())
    assert await in_thread(lambda: turned.wait(DEADLINE) and 5) == 5
    await turning
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)


# As a process of its own.


def hanging(gate: Path) -> RunSpec:
    """A run whose cursed episodes wait for a file."""
    kwargs = {"trouble": "hang", "every": EVERY, "gate": str(gate)}
    return run_spec("ToyWalk-v0", environment={"kwargs": kwargs}, strategy={"population": 65_536})


def cursed(spec: RunSpec, after: int) -> int:
    """The next direction whose episode hangs."""
    direction = after
    while noise.episode_seed(spec.seed, direction * 65536) % EVERY:
        direction += 1
    return direction


@asynccontextmanager
async def process(url: str, home: Path, *options: str) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", "worker", url, "--home", str(home), "--nice", "0"]
    command += ["--lanes", "16"]  # to try out how many suit takes long
    started = await asyncio.create_subprocess_exec(
        *command, "--allow-module", TOYS, *options, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=STDOUT
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


async def ends(started: Process) -> tuple[int, str]:
    """(exit code, everything that it wrote)."""
    async with asyncio.timeout(DEADLINE):
        await started.wait()
        assert started.stdout is not None
        output = (await started.stdout.read()).decode()
    assert started.returncode is not None
    return started.returncode, output


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


async def test_interrupts_finish_first_and_hand_back_second(
    broker: Mosquitto, tmp_path: Path
) -> None:
    host = Host(hanging(tmp_path / "gate"))
    async with (
        coordinating(host, broker.url) as coordinator,
        process(join_url(broker, host), tmp_path) as started,
    ):
        await coordinator.until(lambda: coordinator.welcomes == 1)
        await coordinator.sees_work()
        bad = cursed(host.spec, 0)
        held = [host.task(first=bad, count=1), host.task(first=0, count=1, version=1)]
        await coordinator.leases(*held)
        (child,) = children_of(started.pid)
        started.send_signal(signal.SIGINT)
        assert (await coordinator.hears(messages.Credit)).credit == 0
        waiting = await coordinator.hears(messages.Refusal)
        assert (waiting.task, waiting.cause) == (held[1].task, "handed-back")
        started.send_signal(signal.SIGINT)
        running = await coordinator.hears(messages.Refusal)
        assert (running.task, running.cause) == (held[0].task, "handed-back")
        code, output = await ends(started)
        assert code == 0
        assert "Ctrl-C again hands it back" in output
        assert "handed 1 task back and left" in output
        assert "Traceback" not in output
        assert (await coordinator.hears(messages.Bye)).reason == "left"
        assert not Path(f"/proc/{child}").exists()


async def test_what_is_finished_of_a_task_is_sent_before_it_is_handed_back(
    broker: Mosquitto, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    kwargs = {"trouble": "slow", "every": EVERY, "gate": str(gate), "lasts": 1, "slow_steps": 900}
    environment = {"kwargs": kwargs}
    host = Host(
        run_spec(
            "ToyWalk-v0",
            environment=environment,
            strategy={"population": 65_536},
            normalizer={"enabled": True},
        )
    )
    async with (
        coordinating(host, broker.url) as coordinator,
        process(join_url(broker, host), tmp_path) as started,
    ):
        await coordinator.until(lambda: coordinator.welcomes == 1)
        await coordinator.sees_work()
        task = host.task(first=cursed(host.spec, 0) - 5, count=8)
        coordinator.tell(task)
        await coordinator.until(gate.exists)  # all but one are over, which goes on and on
        started.terminate()
        part = await coordinator.hears(messages.Result)
        assert part.part == messages.Part(0, 3)
        assert_as_expected(host, msgspec.structs.replace(task, count=5), part)
        refusal = await coordinator.hears(messages.Refusal)
        assert (refusal.task, refusal.cause) == (task.task, "handed-back")
        code, output = await ends(started)
        assert code == 0
        assert "handed 1 task back and left" in output


async def test_a_killed_child_costs_no_task_and_a_finished_one_is_still_answered(
    broker: Mosquitto, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    host = Host(hanging(gate))
    async with (
        coordinating(host, broker.url) as coordinator,
        process(
            join_url(broker, host), tmp_path, "--log-format=json", "--cpu-share", "50%"
        ) as started,
    ):
        await coordinator.until(lambda: coordinator.welcomes == 1)
        await coordinator.sees_work()
        bad = cursed(host.spec, 0)
        task = host.task(first=bad, count=1)
        await coordinator.leases(task)
        (child,) = children_of(started.pid)
        os.kill(child, signal.SIGKILL)
        started.send_signal(signal.SIGINT)
        assert (await coordinator.hears(messages.Credit)).credit == 0
        gate.touch()
        result = await coordinator.hears(messages.Result)
        assert (result.task, result.failed) == (task.task, ())
        coordinator.tell(messages.Acknowledge((task.task,), "accepted"))
        code, output = await ends(started)
        assert code == 0
        assert "every result is answered for" in output
        assert re.search(r"steps/s \(50 % of 1 core, \d+ lanes? and up to ", output)
        assert host.hello is not None
        assert host.hello.device == "cpu x1 at 50 %"


async def test_it_leaves_while_evaluation_still_starts(broker: Mosquitto, tmp_path: Path) -> None:
    never = {"trouble": "hang", "every": 1}
    host = Host(run_spec("ToyWalk-v0", environment={"kwargs": never}))
    async with (
        coordinating(host, broker.url) as coordinator,
        process(join_url(broker, host), tmp_path, "--exit-with-parent") as first,
        process(join_url(broker, host), tmp_path) as second,
    ):
        for started in (first, second):
            assert started.stdout is not None
            async with asyncio.timeout(DEADLINE):
                while b"led by" not in (line := await started.stdout.readline()):
                    assert line, "ended without a leader"
        assert first.stdin is not None
        first.stdin.close()
        second.terminate()
        for started in (first, second):
            code, output = await ends(started)
            assert code == 0
            assert "Traceback" not in output
        assert coordinator.welcomes == 0
