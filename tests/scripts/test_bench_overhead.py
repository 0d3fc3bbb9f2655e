"""What a pool costs: both ways do the very same work, and all of its CPU time is counted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from scripts.bench_overhead import Case, cpu_seconds, summary, with_pool

SMALL = Case(
    "Pendulum-v1",  # whose episodes are long from the beginning: no version goes by unseen
    ("--population", "32"),
    warm=3,
    counted=3,
    turn=2,
)

BUSY_THREAD = """
import threading, time
def work():
    while time.thread_time() < 0.2: pass
thread = threading.Thread(target=work)
thread.start(); thread.join()
print(time.process_time(), flush=True)
input()
"""


def test_the_time_of_another_process_includes_its_threads():
    with subprocess.Popen(
        [sys.executable, "-c", BUSY_THREAD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        its_own = float(process.stdout.readline())
        assert its_own >= 0.2
        assert its_own <= cpu_seconds(process.pid) < its_own + 0.1
        process.communicate("\n")


@pytest.mark.skipif(shutil.which("mosquitto") is None, reason="needs mosquitto")
async def test_both_ways_play_the_same_episodes(tmp_path):
    found = await with_pool(SMALL, tmp_path / "run", [])
    assert len(found.ours) == len(found.alone) == 2
    assert [one.steps for one in found.ours] == [one.steps for one in found.alone]
    assert all(one.steps > 0 and one.workers > 0.0 for one in (*found.ours, *found.alone))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert {json.loads(line)["kind"] for line in lines} == {"update"}  # no centre is evaluated
    told = summary(SMALL, False, [found])
    assert told["steps"][0] == told["steps"][1] > 0
    low, high = told["interval"]
    assert low <= told["ratio"] <= high
