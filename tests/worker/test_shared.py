from __future__ import annotations

import contextlib
import errno
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.worker import reference
from tests.worker.evaluating import processes, started, whole
from tests.worker.reference import run_spec
from worker.evaluation import children
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
    theta = mapped(shared.path, shared.inode)
    np.testing.assert_array_equal(theta, THETA)
    assert theta.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        theta[0] = 1.0


def test_another_process_maps_them(shared: Shared) -> None:
    place = (shared.path, shared.inode)
    code = f"from worker.evaluation.shared import mapped; print(mapped(*{place}).sum())"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert float(told.stdout) == THETA.sum()


def test_once_closed_only_who_has_mapped_them_has_them(shared: Shared) -> None:
    theta = mapped(shared.path, shared.inode)
    shared.close()
    shared.close()
    np.testing.assert_array_equal(theta, THETA)
    with pytest.raises(OSError, match="No such file"):
        mapped(shared.path, shared.inode)


def test_forgetting_them_closes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shared = Shared(THETA, Scratch())
    path, inode = shared.path, shared.inode
    del shared
    with pytest.raises(OSError, match="No such file"):
        mapped(path, inode)


@pytest.mark.skipif(sys.platform != "linux", reason="numbers of open files")
def test_what_lies_at_the_path_of_closed_ones_is_not_taken_for_them() -> None:
    first = Shared(THETA, Scratch())
    path, inode = first.path, first.inode
    first.close()
    second = Shared(THETA + 1.0, Scratch())
    assert second.path == path  # the kernel gives the lowest number that is free
    with pytest.raises(FileNotFoundError, match="other parameters"):
        mapped(path, inode)


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
    def full(theta: object, scratch: Scratch) -> Shared:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(children, "Shared", full)
    with pytest.raises(WorkerFailure, match="parameters of version 3: No space left on device"):
        await Evaluators().set_theta(3, THETA)
