from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.worker import reference
from tests.worker.evaluating import alive, alone, assert_same, processes, started, until, whole
from tests.worker.reference import run_spec
from worker.evaluation import thetas
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import EvaluationJob, WorkerFailure
from worker.evaluation.memory import Meter
from worker.evaluation.shared import Shared, mapped
from worker.scratch import Scratch

ROOT = Path(__file__).parents[2]
THETA = np.arange(50_000, dtype=np.float32)


@pytest.fixture(params=[sys.platform, "elsewhere"])
def shared(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Shared:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "platform", request.param)
    return Shared(THETA, Scratch())


def test_parameters_are_mapped_and_cannot_be_changed(shared: Shared) -> None:
    theta = mapped(shared.path, shared.inode, shared.size)
    np.testing.assert_array_equal(theta, THETA)
    assert theta.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        theta[0] = 1.0


def test_another_process_maps_them(shared: Shared) -> None:
    place = (shared.path, shared.inode, shared.size)
    code = f"from worker.evaluation.shared import mapped; print(mapped(*{place}).sum())"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert float(told.stdout) == THETA.sum()


def test_once_closed_only_who_has_mapped_them_has_them(shared: Shared) -> None:
    theta = mapped(shared.path, shared.inode, shared.size)
    shared.close()
    shared.close()
    np.testing.assert_array_equal(theta, THETA)
    with pytest.raises(OSError, match="No such file"):
        mapped(shared.path, shared.inode, shared.size)


def test_forgetting_them_closes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shared = Shared(THETA, Scratch())
    path, inode = shared.path, shared.inode
    del shared
    with pytest.raises(OSError, match="No such file"):
        mapped(path, inode, THETA.size)


@pytest.mark.skipif(sys.platform != "linux", reason="numbers of open files")
def test_what_lies_at_the_path_of_closed_ones_is_not_taken_for_them() -> None:
    first = Shared(THETA, Scratch())
    path, inode = first.path, first.inode
    first.close()
    second = Shared(THETA + 1.0, Scratch())
    assert second.path == path  # the kernel gives the lowest number that is free
    with pytest.raises(FileNotFoundError, match="other parameters"):
        mapped(path, inode, THETA.size)


@pytest.mark.skipif(sys.platform != "linux", reason="memory without a name")
def test_the_kernel_lets_nobody_write_to_them_and_no_folder_has_them(tmp_path: Path) -> None:
    shared = Shared(THETA, Scratch())
    with pytest.raises(PermissionError), Path(shared.path).open("r+b") as file:
        file.write(b"other")
    with pytest.raises(PermissionError):
        Path(shared.path).write_bytes(b"")
    assert "shoal-theta (deleted)" in str(Path(shared.path).readlink())


def kept() -> int:
    """How many versions' parameters this process keeps."""
    kept = 0
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            kept += "shoal-theta" in str(file.readlink())
    return kept


def own(evaluators: Evaluators) -> int:
    """Bytes that the only process has for itself."""
    (pid,) = processes(evaluators)
    return Meter(pid).own()


@pytest.mark.skipif(sys.platform != "linux", reason="memory without a name")
async def test_versions_take_no_memory_of_the_processes_that_use_them() -> None:
    spec = run_spec("ToyWalk-v0", policy={"hidden": [1000, 1000]})
    before = kept()
    evaluators = await started(spec, 1)
    job = EvaluationJob("centre", 0, 0, 1)
    await whole(evaluators, job)
    alone, size = own(evaluators), 4 * spec.size
    theta = reference.theta(spec)
    for version in range(1, 9):
        await evaluators.set_theta(version, theta + np.float32(version))
        await whole(evaluators, replace(job, version=version))
    assert kept() == before + 9
    assert own(evaluators) < alone + 3 * size
    evaluators.drop(0)
    evaluators.drop(0)
    assert kept() == before + 8
    await evaluators.close()
    assert kept() == before


async def test_without_room_for_them_a_job_fails_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(theta: object, scratch: Scratch, *, named: bool) -> Shared:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(thetas, "Shared", full)
    with pytest.raises(WorkerFailure, match="parameters of version 3: No space left on device"):
        await Evaluators().set_theta(3, THETA)


def hidden(*args: Any, **named: bool) -> Shared:
    """As where processes may not see what others have open."""
    shared = Shared(*args, **named)
    if not named["named"]:
        shared.path = shared.path.replace("/fd/", "/hidden/")
    return shared


JOB = EvaluationJob("centre", 0, 0, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="memory without a name")
async def test_parameters_that_processes_may_not_see_are_laid_where_they_may(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(thetas, "Shared", hidden)
    spec = run_spec("ToyWalk-v0")
    evaluators = await started(spec, 1)
    before = processes(evaluators)
    reason = r"parameters of version 0 can't be read from /proc/\d+/hidden/\d+: No such file"
    with pytest.raises(WorkerFailure, match=reason):
        await whole(evaluators, JOB)
    assert_same(await whole(evaluators, JOB), alone(spec, JOB))
    await evaluators.set_theta(1, reference.theta(spec))  # which no job has to pay for
    later = replace(JOB, version=1)
    np.testing.assert_array_equal(
        (await whole(evaluators, later)).lengths > 0, np.ones(3, dtype=np.bool_)
    )
    assert processes(evaluators) == before
    await evaluators.close()
    assert kept() == 0 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("harm", ["removed", "cut"])
async def test_a_file_of_parameters_that_somebody_harms_costs_jobs_but_not_the_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, harm: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spec = run_spec("ToyWalk-v0")
    monkeypatch.setattr(
        thetas, "Shared", lambda theta, scratch, named: Shared(theta, scratch, named=True)
    )
    evaluators = await started(spec, 1)
    await whole(evaluators, JOB)
    file = Path(evaluators._thetas._kept[0][0].path)
    if harm == "cut":
        os.truncate(file, 100)
    else:
        file.unlink()
    (pid,) = processes(evaluators)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: processes(evaluators) not in ([], [pid]) and evaluators.ready == 1)
    await until(lambda: bool(evaluators._thetas._again))
    if harm == "removed":
        assert_same(await whole(evaluators, JOB), alone(spec, JOB))
    else:
        reason = f"version 0 can't be read from {file}: 100 bytes where {4 * spec.size} were"
        with pytest.raises(WorkerFailure, match=reason):
            await whole(evaluators, JOB)
    await evaluators.set_theta(1, reference.theta(spec))
    await whole(evaluators, replace(JOB, version=1))
    assert len(processes(evaluators)) == 1
    await evaluators.close()
    assert list(tmp_path.iterdir()) == []


def test_a_copy_holds_what_it_was_made_of_though_that_has_no_name_any_more(
    shared: Shared, tmp_path: Path
) -> None:
    if not shared.path.startswith("/proc"):
        Path(shared.path).unlink()
    scratch = Scratch()
    copy = shared.copied(scratch)
    shared.close()
    np.testing.assert_array_equal(mapped(copy.path, copy.inode, copy.size), THETA)
    os.truncate(copy.path, 4)
    with pytest.raises(OSError, match="cut off"):
        copy.copied(scratch)
    with pytest.raises(OSError, match="4 bytes where 200,000 were"):
        mapped(copy.path, copy.inode, copy.size)
    copy.close()
    scratch.remove()


DAEMON = """
import asyncio
from tests.worker import evaluating as t

async def main():
    evaluators = await t.started(t.toy(trouble="hang", every=t.EVERY), 2)
    jobs = [asyncio.create_task(t.whole(evaluators, t.cursed())) for _ in range(2)]
    await t.until(lambda: all(child.parts for child in evaluators._children))
    await asyncio.sleep(0.2)
    print(*t.processes(evaluators), evaluators._thetas._kept[0][0].inode, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def holders(inode: int) -> list[str]:
    """Processes that have the parameters of that inode open or mapped."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            lines = (process / "maps").read_text().splitlines() if process.name.isdigit() else []
            inodes = {line.split()[4] for line in lines if "shoal-theta" in line}
            found += [process.name] * (str(inode) in inodes)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="memory without a name")
async def test_a_daemon_that_is_killed_leaves_no_memory_no_file_and_no_process(
    tmp_path: Path,
) -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert daemon.stdout is not None
    with daemon.stdout:
        line = await asyncio.to_thread(daemon.stdout.readline)
    *pids, inode = map(int, line.split())
    assert set(map(str, pids)) <= set(holders(inode))
    daemon.kill()
    daemon.wait()
    await until(lambda: not any(map(alive, pids)))
    assert holders(inode) == [] and list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="numbers of open files")
async def test_a_thousand_small_jobs_leave_nothing_open() -> None:
    """In either process; versions come and go meanwhile."""
    spec = run_spec("ToyWalk-v0")
    evaluators = await started(spec, 1)
    theta = reference.theta(spec)
    here = psutil.Process()
    (pid,) = processes(evaluators)
    child = psutil.Process(pid)

    async def play(jobs: int) -> tuple[int, int, int]:
        for number in range(1, jobs + 1):
            await evaluators.set_theta(number, theta)
            await whole(evaluators, EvaluationJob("members", number, number, 1, 1, 0.1))
            evaluators.drop(number)
        return here.num_fds(), child.num_fds(), len(child.memory_maps(grouped=False))

    first = await play(20)
    again = await play(1000)
    # The last versions may be on their way out, and the heap has maps of its own.
    assert again[0] <= first[0] + 2 and again[1] <= first[1] + 2 and again[2] <= first[2] + 20
    assert len(asyncio.all_tasks()) < 20
    assert processes(evaluators) == [pid]
    await evaluators.close()
    assert here.num_fds() < first[0]
