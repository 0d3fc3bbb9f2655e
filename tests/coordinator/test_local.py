"""The host's own workers: let in where nobody else is, believed, kept alive, gone with it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from coordinator.admission import OWN_LABEL, read_invites
from coordinator.local import (
    LONGEST_PAUSE,
    MOST_WORKERS,
    LocalWorkers,
    pause_before,
    unconfigured,
    wanted,
    way_in,
)
from coordinator.log import LogReader
from coordinator.remembering import read
from protocol.address import parse_address
from protocol.errors import ShoalError
from protocol.identity import Identity
from tests.chaos.processes import DEADLINE, Running, running

KEY = "k3xabcdefghijklmnopqrstuva"


@pytest.mark.parametrize(
    ("text", "cores", "count"),
    [
        ("auto", 8, 7),
        ("auto", 1, 1),
        ("0", 4, 0),
        ("3", 2, 3),
        (str(MOST_WORKERS), 1, MOST_WORKERS),
    ],
)
def test_how_many_are_wanted(text: str, cores: int, count: int) -> None:
    assert wanted(text, cores) == count


@pytest.mark.parametrize("text", ["", "all", "-1", "1.5", "²", str(MOST_WORKERS + 1), "9" * 4000])
def test_an_impossible_number_is_one_line_with_the_rule(text: str) -> None:
    with pytest.raises(ShoalError, match="must be auto, all cores but one, or a number from 0 to"):
        wanted(text, 8)


def test_who_ends_again_and_again_is_started_ever_more_rarely() -> None:
    pauses = [pause_before(failures) for failures in range(1, 400)]
    assert pauses == sorted(pauses) and pauses[0] == 1.0 and pauses[-1] == LONGEST_PAUSE


def test_what_a_volunteer_configured_is_not_for_them() -> None:
    environment = {"PATH": "/bin", "SHOAL_SCHEDULE": "22:00-07:00", "SHOAL_JOIN": "mqtt://other"}
    assert unconfigured(environment) == {"PATH": "/bin"}


def test_secrets_go_where_no_list_of_processes_shows_them() -> None:
    reached = parse_address(f"mqtts://ann:secret@broker:8883#.{KEY}")
    way = way_in(reached, "cartpole-v1-1a2b3c4d", KEY, "shoal-invite-x", "http://u:p@proxy:3128")
    assert str(way.address) == f"mqtts://broker:8883/cartpole-v1-1a2b3c4d#{KEY}.{KEY}"
    assert way.secrets == {
        "SHOAL_BROKER_USER": "ann",
        "SHOAL_BROKER_PASSWORD": "secret",
        "SHOAL_INVITE": "shoal-invite-x",
        "SHOAL_PROXY": "http://u:p@proxy:3128",
    }


async def test_workers_that_are_wanted_at_once_have_a_key_and_a_log_each(tmp_path: Path) -> None:
    """As somebody wants them who presses a key several times."""
    reached = parse_address(f"mqtt://127.0.0.1:1#{KEY}")
    way = way_in(reached, "cartpole-v1-1a2b3c4d", KEY, "", None)
    async with LocalWorkers(tmp_path, lambda: way, lambda line: None) as workers:
        await asyncio.gather(workers.add(), workers.add(), workers.remove(), workers.add())
        assert sorted(worker.number for worker in workers._workers) == [0, 1]
    assert len(list((tmp_path / "logs").glob("*.log"))) == 2


def worker_process(host: Running, name: str) -> int:
    """The process of a local worker, once it is there."""
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        for pid in host.pids():
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"worker" in words and name.encode() in words:
                return pid
        time.sleep(0.05)  # between looks; nothing depends on its length
    raise AssertionError(f"no worker {name}")


@pytest.mark.parametrize(
    ("broker", "admission"),
    [
        ("mosquitto", ("--admission", "invite")),
        ("embedded", ("--admission", "list", "--admit", KEY)),
    ],
)
def test_they_are_let_in_by_a_broker_with_tls_that_lets_nobody_in(
    broker: str, admission: tuple[str, ...], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = ("shoal", "host", "CartPole-v1", "--broker", broker, "--port", "0", *admission)
    command += ("--bind", "0.0.0.0", "--advertise", "127.0.0.1", "--updates", "4")
    command += ("--set", "stop.target=1e9", "--local-workers", "1", "--run-dir", str(run))
    with running(*command) as host:
        first = worker_process(host, "local-0")
        os.kill(first, signal.SIGKILL)
        host.await_line("local-0 ended (killed by SIGKILL)")
        host.await_line("4 updates are made")
        assert host.await_end() == 0, host.lines
        host.await_quiet()
    key = Identity.load(run / "logs" / "worker-0" / "worker.key")
    with LogReader(run / "log.sqlite") as log:
        rows = list(log.rows())
        assert len(rows) == 4 and all(row.workers == 1 for row in rows)
        assert read(log).trusted in ((key.worker,), ())  # kept where the run audits
    secret = (run / ("own.token" if "invite" in admission else "pool.token")).read_text().strip()
    assert not [line for line in host.lines if secret in line]
    if "invite" in admission:
        assert [one.label for one in read_invites(run)] == [OWN_LABEL]
        assert (run / "own.token").stat().st_mode & 0o777 == 0o600


def test_what_a_new_start_would_not_mend_is_not_started_again(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("")
    command = ("shoal", "host", "CartPole-v1", "--broker", "embedded", "--port", "0")
    command += ("--local-workers", "1", "--run-dir", str(tmp_path / "run"))
    home = tmp_path / "run" / "logs" / "worker-0"
    with running(*command) as host:
        os.kill(worker_process(host, "local-0"), signal.SIGSTOP)
        (home / "worker.key").write_text("no key any more\n")
        os.kill(worker_process(host, "local-0"), signal.SIGKILL)
        host.await_line("local-0 ended (exit code 2): error: ")
        assert "it is not started again" in host.await_line("local-0 ended (exit code 2)")
        host.signal(signal.SIGTERM)
        assert host.await_end() == 0
        host.await_quiet()
