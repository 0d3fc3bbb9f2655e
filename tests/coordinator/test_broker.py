"""Which broker is opened, how it is addressed, and what a person reads when it cannot be."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from coordinator.broker import address, mosquitto, open_broker
from coordinator.broker.embedded import EmbeddedBroker
from coordinator.broker.mosquitto import MosquittoBroker, find_mosquitto
from protocol.errors import ShoalError
from tests.contract.brokers import KINDS, require
from tests.contract.raw import DEADLINE, RawClient


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Name a broker that is installed."""
    require(request.param)
    return str(request.param)


@pytest.fixture
def installed() -> None:
    """Run the test where mosquitto is installed."""
    require("mosquitto")


def no_mosquitto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(mosquitto, "_SYSTEM_FOLDERS", "")


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run ``python -m coordinator.broker`` -> the process and the URL that it printed."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "coordinator.broker", "--port", "0", *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert running.stdout is not None
        async with asyncio.timeout(DEADLINE):
            line = (await running.stdout.readline()).decode()
        found = re.fullmatch(r"shoal broker: listening on (mqtt://127\.0\.0\.1:\d+)\n", line)
        assert found, line
        yield running, found[1]
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def until_nobody_listens(url: str) -> None:
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                (await RawClient.open(url)).abort()
            except ConnectionError:
                return
            await asyncio.sleep(0.01)


async def test_auto_prefers_mosquitto_and_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(open_broker(), MosquittoBroker) == (find_mosquitto() is not None)
    no_mosquitto(monkeypatch)
    assert isinstance(open_broker("auto"), EmbeddedBroker)
    with pytest.raises(ShoalError, match=r"mosquitto.*PATH.*embedded"):
        async with open_broker("mosquitto"):
            pass


async def test_a_url_is_taken_as_it_is() -> None:
    async with open_broker("mqtt://broker.example:1883") as broker:
        assert broker.url == "mqtt://broker.example:1883"


@pytest.mark.parametrize("choice", ["rabbit", "", "http://x:1", "mqtt://", "mqtt://x:99999"])
def test_another_choice_is_refused(choice: str) -> None:
    with pytest.raises(
        ShoalError, match=re.escape(repr(choice)) + ".*(mqtt://host:1883|1 to 65535)"
    ):
        open_broker(choice)


async def test_a_port_in_use_is_named_with_rule_and_remedy(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ShoalError, match=rf"127\.0\.0\.1:{port}: another program.*0 takes"):
            async with open_broker(kind, port=port):
                pass
    async with open_broker(kind, port=port) as broker:
        assert broker.url == f"mqtt://127.0.0.1:{port}"


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid", "\0"])
def test_an_address_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(ShoalError, match=r"cannot listen on .*127\.0\.0\.1"):
        address.take(host, 0)


def test_urls_are_reachable_from_this_machine() -> None:
    assert address.url(address.inward("0.0.0.0"), 1) == "mqtt://127.0.0.1:1"
    assert address.url(address.inward("::"), 2) == "mqtt://[::1]:2"
    assert address.url(address.inward("192.0.2.1"), 3) == "mqtt://192.0.2.1:3"


async def test_listening_beyond_the_loopback(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with open_broker(kind, host="0.0.0.0") as broker:
        client = await RawClient.connect(broker.url, "c")
        await client.leave()
    assert ("install mosquitto" in caplog.text) == (kind == "embedded")


async def test_a_process_ends_with_its_standard_input(kind: str) -> None:
    async with process("--kind", kind, "--exit-with-parent") as (running, url):
        client = await RawClient.connect(url, "c")
        assert running.stdin is not None
        running.stdin.close()
        async with asyncio.timeout(DEADLINE):
            assert await running.wait() == 0
        await client.until_closed()


def test_a_process_that_cannot_listen_says_so_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = subprocess.run(
            [sys.executable, "-m", "coordinator.broker", "--port", port, "--kind", "embedded"],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(rf"error: cannot listen on 127\.0\.0\.1:{port}: .*\n", ended.stderr)


@pytest.mark.usefixtures("installed")
async def test_mosquitto_is_killed_with_its_parent_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    async with process("--kind", "mosquitto") as (running, url):
        assert list(tmp_path.glob("shoal-*/mosquitto.conf"))
        client = await RawClient.connect(url, "c")
        running.send_signal(signal.SIGKILL)
        await client.until_closed()
        await until_nobody_listens(url)
        async with asyncio.timeout(DEADLINE):
            while list(tmp_path.glob("shoal-*")):
                await asyncio.sleep(0.01)


@pytest.mark.usefixtures("installed")
def test_root_without_the_user_mosquitto_is_told_what_to_do() -> None:
    """A user namespace in which we are root, and all others are nobody."""
    alone = ("unshare", "--user", "--map-root-user")
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"]).returncode:
        pytest.skip("this system has no user namespaces for us")
    ended = subprocess.run(
        [*alone, sys.executable, "-m", "coordinator.broker", "--kind", "mosquitto"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(
        r"error: broker mosquitto: .* can't \(.*\): .*embedded broker\n", ended.stderr
    )


@pytest.mark.usefixtures("installed")
async def test_mosquitto_is_started_again_where_it_was(caplog: pytest.LogCaptureFixture) -> None:
    async with MosquittoBroker() as broker:
        first = broker.process_id
        client = await RawClient.connect(broker.url, "c")
        subprocess.run(["kill", "-KILL", str(first)], check=True)
        await client.until_closed()
        async with asyncio.timeout(DEADLINE):
            while broker.process_id in (None, first):
                await asyncio.sleep(0.01)
        again = await RawClient.connect(broker.url, "c")
        await again.ping()
    assert "mosquitto ended by itself (code -9)" in caplog.text
    await until_nobody_listens(broker.url)


@pytest.mark.usefixtures("installed")
class Ending:
    """A process that ends when it is told to, and not by a signal."""

    def __init__(self) -> None:
        self.ended = asyncio.get_running_loop().create_future()

    def terminate(self) -> None:
        """Stay."""

    kill = terminate

    async def wait(self) -> None:
        await self.ended


@pytest.mark.parametrize("steps", range(5))
async def test_who_ends_a_process_can_be_cancelled_as_it_ends(steps: int) -> None:
    """Else what keeps mosquitto running starts it again, after it was told to stop."""
    process = Ending()
    ending = asyncio.create_task(mosquitto.end(cast("asyncio.subprocess.Process", process)))
    await asyncio.sleep(0.01)
    process.ended.set_result(None)
    for _ in range(steps):
        await asyncio.sleep(0)
    if ending.cancel():
        with pytest.raises(asyncio.CancelledError):
            await ending


async def test_mosquitto_logs_to_the_directory_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    for _ in range(2):
        async with MosquittoBroker(log_directory=tmp_path / "run"):
            assert len(list((tmp_path / "temporary").rglob("mosquitto.conf"))) == 1
    assert list((tmp_path / "temporary").iterdir()) == []
    log = (tmp_path / "run" / "mosquitto.log").read_text()
    assert log.count(" running\n") == 2
    assert log.count("terminating") == 2


async def test_a_mosquitto_that_does_not_start_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "mosquitto"
    broken.write_text("#!/bin/sh\necho warming up\necho Error: no such option >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ShoalError, match=r"said 'Error: no such option'.*embedded"):
        async with MosquittoBroker():
            pass


def test_the_address_for_others_is_one_of_this_machine() -> None:
    assert address.outward("192.0.2.7") == "192.0.2.7"
    found = address.outward("0.0.0.0")
    with socket.socket() as listener:
        listener.bind((found, 0))  # only an address of this machine can be bound


def test_without_a_way_out_the_address_of_an_interface_is_taken() -> None:
    found = [
        ("lo", "127.0.0.1"),
        ("docker0", "172.17.0.1"),
        ("eth0", "169.254.3.1"),
        ("eth1", "10.0.0.7"),
        ("eth2", "10.1.0.7"),
    ]
    assert address.first_outward(found) == "10.0.0.7"
    assert address.first_outward(found[:3]) == "172.17.0.1"
    assert address.first_outward([("lo", "::1"), ("eth0", "fe80::1%eth0")]) == ""


@pytest.mark.parametrize("port", [-1, 65536, 99999])
def test_a_port_out_of_range_is_refused(port: int) -> None:
    with pytest.raises(ShoalError, match=f"{port}.*0 to 65535"):
        address.take("127.0.0.1", port)
