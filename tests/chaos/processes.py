"""Real hosts and workers as operating-system processes, for tests that kill them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coordinator.history.past import opened
from coordinator.history.verify import verify_directory
from protocol.packing import unpack_integers
from protocol.state import params_hash
from tests import alone

ROOT = Path(__file__).parent.parent.parent
TICKS = os.sysconf("SC_CLK_TCK")
DEADLINE = 90.0
"""Seconds that anything awaited here may take on a slow, busy machine."""
LONGEST_RUN = 600.0
"""Seconds after which a process that goes on saying something does not end."""


@dataclass
class Running:
    """A process whose lines are collected as they come."""

    process: subprocess.Popen[str]
    mark: bytes
    """stands in the environment of the process and of all that it starts"""
    lines: list[str] = field(default_factory=list)
    _cpu: dict[int, float] = field(default_factory=dict)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _reader: threading.Thread | None = None

    def start_reading(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def await_line(self, text: str, count: int = 1) -> str:
        """The count-th line that contains `text`; fails with all lines at the deadline."""
        until = time.monotonic() + DEADLINE
        with self._news:
            while True:
                found = [line for line in self.lines if text in line]
                if len(found) >= count:
                    return found[count - 1]
                left = until - time.monotonic()
                assert left > 0, f"no line with {text!r} in:\n" + "\n".join(self.lines)
                if self.process.poll() is not None and not (
                    self._reader and self._reader.is_alive()
                ):
                    raise AssertionError(f"ended without {text!r}:\n" + "\n".join(self.lines))
                self._news.wait(min(left, 0.5))

    def await_end(self) -> int:
        """The exit code, once the process has ended and all of its lines are read.

        A run takes as long as the machine takes for it: only one of which nothing new is heard, for
        as long as anything may take, does not end.
        """
        began = quiet_since = time.monotonic()
        heard = len(self.lines)
        while (code := self.process.poll()) is None:
            with self._news:
                self._news.wait(0.1)
            now = time.monotonic()
            if len(self.lines) > heard:
                heard, quiet_since = len(self.lines), now
            if now - quiet_since > DEADLINE or now - began > LONGEST_RUN:
                raise AssertionError("did not end:\n" + "\n".join(self.lines))
        if self._reader is not None:
            self._reader.join(DEADLINE)
        return code

    def await_quiet(self) -> None:
        """Wait until nothing is left of it; fails with what stays."""
        until = time.monotonic() + DEADLINE
        while left := self.left():
            assert time.monotonic() < until, f"still there: {left}"
            time.sleep(0.05)  # between looks; nothing depends on its length

    def last_json(self) -> dict[str, Any]:
        """The last line, as JSON."""
        value: dict[str, Any] = json.loads(self.lines[-1])
        return value

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def signal_all(self, number: int) -> None:
        """The same for all that it started, as a machine stops that is put to sleep."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def signal_children(self, number: int) -> None:
        """The same for what it started alone, which then holds whatever it is given."""
        for pid in set(self.pids()) - {self.process.pid}:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def cpu_seconds(self) -> float:
        """Processor time, user and system, of it and all that it started; who has ended since the
        last look counts as it was then."""
        for pid in self.pids():
            with suppress(OSError):
                self._cpu[pid] = cpu_seconds(pid)
        return sum(self._cpu.values())

    def pids(self) -> list[int]:
        """It and all that it started and that is still there."""
        found = []
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                if process.name.isdigit() and self.mark in (process / "environ").read_bytes():
                    found.append(int(process.name))
        return found

    def left(self) -> list[str]:
        """Command lines of living processes that descend from it, whoever adopted them."""
        found = []
        for pid in self.pids():
            with suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found += [line] if line else []  # empty: ended, and not yet reaped
        return found

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()


def cpu_seconds(pid: int) -> float:
    """Processor time, user and system, of a process. Raises `OSError` where it is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def running(*command: str, within: Sequence[str] = ()) -> Iterator[Running]:
    """The process, killed with all that it started if it is still there at the end.

    `within`: a command that starts it, with its own as the last arguments.

    Where the test fails meanwhile, what it said is printed.
    """
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [*within, sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, "TEST_MARK": mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    run = Running(process, mark.encode())
    run.start_reading()
    try:
        yield run
    except BaseException:
        print(f"{' '.join(command)}:", *run.lines, sep="\n")
        raise
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def host(*arguments: str, run_dir: Path, broker: str = "embedded") -> Iterator[tuple[Running, str]]:
    """A host, if it has its own broker on a free port, and the URL that workers join with."""
    command = ["shoal", "host", *arguments, "--broker", broker, "--port", "0"]
    with running(*command, "--run-dir", str(run_dir), "--json") as process:
        yield process, join_url(process)


@contextmanager
def resumed(run_dir: Path) -> Iterator[Running]:
    """A host that goes on with the run, over a broker at the same address."""
    with running("shoal", "host", "--resume", str(run_dir), "--json") as process:
        yield process


def join_url(host: Running) -> str:
    """What workers join a host's run with, once it says so."""
    return host.await_line("shoal join mqtt://").split("shoal join ")[1].strip()


@contextmanager
def worker(url: str, home: Path, *arguments: str) -> Iterator[Running]:
    """A worker of one core that joins there."""
    with running("worker", url, "--nice", "0", "--home", str(home), *arguments) as process:
        yield process


def undisturbed_hash(run_dir: Path) -> str:
    """What a synchronous run comes to without a pool, by its spec and after as many updates."""
    with opened(run_dir) as past:
        spec = past.spec
    assert spec.stop.updates is not None and not spec.pool.max_staleness and spec.pool.quorum == 1
    return params_hash(alone.trained(spec, spec.stop.updates).theta)


def assert_sound(run_dir: Path, versions: int) -> None:
    """The run has made so many versions, its log proves itself, and nothing counts twice.

    A cohort goes from its first direction to its last; those in between that are not in it weigh
    nothing there.
    """
    verdict = verify_directory(run_dir, (), lambda version, of: None)
    assert verdict.sound and verdict.reached == versions, verdict
    counted: Counter[int] = Counter()
    with opened(run_dir) as past:
        for _, update in past.updates(0):
            for cohort in update.cohorts:
                (counting,) = unpack_integers(cohort.weights, 1 << 20).nonzero()
                counted.update((cohort.first + counting).tolist())
        assert len(counted) > 0.5 * versions * past.spec.directions
    assert set(counted.values()) == {1}, counted.most_common(3)


def assert_orderly(*processes: Running) -> None:
    """None of them, all ended, has shown a traceback or left a process."""
    for process in processes:
        assert not [line for line in process.lines if "Traceback" in line], process.lines
        process.await_quiet()


def updates(run_dir: Path) -> list[dict[str, Any]]:
    """The updates that the run directory tells of so far."""
    text = (run_dir / "metrics.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if line["kind"] == "update"]


def await_updates(run_dir: Path, count: int) -> None:
    """Wait until the run has made so many updates."""
    until = time.monotonic() + DEADLINE
    while len(updates(run_dir)) < count:
        assert time.monotonic() < until, f"no {count} updates in {run_dir}"
        time.sleep(0.02)  # between looks at a file; nothing depends on its length
