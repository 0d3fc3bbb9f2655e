"""A thousand workers on real connections to one coordinator process: what it does, how fast.

    python scripts/bench_broker.py --broker mosquitto --connected 1000 --results 300 --tasks 200
    python scripts/bench_broker.py --broker embedded --connected 100 --results 50 --tasks 40 \\
        --updates 1

One process holds the connections of all workers, which say hello, take tasks, wait for as long as
episodes would take, and answer with made-up returns under a true MAC; `shoal host` is a process of
its own. Told are results, tasks and updates a second; the time from the last result of a task to
the next task, as the worker sees it (it holds two, so that it does not wait for it); and the share
of a core that coordinator, broker and the workers' process took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.crowd.light import LENGTH, Crowd
from tests.chaos.processes import cpu_seconds, host, updates

DIRECTIONS = 4
"""Of a task, about."""
SETTLE_SECONDS = 8.0
"""From when all are welcomed to when they are watched."""
RUN_FILE = """
name = "bench"
seed = 1

[environment]
id = "CartPole-v1"
max_steps = 500
observation = {{kind = "box", shape = [4]}}
action = {{kind = "discrete", n = 2}}

[strategy]
population = {population}

[pool]
task_seconds = {seconds}
minimum_task_seconds = 0.0
quorum = 0.8
max_staleness = 4
discount = 2
patience = 0.0
copies = 1
stale_share = 0.5

[centre]
evaluate_every = 0

[stop]
updates = 1000000
"""


def run_file(connected: int, tasks: float, updates_each_second: float) -> str:
    """A run whose tasks last so long that as many workers finish `tasks` a second."""
    directions = min(60_000, round(tasks * DIRECTIONS / updates_each_second))
    return RUN_FILE.format(population=2 * directions, seconds=connected / tasks)


def allow_files(count: int) -> None:
    """Let this process have so many open files. Raises SystemExit with the remedy."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise SystemExit(f"{hard} open files are allowed, {count} are needed: ulimit -n {count}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))


async def measured(
    url: str, run_dir: Path, pids: dict[str, int], given: argparse.Namespace
) -> dict[str, Any]:
    """What the crowd saw in so many seconds."""
    run = url.split("/")[3].partition("#")[0]
    speed = 2 * DIRECTIONS * LENGTH * given.tasks / given.connected
    crowd = Crowd(run, speed, max(0.0, given.results / given.tasks - 1.0))
    began = time.monotonic()
    workers = await crowd.join(url.partition("#")[0].rpartition("/")[0], given.connected)
    joined = time.monotonic() - began
    await asyncio.sleep(given.settle)
    crowd.heard.forget()
    spent = {name: cpu_seconds(pid) for name, pid in pids.items()}
    before, began = len(updates(run_dir)), time.monotonic()
    await asyncio.sleep(given.seconds)
    seconds = time.monotonic() - began
    made = len(updates(run_dir)) - before
    shares = {name: (cpu_seconds(pid) - spent[name]) / seconds for name, pid in pids.items()}
    heard = crowd.heard
    waits = 1e3 * np.array(heard.waits or [np.nan])
    for worker in workers:
        worker.leave()
    return {
        "connected": given.connected,
        "joined_seconds": round(joined, 1),
        "results_per_second": round(heard.results / seconds, 1),
        "tasks_per_second": round(heard.tasks / seconds, 1),
        "directions_per_task": round(heard.directions / max(1, heard.tasks), 1),
        "updates_per_second": round(made / seconds, 2),
        "next_task_ms_p50": round(float(np.percentile(waits, 50)), 1),
        "next_task_ms_p99": round(float(np.percentile(waits, 99)), 1),
        "next_task_ms_max": round(float(waits.max()), 1),
        "sent_again": heard.sent_again,
        "refused": heard.refused,
        "slow_down": heard.asked_to_slow_down,
        "lost": heard.lost,
        **{f"cpu_{name}": round(share, 3) for name, share in shares.items()},
    }


def processes(leader: int) -> dict[str, int]:
    """Coordinator, its broker where that is a process, and this one."""
    found = {"coordinator": leader}
    for child in psutil.Process(leader).children(recursive=True):
        if child.name() == "mosquitto":
            found["broker"] = child.pid
    return {**found, "workers": psutil.Process().pid}


def main() -> None:
    """Print the figures, one a line or as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--broker", choices=("embedded", "mosquitto"), default="mosquitto")
    parser.add_argument("--connected", type=int, default=1000)
    parser.add_argument("--results", type=float, default=300.0, help="a second")
    parser.add_argument("--tasks", type=float, default=200.0, help="a second")
    parser.add_argument("--updates", type=float, default=0.02, help="a second, about")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    allow_files(given.connected + 100)
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        run_dir, file = Path(folder) / "run", Path(folder) / "run.toml"
        file.write_text(run_file(given.connected, given.tasks, given.updates), encoding="utf-8")
        with host(str(file), run_dir=run_dir, broker=given.broker) as (
            leader,
            url,
        ):
            pids = processes(leader.process.pid)
            figures = asyncio.run(measured(url, run_dir, pids, given))
            leader.signal(signal.SIGINT)
            leader.await_end()
            busy = [line.partition("busy: ")[2] for line in leader.lines if "busy: " in line]
            figures["busy"] = sorted(set(busy))
    if given.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name:20} {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
