from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from safetensors import safe_open

from coordinator.history.past import HistoryError, opened, read_run
from coordinator.history.rebuild import Rebuilt, rebuild, save_policy
from coordinator.log import DamagedError
from protocol.frozen import Snapshots
from protocol.policy_file import from_tensors
from protocol.snapshot import state_digest, to_bytes
from protocol.state import State, params_hash
from tests.coordinator.history.conftest import UPDATES, spec


def rebuilt(run_dir: Path, version: int, *, from_start: bool = False) -> Rebuilt:
    with opened(run_dir) as past:
        return rebuild(past, version, from_start, print, lambda done, total: None)


@pytest.mark.parametrize("version", [0, 1, 37, 63, 64, 65, UPDATES])
@pytest.mark.parametrize("from_start", [False, True])
def test_version_comes_back_bit_for_bit(
    run_dir: Path, states: list[State], version: int, from_start: bool
) -> None:
    made = rebuilt(run_dir, version, from_start=from_start)
    assert to_bytes(made.state) == to_bytes(states[version])
    assert made.first == (64 if version >= 64 and not from_start else 0)
    assert made.updates == version - made.first


def test_snapshot_that_the_log_does_not_prove_is_left_out(
    run_dir: Path, states: list[State], capsys: pytest.CaptureFixture[str]
) -> None:
    snapshots = Snapshots(run_dir / "snapshots")
    snapshots.keep(64, to_bytes(states[63]))
    made = rebuilt(run_dir, 66)
    assert (made.first, state_digest(made.state)) == (0, state_digest(states[66]))
    assert "snapshot of version 64 is left out" in capsys.readouterr().out


@pytest.mark.parametrize("version", [UPDATES + 1, 1 << 40])
def test_version_that_is_not_reached_yet_is_refused(run_dir: Path, version: int) -> None:
    with pytest.raises(HistoryError, match=f"--version {version}: .* has reached version 70"):
        rebuilt(run_dir, version)


def test_damage_counts_only_for_versions_after_it(run_dir: Path, states: list[State]) -> None:
    connection = sqlite3.connect(run_dir / "log.sqlite")
    connection.execute("UPDATE updates SET payload = zeroblob(200) WHERE version = 30")
    connection.commit()
    connection.close()
    assert to_bytes(rebuilt(run_dir, 30).state) == to_bytes(states[30])
    assert to_bytes(rebuilt(run_dir, 65).state) == to_bytes(states[65])  # from the snapshot on
    with pytest.raises(DamagedError) as caught:
        rebuilt(run_dir, 31)
    assert caught.value.version == 30 and "update 30" in str(caught.value)


def test_progress_is_told(run_dir: Path) -> None:
    told: list[tuple[int, int]] = []
    with opened(run_dir) as past:
        rebuild(past, 10, True, print, lambda done, total: told.append((done, total)))
    assert told == [(done, 10) for done in range(1, 11)]


def test_saved_policy_is_that_of_the_version(
    run_dir: Path, states: list[State], tmp_path: Path
) -> None:
    file = tmp_path / "policy.safetensors"
    file.write_bytes(b"older")
    with opened(run_dir) as past:
        save_policy(past, states[40], file)
        run = past.run
    with safe_open(file, framework="numpy") as saved:
        about = saved.metadata()
        tensors = {name: saved.get_tensor(name) for name in saved.keys()}  # noqa: SIM118
    theta, statistics = from_tensors(spec(), tensors, file)
    assert about == {"run": run, "version": "40", "params_hash": params_hash(states[40].theta)}
    assert params_hash(theta) == params_hash(states[40].theta)
    assert statistics is not None and states[40].normalizer is not None
    for ours, expected in zip(statistics, states[40].normalizer.policy_input(), strict=True):
        assert (ours == expected).all()
    with opened(run_dir) as past, pytest.raises(HistoryError, match="give another place"):
        save_policy(past, states[40], tmp_path / "nowhere" / "policy.safetensors")


def test_directory_that_holds_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "run").write_bytes(b"\xff\x00nonsense")
    for place, what in ((tmp_path, "holds no run"), (tmp_path / "odd", "names no run")):
        with pytest.raises(HistoryError, match=what):
            read_run(place)


def test_log_of_another_run_is_refused(run_dir: Path) -> None:
    (run_dir / "run").write_text("test-00000000\n")
    with pytest.raises(DamagedError, match=r"log\.sqlite belongs to the run .*test-00000000"):
        rebuilt(run_dir, 1)
