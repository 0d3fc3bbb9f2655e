"""The demo as its user runs it: what it prints, what it leaves, what it stops."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.processes import ROOT, running

FIGURES = {
    "solved",
    "version",
    "centre_return",
    "centre_deviation",
    "centre_interval",
    "centre_episodes",
    "updates",
    "episodes",
    "env_steps",
    "seconds",
    "wire_bytes_per_episode",
    "params_hash",
}
ENDLESS = ("shoal", "demo", "--workers", "1", "--set", "stop.target=1e9")


def test_demo_trains_and_leaves_a_run_but_no_process(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    command = ("shoal", "demo", "--updates", "3", "--seed", "2", "--set", "stop.target=1e9")
    with running(*command, "--run-dir", str(run_dir), "--json") as demo:
        assert demo.await_end() == 0, demo.lines
        figures = demo.last_json()
    assert set(figures) == FIGURES
    assert figures["solved"] is False
    assert figures["updates"] == 3
    assert figures["wire_bytes_per_episode"] > 0
    assert not demo.left()
    kept = ("spec.toml", "log.sqlite", "metrics.jsonl", "policy.safetensors", "best.safetensors")
    for name in kept:
        assert (run_dir / name).stat().st_size > 0
    played = subprocess.run(
        [sys.executable, "-m", "shoal", "play", str(run_dir), "--episodes", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert played.returncode == 0, played.stderr
    assert "mean return" in played.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_stops_all_that_it_started(number: signal.Signals, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with running(*ENDLESS, "--run-dir", str(run_dir), "--json") as demo:
        demo.await_line("update ")
        demo.signal(number)
        assert demo.await_end() == 0, demo.lines
        assert demo.last_json()["solved"] is False
    assert not demo.left()


def test_killed_demo_takes_its_processes_with_it(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with running(*ENDLESS, "--run-dir", str(run_dir)) as demo:
        demo.await_line("update ")
        demo.process.kill()
        demo.process.wait()
        demo.await_quiet()
