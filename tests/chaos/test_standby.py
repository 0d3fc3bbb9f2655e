"""A standby takes a killed host's place; the host comes back and follows; the hash is the same."""

from __future__ import annotations

import signal
import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path

import httpx

from protocol.identity import Identity
from tests.chaos.processes import (
    DEADLINE,
    await_updates,
    join_url,
    running,
    undisturbed_hash,
    worker,
)
from tests.protocol.mosquitto import Mosquitto

UPDATES = 24
RUN = ("CartPole-v1", "--seed", "5", "--updates", str(UPDATES), "--normalize")
RUN += ("--set", "stop.target=1e9", "--quorum", "1", "--max-staleness", "0")
RUN += ("--set", "environment.max_steps=60")
SMALL_TASKS = ("--set", "pool.task_seconds=0.01", "--set", "pool.minimum_task_seconds=0")


def history(run_dir: Path) -> list[bytes]:
    """The signed updates that the log holds."""
    with closing(sqlite3.connect(run_dir / "log.sqlite")) as database:
        rows = database.execute("SELECT payload FROM updates ORDER BY version").fetchall()
        return [payload for (payload,) in rows]


def await_history(run_dir: Path, count: int) -> None:
    until = time.monotonic() + DEADLINE
    while len(history(run_dir)) < count:
        assert time.monotonic() < until, f"no {count} updates in {run_dir}"
        time.sleep(0.01)  # between looks at a file; nothing depends on its length


def await_role(page: str, role: str) -> None:
    """Wait until the standby's dashboard says that this is what it does."""
    until = time.monotonic() + DEADLINE
    while httpx.get(f"{page}healthz", trust_env=False, timeout=20.0).json()["role"] != role:
        assert time.monotonic() < until, f"the standby is not {role}"
        time.sleep(0.05)  # between looks; nothing depends on its length


def test_a_standby_takes_the_place_of_a_killed_host(mosquitto: Mosquitto, tmp_path: Path) -> None:
    key, run_dir, own_dir = tmp_path / "standby.key", tmp_path / "host", tmp_path / "standby"
    identity = Identity.generate()
    identity.save(key)
    hosting = ("shoal", "host", *RUN, *SMALL_TASKS, "--broker", mosquitto.url, "--json")
    hosting += ("--delegate", identity.fingerprint, "--run-dir", str(run_dir))
    with ExitStack() as stack:
        leader = stack.enter_context(running(*hosting))
        url = join_url(leader)
        standing = ("shoal", "host", "--standby", url, "--key", str(key), "--json")
        standing += ("--dashboard", "0")
        standby = stack.enter_context(running(*standing, "--run-dir", str(own_dir)))
        standby.await_line("entrusted with the run's secret")
        page = standby.await_line("dashboard at ").split()[-1]
        await_role(page, "following")
        workers = [
            stack.enter_context(worker(url, tmp_path / f"home-{index}")) for index in range(2)
        ]
        await_updates(run_dir, 3)
        leader.signal(signal.SIGKILL)
        leader.process.wait()
        for line in ("nobody leads", "resumed run ", "volunteers join with"):
            standby.await_line(line)
        await_updates(own_dir, 1)
        for helper in workers:
            helper.signal(signal.SIGSTOP)
        await_role(page, "leading")
        made = len(history(own_dir))
        assert made < UPDATES, "the run ended before the host came back"
        again = stack.enter_context(running("shoal", "host", "--resume", str(run_dir), "--json"))
        again.await_line(f"is led by {identity.fingerprint} (delegate 1) in epoch 2")
        await_history(run_dir, made)
        for helper in workers:
            helper.signal(signal.SIGCONT)
        assert standby.await_end() == 0, standby.lines
        assert again.await_end() == 0, again.lines
        assert [helper.await_end() for helper in workers] == [0, 0]
    undisturbed = undisturbed_hash(run_dir)
    for ended in (standby, again):
        outcome = ended.last_json()
        assert (outcome["params_hash"], outcome["updates"]) == (undisturbed, UPDATES), ended.lines
    assert history(run_dir) == history(own_dir)
