from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.broker.tls import own
from protocol import messages
from protocol.address import Address, parse_address
from protocol.identity import Identity
from tests.protocol.mosquitto import Mosquitto, free_port
from tests.worker.reference import run_spec
from tests.worker.scripted import Host
from tests.worker.test_daemon import ROOT, TOYS, coordinating, join_url
from worker import machine_checks as machine
from worker.findings import Finding, healthy, lines, plain
from worker.settings import Settings
from worker.way_checks import way

GIB = 1 << 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    mosquitto = Mosquitto(tmp_path_factory.mktemp("broker"))
    mosquitto.start()
    yield mosquitto
    mosquitto.kill()


async def found_at(address: Address | str) -> list[Finding]:
    """What is found on the way there."""
    where = parse_address(address) if isinstance(address, str) else address
    settings = Settings(where, allowed=(TOYS,), lanes=1)
    return [found async for found in way(settings, Identity.generate())]


def assert_fails(found: list[Finding], what: str, words: str) -> None:
    *before, last = found
    assert all(finding.state == "ok" for finding in before), found
    assert (last.state, last.what) == ("fail", what), found
    assert words in last.text + last.remedy, last


async def test_a_way_without_obstacles_ends_at_the_hosts_welcome(broker: Mosquitto) -> None:
    host = Host(run_spec("ToyWalk-v0"))
    async with coordinating(host, broker.url) as coordinator:
        found = await found_at(join_url(broker, host))
        assert coordinator.welcomes >= 1
        assert host.hello is not None
        assert host.hello.credit == 0
        await coordinator.hears(messages.Bye)
    assert healthy(found), found
    assert [finding.what for finding in found] == [
        "name",
        "port",
        "broker",
        "run",
        "version",
        "environment",
        "topics",
        "host",
    ]
    assert "whoever is on the way can read along" in found[2].text


async def test_each_obstacle_is_named(broker: Mosquitto, tmp_path: Path) -> None:
    host = Host(run_spec("ToyWalk-v0"))
    port = free_port()
    assert_fails(await found_at(f"mqtt://127.0.0.1:{port}"), "port", f"port {port} of 127.0.0.1")
    assert_fails(await found_at("mqtt://nowhere.invalid"), "name", "check its spelling")
    assert_fails(await found_at(broker.url), "run", "none is led at")
    assert_fails(await found_at(f"{broker.url}/test-00000000"), "run", "nobody announced the run")
    async with coordinating(host, broker.url):
        line = join_url(broker, host)
        assert_fails(
            await found_at(f"{line.partition('#')[0]}#{'a' * 26}"), "key", "your join line"
        )
    async with coordinating(host, broker.url) as coordinator:
        coordinator.announce(minimum_client="99.0")
        found = await found_at(join_url(broker, host))
        assert_fails(found, "version", "takes workers of version 99.0 or later")
    unheard = Host(run_spec("Unheard-v0"))
    async with coordinating(unheard, broker.url):
        found = await found_at(join_url(broker, unheard))
        assert_fails(found, "environment", "no environment 'Unheard-v0' is registered here")


async def test_a_password_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    mosquitto = Mosquitto(tmp_path, "allow_anonymous false", f"password_file {tmp_path}/passwords")
    mosquitto.start()
    try:
        assert_fails(await found_at(mosquitto.url), "password", "give user:password@")
        wrong = mosquitto.url.replace("://", "://me:secret@")
        found = await found_at(wrong)
        assert_fails(found, "password", "user 'me'")
        assert "secret" not in str(found)
    finally:
        mosquitto.kill()


async def test_another_certificate_than_the_join_lines_is_refused(
    broker: Mosquitto, tmp_path: Path
) -> None:
    tls = own(tmp_path, ["127.0.0.1"])
    secured = Mosquitto(tmp_path, f"certfile {tls.certificate}", f"keyfile {tls.key}")
    secured.start()
    try:
        where = f"mqtts://127.0.0.1:{secured.port}"
        assert_fails(await found_at(f"{where}#.{'a' * 26}"), "TLS", "ask the host for a new line")
        assert_fails(await found_at(where), "TLS", "give the whole join line")
        plain_text = await found_at(f"mqtts://127.0.0.1:{broker.port}")
        assert [finding.state for finding in plain_text] == ["ok", "ok", "fail", "fail"]
        assert "is the address mqtt://" in plain_text[2].remedy
    finally:
        secured.kill()


async def test_topics_that_the_broker_drops_are_named(broker: Mosquitto) -> None:
    class Deaf(Host):
        """A host that hears no results of anybody."""

        def welcome(self, topic: str, payload: bytes) -> bytes:
            return super().welcome(topic, payload, heard=("status",))

    host = Deaf(run_spec("ToyWalk-v0"))
    async with coordinating(host, broker.url):
        found = await found_at(join_url(broker, host))
    assert_fails(found, "topics", "the broker drops what this worker publishes on")


# This machine.


def test_a_home_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    found, identity = machine.home(tmp_path / "home")
    assert found.state == "ok"
    assert identity.worker in found.text
    (tmp_path / "file").write_text("")
    found, _ = machine.home(tmp_path / "file" / "home")
    assert found.state == "fail"
    assert "SHOAL_HOME" in found.remedy


def test_a_token_that_others_can_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "worker.toml"
    assert machine.configuration(file, 0, secret=False).state == "ok"
    file.write_text("")
    file.chmod(0o644)
    assert machine.configuration(file, 1, secret=False).state == "ok"
    assert machine.configuration(file, 1, secret=True).state == "warn"
    file.chmod(0o600)
    assert machine.configuration(file, 1, secret=True).state == "ok"


@pytest.mark.parametrize(("allowed", "state"), [(20_000, "ok"), (100, "warn"), (32, "fail")])
def test_open_files(allowed: int, state: str) -> None:
    assert machine.open_files(allowed).state == state


@pytest.mark.parametrize(
    ("free", "processes", "state"),
    [(4 * GIB, 2, "ok"), (GIB // 2, 2, "warn"), (GIB // 10, 2, "fail")],
)
def test_memory(free: int, processes: int, state: str) -> None:
    assert machine.memory(free, processes).state == state


def test_a_clock_before_the_installation_is_wrong() -> None:
    assert machine.clock(1e9, 1e9).state == "ok"
    assert machine.clock(1e9, 1e9 + 3 * machine.A_DAY).state == "warn"


async def test_processes_can_be_started_here() -> None:
    assert (await machine.processes()).state == "ok"
    assert machine.scratch().what == "scratch"
    assert machine.packages().state in ("ok", "warn")


def test_findings_are_lines_and_json() -> None:
    found = [Finding("home", "ok", "here"), Finding("port", "fail", "closed", "open it")]
    assert lines(found) == ["ok    home           here", "fail  port           closed: open it"]
    assert plain(found)["healthy"] is False
    assert plain(found[:1])["healthy"] is True


def test_the_command_tells_programs_and_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "worker.toml").write_text(f"url = 'mqtt://127.0.0.1:{free_port()}'\n")
    ended = subprocess.run(
        [sys.executable, "-m", "shoal", "worker", "doctor", "--json", "--home", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1, ended.stderr
    told = json.loads(ended.stdout)
    assert told["healthy"] is False
    assert [one["what"] for one in told["findings"] if one["state"] == "fail"] == ["port"]
