from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from coordinator.directory import BrokerChoice, DirectoryError, RunDirectory
from coordinator.log import UpdateLog
from coordinator.metrics_file import latest_update
from protocol import spec as run_spec
from tests.coordinator.runs import spec_of

RUN = "test-00000000"


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "runs" / "one", RUN)


def test_directory_of_another_run_is_taken(directory: RunDirectory) -> None:
    with pytest.raises(DirectoryError, match=f"already holds the run {RUN}: go on with it"):
        RunDirectory.create(directory.path, "other-11111111")
    assert (directory.path / "run").read_text() == RUN + "\n"


def test_no_other_user_can_lock_the_run(directory: RunDirectory) -> None:
    """Nor that of a directory that was made when others could still read it."""
    file = directory.path / "run"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    directory.close()
    file.chmod(0o644)
    RunDirectory.open(directory.path).close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_directory_with_anything_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(DirectoryError, match="is not empty: give a new or empty --run-dir"):
        RunDirectory.create(tmp_path, RUN)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_empty_directory_is_welcome(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, RUN).close()
    assert (tmp_path / "run").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_place_that_cannot_be_a_directory_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryError, match=r"can't be used .*--run-dir") as caught:
        RunDirectory.create(tmp_path / place, RUN)
    assert "\n" not in str(caught.value)


def test_spec_is_kept_for_people(directory: RunDirectory) -> None:
    spec = spec_of(stop={"target": 475.5}, environment={"kwargs": {"gravity": 9.8, "wind": True}})
    directory.write_spec(spec)
    assert run_spec.parse(run_spec.load(directory.path / "spec.toml")) == spec


def test_secret_is_the_owners_alone(directory: RunDirectory) -> None:
    assert not directory.has_secret
    directory.keep_secret(bytes(range(32)))
    file = directory.path / "secret"
    assert directory.has_secret and directory.read_secret() == bytes(range(32))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_bytes(b"short")
    with pytest.raises(DirectoryError, match="has 5 bytes, the secret of a run has 32"):
        directory.read_secret()


def test_broker_is_remembered_for_the_owner_alone(directory: RunDirectory) -> None:
    assert directory.remembered() == BrokerChoice()
    for choice in (BrokerChoice("mqtt://me:word@there"), BrokerChoice(port=1, advertise="me")):
        directory.remember(choice)
        assert directory.remembered() == choice
    file = directory.path / "broker.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("[1")
    with pytest.raises(DirectoryError, match="remove it, and give --broker"):
        directory.remembered()


def test_directory_is_opened_again(directory: RunDirectory) -> None:
    directory.write_spec(spec_of())
    directory.keep_secret(bytes(32))
    directory.write_metrics({"kind": "update", "version": 1})
    directory.write_metrics({"kind": "centre", "version": 1})
    directory.close()
    again = RunDirectory.open(directory.path)
    assert (again.run, again.read_spec(), again.read_secret()) == (RUN, spec_of(), bytes(32))
    assert latest_update(again.path) == {"kind": "update", "version": 1}
    again.discard()
    assert (directory.path / "spec.toml").exists(), "a run that was begun is never thrown away"


def test_directory_is_opened_by_one_process(directory: RunDirectory) -> None:
    with pytest.raises(DirectoryError, match="is led by another process"):
        RunDirectory.open(directory.path)
    directory.close()
    RunDirectory.open(directory.path).close()


@pytest.mark.parametrize("content", [None, b"", b"My Run\n", b"x" * 1000, b"\xda\xff\x00"])
def test_directory_that_holds_no_run_is_not_opened(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "run").write_bytes(content)
    with pytest.raises(DirectoryError, match=r"(holds|names) no run") as caught:
        RunDirectory.open(tmp_path)
    assert "\n" not in str(caught.value) and "give the directory of" in str(caught.value)


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"name = 1"])
def test_lost_spec_is_not_taken_for_a_users_mistake(
    directory: RunDirectory, content: bytes | None
) -> None:
    if content is not None:
        (directory.path / "spec.toml").write_bytes(content)
    with pytest.raises(DirectoryError, match="restore it from a backup") as caught:
        directory.read_spec()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("log", [None, b""])
@pytest.mark.parametrize(
    "left", ["metrics.jsonl", "policy.safetensors", "broker.json", "snapshots"]
)
def test_lost_log_is_noticed(directory: RunDirectory, left: str, log: bytes | None) -> None:
    if log is not None:
        directory.log_path.write_bytes(log)
    assert not directory.has_log, "a host that dies early leaves such a directory"
    if left == "snapshots":
        (directory.path / left).mkdir()
        (directory.path / left / "snapshot-64.bin").write_bytes(b"state")
    else:
        (directory.path / left).write_text("{}")
    with pytest.raises(DirectoryError, match=f"gone or empty, though {left} shows.* restore"):
        assert directory.has_log
    directory.log_path.unlink(missing_ok=True)
    UpdateLog(directory.log_path, RUN).close()
    assert directory.has_log


@pytest.mark.parametrize("torn", [b"", b'{"kind": "upd', b'{"kind": "update"}'])
@pytest.mark.parametrize("lines", [0, 3, 9000])
def test_torn_line_of_metrics_is_mended(directory: RunDirectory, lines: int, torn: bytes) -> None:
    directory.close()
    metrics = directory.path / "metrics.jsonl"
    whole = b'{"kind": "centre"}\n' * lines
    metrics.write_bytes(whole + torn)
    again = RunDirectory.open(directory.path)
    again.write_metrics({"kind": "update"})
    again.close()
    assert metrics.read_bytes() == whole + b'{"kind": "update"}\n'


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
        directory.write_policy(directory.policy_path, tensors, {"version": str(version)})
    assert load_file(directory.policy_path)["layers.0.bias"].tolist() == [2.0] * 3
    with safe_open(directory.policy_path, framework="numpy") as file:
        assert file.metadata() == {"version": "2"}
    assert not list(directory.path.glob(".policy-*"))


def test_policy_that_cannot_be_written_leaves_the_old_one(directory: RunDirectory) -> None:
    directory.policy_path.mkdir()
    (directory.policy_path / "in the way").touch()
    with pytest.raises(DirectoryError, match=r"can't take policy\.safetensors"):
        directory.write_policy(directory.policy_path, {"x": np.zeros(1, dtype=np.float32)}, {})
    assert not list(directory.path.glob(".policy-*"))


@pytest.mark.parametrize(("base", "left"), [(0, [0, 3, 4, 5]), (2, [0, 1, 2, 3, 4, 5])])
def test_newest_snapshots_stay_and_that_which_the_log_begins_with(
    directory: RunDirectory, base: int, left: list[int]
) -> None:
    for version in range(6):
        directory.snapshots.keep(version, b"state")
    directory.forget_snapshots(base)
    assert directory.snapshots.versions() == left
