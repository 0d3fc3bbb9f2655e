"""What a second terminal asks of a worker that runs: over its socket, and by `shoal worker`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import shoal
from protocol import messages
from protocol.command import run
from tests.protocol.mosquitto import Mosquitto
from tests.worker.reference import TOYS, run_spec
from tests.worker.scripted import Host
from tests.worker.test_daemon import (
    DEADLINE,
    coordinating,
    ends,
    join_url,
    process,
    volunteering,
)
from worker import control_client, control_server, steering
from worker.control import Answer, ControlError, Report, Request, answer, line_of, request
from worker.control_server import ControlServer
from worker.evaluation.memory import EMPTY
from worker.permission import Terms, least_memory, memory_of_child
from worker.places import Neighbour, take
from worker.schedule import parse
from worker.view import View
from worker.wishes import NOTHING

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sockets of Unix")
REPORT = Report("worker", 7, "abc", "run-1", "mqtt://host:1", 1.5, View(idle_because="why"))


@pytest.mark.parametrize(
    "said",
    [Request("status"), Request("pause", 60.0), Request("pause")],
)
def test_requests_are_read_as_they_were_written(said: Request) -> None:
    assert request(line_of(said)) == said


def test_answers_are_read_as_they_were_written() -> None:
    for said in (Answer("text"), Answer(error="no"), Answer(report=REPORT), Answer(size=5)):
        assert answer(line_of(said)) == said


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\n",
        b"[]",
        b"{}",
        b'{"word": "reboot"}',
        b'{"word": "pause", "seconds": 0}',
        b'{"word": "pause", "seconds": 1e300}',
        b'{"word": "pause", "seconds": "long"}',
        b'{"word": "status", "more": 1}',
        b"[" * 9000,
    ],
)
def test_what_is_no_request_is_refused(line: bytes) -> None:
    with pytest.raises(ControlError, match="not a request of `shoal worker`"):
        request(line)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(line: bytes) -> None:
    for read in (request, answer):
        with contextlib.suppress(ControlError):
            read(line)


# The socket.


@contextlib.asynccontextmanager
async def serving(
    folder: Path, data: bytes = b""
) -> AsyncIterator[tuple[Neighbour, ControlServer]]:
    """A server that says back what it was asked."""

    async def answering(asked: Request) -> tuple[Answer, bytes]:
        return Answer(asked.word, size=len(data)), data

    place = Neighbour(folder, "worker", os.getpid())
    server = ControlServer(place.socket, answering)
    await server.open()
    try:
        yield place, server
    finally:
        await server.close()


async def ask(place: Neighbour, wanted: Request) -> tuple[Answer, bytes]:
    return await asyncio.to_thread(control_client.ask, place, wanted)


async def test_a_socket_answers_its_owner_alone_however_long_its_path(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    data = os.urandom(3 * control_server.PIECE + 5)
    async with serving(folder, data) as (place, _):
        assert place.socket.stat().st_mode & 0o777 == 0o600
        assert await ask(place, Request("policy")) == (Answer("policy", size=len(data)), data)


async def test_who_says_nothing_or_nonsense_or_too_much_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "PATIENCE", 0.3)
    async with serving(tmp_path) as (place, _):
        with contextlib.ExitStack() as stack:
            for line in (b"", b"\xff\n", b"x" * 200_000, b'{"word": "reboot"}\n'):
                for _ in range(4):
                    client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                    with control_server.reachable(place.socket) as path:
                        client.connect(path)
                    client.settimeout(0.1)
                    with contextlib.suppress(OSError):
                        client.sendall(line)
            async with asyncio.timeout(DEADLINE):
                while True:
                    with contextlib.suppress(ControlError):
                        assert (await ask(place, Request("status")))[0] == Answer("status")
                        break
                    await asyncio.sleep(0.05)


async def test_a_worker_that_hangs_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(control_client, "PATIENCE", 0.3)
    with socket.socket(socket.AF_UNIX) as hanging:
        first, second = take(tmp_path, "a"), take(tmp_path, "b")
        assert first is not None and second is not None
        hanging.bind(str(first.socket))
        hanging.listen()

        async def answering(asked: Request) -> tuple[Answer, bytes]:
            return Answer(report=structs.replace(REPORT, name="b")), b""

        server = ControlServer(second.socket, answering)
        await server.open()
        asked = ["worker", "status", "--home", str(tmp_path)]
        code = await asyncio.to_thread(run, shoal.app, asked)
        await server.close()
    said = capsys.readouterr()
    assert code == 2 and "the worker a (pid" in said.err and "b (pid 7): in run-1" in said.out


async def test_one_client_too_many_is_turned_away_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as (place, server):
        with contextlib.ExitStack() as stack:
            for _ in range(control_server.MOST_CLIENTS):
                client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                with control_server.reachable(place.socket) as path:
                    client.connect(path)
            async with asyncio.timeout(DEADLINE):
                while len(server._clients) < control_server.MOST_CLIENTS:
                    await asyncio.sleep(0.01)
            with pytest.raises(ControlError, match="has too many to answer at this moment"):
                await ask(place, Request("status"))


async def test_who_does_not_read_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "PATIENCE", 0.2)
    async with serving(tmp_path, bytes(30 << 20)) as (place, server):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            with control_server.reachable(place.socket) as path:
                client.connect(path)
            client.sendall(line_of(Request("policy")))
            async with asyncio.timeout(DEADLINE):
                while not server._clients:
                    await asyncio.sleep(0.01)
                while server._clients:
                    await asyncio.sleep(0.01)
            client.settimeout(DEADLINE)
            got = 0
            while piece := await asyncio.to_thread(client.recv, 1 << 20):
                got += len(piece)
            assert got < 30 << 20


async def test_what_can_not_be_kept_is_not_done_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = take(tmp_path, "full")
    assert place is not None
    (place.folder / "full.json").mkdir()

    async def answering(asked: Request) -> tuple[Answer, bytes]:
        place.keep(NOTHING.pause(None, 1.0))
        return Answer(asked.word), b""

    server = ControlServer(place.socket, answering)
    await server.open()
    (there,) = control_client.running(tmp_path, None, None)
    with pytest.raises(ControlError, match=r"the worker full says: .*full.json can't be written"):
        await ask(there, Request("pause"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        with control_server.reachable(place.socket) as path:
            silent.connect(path)
        while not server._clients:
            await asyncio.sleep(0.01)
        await server.close()
    place.leave()
    assert "Traceback" not in caplog.text


async def test_a_worker_that_ended_is_told_of_in_a_line(tmp_path: Path) -> None:
    async with serving(tmp_path) as (place, _):
        pass
    with pytest.raises(ControlError, match=r"the worker worker \(pid \d+\) does not answer"):
        await ask(place, Request("status"))


async def test_half_an_answer_is_none(tmp_path: Path) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(line_of(Answer(size=100)) + b"half")
        writer.close()

    place = Neighbour(tmp_path, "worker", 1)
    with control_server.reachable(place.socket) as path:
        server = await asyncio.start_unix_server(half, path)
    async with server:
        with pytest.raises(ControlError, match="the worker ended after 4 of 100 bytes: ask again"):
            await ask(place, Request("policy"))


# The commands, and a real worker.


async def shoal_worker(capsys: pytest.CaptureFixture[str], home: Path, *words: str) -> str:
    """What `shoal worker` prints."""
    capsys.readouterr()
    code = await asyncio.to_thread(run, shoal.app, ["worker", *words, "--home", str(home)])
    said = capsys.readouterr()
    assert code == 0, said.err
    return said.out


async def test_a_worker_is_asked_and_told_from_a_second_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = Mosquitto(tmp_path)
    broker.start()
    home = tmp_path / "home"
    spec = run_spec("ToyWalk-v0", strategy={"population": 16}, normalizer={"enabled": True})
    host = Host(spec)
    try:
        async with coordinating(host, broker.url) as coordinator:
            async with process(join_url(broker, host), home, "--name", "Ann's") as started:
                await coordinator.until(lambda: coordinator.welcomes == 1)
                await coordinator.sees_work()
                said = json.loads(await shoal_worker(capsys, home, "status", "--json"))
                assert (said["name"], said["pid"], said["run"]) == ("Ann-s", started.pid, host.run)
                assert said["view"]["done"] == 1
                plain = await shoal_worker(capsys, home, "status", "--pid", str(started.pid))
                assert f"in {host.run} at {broker.url}" in plain and "1 done, 0 running" in plain

                told = await shoal_worker(capsys, home, "pause", "--for", "2h", "--name", "Ann's")
                assert told.startswith(f"Ann-s (pid {started.pid}): paused by you until ")
                assert (await coordinator.hears(messages.Credit)).credit == 0
                coordinator.grow(2)
                await coordinator.until(lambda: view_of(home).version == 2)
                assert "paused by you until" in await shoal_worker(capsys, home, "status")
                assert await shoal_worker(capsys, home, "resume") == (
                    f"Ann-s (pid {started.pid}): takes tasks\n"
                )
                assert (await coordinator.hears(messages.Credit)).credit == 2

                kept = tmp_path / "kept" / "mine.safetensors"
                kept.parent.mkdir()
                said_of = await shoal_worker(capsys, home, "policy", "--save", str(kept))
                assert said_of == (
                    f"{kept} has the policy of version 2 of {host.run}: shoal play {kept}\n"
                )
                policy = shoal.load_policy(kept, allow_modules=["tests.worker.toy_environments"])
                assert policy.version == 2 and policy.spec == spec
                policy(policy.environment().reset(seed=1)[0])

                await shoal_worker(capsys, home, "pause")
                assert (await coordinator.hears(messages.Credit)).credit == 0
                told = await shoal_worker(capsys, home, "leave")
                assert "hands back what it has not finished, and leaves" in told
                assert (await ends(started))[0] == 0
            async with process(join_url(broker, host), home, "--name", "Ann's") as started:
                # It says hello with no credit, and takes nothing before it is told to.
                await coordinator.until(lambda: coordinator.welcomes == 2)
                assert host.hello is not None and host.hello.credit == 0
                await shoal_worker(capsys, home, "resume")
                await coordinator.sees_work()
                await shoal_worker(capsys, home, "finish")
                code, output = await ends(started)
                assert code == 0
                assert "paused by you, since" in output
                assert "told to finish: left; every result is answered for" in output
            async with process(join_url(broker, host), home, "--name", "Ann's") as started:
                code, output = await ends(started)
                assert code == 0
                assert "begins again after `shoal worker resume --name Ann-s`" in output
            assert await shoal_worker(capsys, home, "resume") == (
                "Ann-s: works when it is started again\n"
            )
            assert [path.name for path in (home / "workers").iterdir()] == ["Ann-s.lock"]
    finally:
        broker.kill()


def view_of(home: Path) -> View:
    """What a worker says of itself."""
    (place,) = control_client.running(home, None, None)
    said, _ = control_client.ask(place, Request("status"))
    assert said.report is not None
    return said.report.view


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["status"], "no worker runs with the home"),
        (["resume"], "no worker runs with the home"),
        (["pause", "--for", "long"], "--for 'long': must be a time of up to a year"),
        (["policy", "--save", "mine.bin"], "end its name in .safetensors"),
        (["finish", "--pid", "0"], "Invalid value for '--pid'"),
    ],
)
def test_a_wrong_use_is_one_line(
    words: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shoal.app, ["worker", *words, "--home", str(tmp_path)]) in (1, 2)
    said = capsys.readouterr()
    assert said.out == ""
    assert error in said.err
    assert len(said.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


# The flags, and a real worker.


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--schedule", "night"], "--schedule 'night': 'night' is neither days nor hours"),
        (["--until", "tomorrow"], "--until 'tomorrow': must be a time such as 18:30"),
        (["--until", "2020-01-01"], "lies in the past: give a moment to come"),
        (["--exit-when-idle", "never"], "--exit-when-idle 'never': must be a time of up to a year"),
        (["--memory", "100MiB"], "--memory '100MiB': must be at least 280 MiB"),
        (["--max-tasks", "0"], "Invalid value for '--max-tasks'"),
        (["--max-temperature", "500"], "Invalid value for '--max-temperature'"),
    ],
)
def test_a_term_that_says_nothing_is_one_line(
    flags: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ["--home", str(tmp_path)]
    assert run(shoal.app, ["join", "mqtt://127.0.0.1:1", *home, "--nice", "0", *flags]) == 2
    said = capsys.readouterr()
    assert error in said.err
    assert len(said.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


async def test_a_worker_pauses_and_leaves_on_its_volunteers_terms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering, "GOVERN_SECONDS", 0.02)
    broker = Mosquitto(tmp_path)
    broker.start()
    host = Host(run_spec("ToyWalk-v0", strategy={"population": 16}))
    now = datetime.now()
    closed = f"{now + timedelta(hours=2):%H:%M}-{now + timedelta(hours=3):%H:%M}"
    # This process is the worker, and holds whatever the tests before this one left in it.
    ours = psutil.Process().memory_info().rss
    memory = ours + least_memory(1) + (1 << 30)
    terms = Terms(schedule=parse(closed), most_tasks=1, memory=memory)
    options = {"terms": terms, "allowed": (TOYS,), "lanes": 16}
    try:
        async with (
            coordinating(host, broker.url) as coordinator,
            volunteering(join_url(broker, host), **options) as (daemon, running, console),
        ):
            await coordinator.until(lambda: coordinator.welcomes == 1)
            assert host.hello is not None and host.hello.credit == 0
            await coordinator.until(
                lambda: daemon.view().idle_because == f"paused: outside {closed}"
            )
            (member,) = daemon.members.values()
            evaluators = member.evaluating.evaluators
            assert evaluators is not None
            await coordinator.until(lambda: daemon._steering._readings.memory > 0)
            assert evaluators.memory_limit == memory_of_child(memory, daemon._steering._readings, 1)
            assert EMPTY <= evaluators.memory_limit < memory
            daemon._steering._governor._permission.terms = replace(terms, schedule=None)
            assert (await coordinator.hears(messages.Credit)).credit == 1
            await coordinator.sees_work()
            assert await running == 0
            assert "--max-tasks 1 is reached: left; every result is answered for" in console.lines
    finally:
        broker.kill()
