from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from coordinator.directory import DirectoryError, RunDirectory
from protocol import spec as run_spec
from tests.coordinator.runs import spec_of

RUN = "test-00000000"


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "one", RUN)


def test_directory_of_another_run_is_taken(directory: RunDirectory) -> None:
    with pytest.raises(DirectoryError, match=f"already holds the run {RUN}: give another"):
        RunDirectory(directory.path, "other-11111111")
    assert (directory.path / "run").read_text() == RUN + "\n"


def test_directory_with_anything_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(DirectoryError, match="is not empty: give a new or empty --run-dir"):
        RunDirectory(tmp_path, RUN)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_empty_directory_is_welcome(tmp_path: Path) -> None:
    RunDirectory(tmp_path, RUN).close()
    assert (tmp_path / "run").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_place_that_cannot_be_a_directory_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryError, match=r"can't be used .*--run-dir") as caught:
        RunDirectory(tmp_path / place, RUN)
    assert "\n" not in str(caught.value)


def test_spec_is_kept_for_people(directory: RunDirectory) -> None:
    spec = spec_of(stop={"target": 475.5}, environment={"kwargs": {"gravity": 9.8, "wind": True}})
    directory.write_spec(spec)
    assert run_spec.parse(run_spec.load(directory.path / "spec.toml")) == spec


def test_secret_is_the_owners_alone(directory: RunDirectory) -> None:
    secret = directory.make_secret()
    file = directory.path / "secret"
    assert len(secret) == 32 and file.read_bytes() == secret
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(DirectoryError, match="can't take the run's secret"):
        directory.make_secret()


def test_metrics_are_lines_of_valid_json_at_once(directory: RunDirectory) -> None:
    directory.write_metrics({"a": 1.5, "b": float("nan")})
    directory.write_metrics({"a": float("-inf"), "b": 2})

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    text = (directory.path / "metrics.jsonl").read_text()
    lines = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    assert lines == [{"a": 1.5, "b": None}, {"a": None, "b": 2}]


def test_policy_is_replaced_whole_and_says_what_it_is(directory: RunDirectory) -> None:
    for version in (1, 2):
        tensors = {"layers.0.bias": np.full(3, version, dtype=np.float32)}
        directory.write_policy(tensors, {"version": str(version)})
    assert load_file(directory.policy_path)["layers.0.bias"].tolist() == [2.0] * 3
    with safe_open(directory.policy_path, framework="numpy") as file:
        assert file.metadata() == {"version": "2"}
    assert not list(directory.path.glob(".policy-*"))


def test_policy_that_cannot_be_written_leaves_the_old_one(directory: RunDirectory) -> None:
    directory.policy_path.mkdir()
    (directory.policy_path / "in the way").touch()
    with pytest.raises(DirectoryError, match="can't take the policy"):
        directory.write_policy({"x": np.zeros(1, dtype=np.float32)}, {})
    assert not list(directory.path.glob(".policy-*"))
