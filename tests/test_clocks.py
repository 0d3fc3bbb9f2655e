"""No decision rests on the time of day, which people and machines set as they like."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_house import ROOT, modules, name_of

TIME_OF_DAY = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "localtime"),
    ("time", "gmtime"),
    ("time", "strftime"),
    ("time", "ctime"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}
FOR_PEOPLE = {
    "coordinator.board": "the time at which a point of a curve was written",
    "coordinator.console": "the time at which a line was written",
    "coordinator.history.listing": "the time at which an update was made",
    "coordinator.log.writing": "the name of a damaged log, and when something was noted",
    "coordinator.reception": "what volunteers compare their clock with",
    "coordinator.recorder": "the time at which an update was made",
    "coordinator.standby.ledger": "the time at which an update was made",
    "coordinator.dashboard.shell": "the time at which a line was written, and a picture made",
    "coordinator.screen.screen": "the time at which a line was written",
    "coordinator.status_command": "how long ago files were written, and when a line was",
    "worker.console": "the time at which a line was written",
    "worker.doctor_command": "whether this machine's clock is plausible",
    "worker.membership": "how far the host's clock is from ours",
    "worker.machine_checks": "the time that is shown for it",
    "worker.places": "since when a worker runs",
    "worker.way_checks": "whether a certificate holds by now",
}
"""Who tells it to people, and decides nothing by it."""
BY_THE_CLOCK = {
    "worker.beginning": "what a volunteer said before this worker was started",
    "worker.permission_options": "--until, by the clock on the wall",
    "worker.readings": "how long ago a key was typed, by files that the system dates",
    "worker.steering": "--schedule and --until, by the clock on the wall; pauses that outlive us",
    "worker.wishes": "until when a volunteer's pause lasts, for people",
}
"""Who decides by it when a volunteer's machine may work, as volunteers ask it to: no run hangs on
that."""


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_only_lines_for_people_and_volunteers_terms_look_at_the_time_of_day(path: Path) -> None:
    used = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in TIME_OF_DAY
    }
    known = name_of(path) in FOR_PEOPLE or name_of(path) in BY_THE_CLOCK
    assert not used or known, f"{used}: use protocol.clock.now"


def test_a_clock_of_the_day_that_jumps_changes_nothing(tmp_path: Path) -> None:
    """A whole run, in a process whose time of day goes back and forth by hours at every look."""
    code = f"""
import asyncio, itertools, time
from pathlib import Path
jumps = itertools.cycle((0.0, 7200.0, -86400.0))
true_time = time.time
time.time = lambda: true_time() + next(jumps)
from tests.coordinator.runs import led, spec_of, states_of
from protocol.state import params_hash
spec = spec_of(stop={{"updates": 6}})

async def run():
    async with led(spec, Path({str(tmp_path)!r})) as run, run.worker(pause_at=3) as worker:
        await worker.until(lambda: worker.version == 3 and bool(worker.held))
        await asyncio.sleep(1.2)  # for the timers of leases, silences and connections
        worker.resume()
        outcome = await run.outcome()
    assert outcome.params_hash == params_hash(states_of(spec, 6)[-1].theta)
    for words in ("ran out", "silent", "lost", "busy"):
        assert not any(words in line for line in run.lines), run.lines

asyncio.run(run())
print("the same")
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )
    assert done.stdout == "the same\n", done.stderr
