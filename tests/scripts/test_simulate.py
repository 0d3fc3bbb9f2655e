"""The simulator's command line."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import simulate
from scripts.simulation import scenario
from scripts.simulation.population import Group, groups

SCRIPT = Path(simulate.__file__)
SMALL = ["--workers", "12", "--directions-per-worker", "10", "--updates", "4"]
KEYS = {
    "efficiency",
    "applied_twice",
    "lost",
    "events_per_second",
    "stale_share",
    "length_weight_correlation",
    "wait_for_all_efficiency",
    "static_split_efficiency",
}


def run(*flags: str) -> int:
    return simulate.main([*SMALL, *flags])


def test_json_is_one_line_with_the_figures() -> None:
    command = [sys.executable, str(SCRIPT), *SMALL, "--preset", "async", "--seed", "3", "--json"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout
    assert said.count("\n") == 1
    figures = json.loads(said)
    assert figures.keys() >= KEYS
    assert all(isinstance(figures[key], int | float) for key in KEYS)
    assert (figures["preset"], figures["seed"]) == ("async", 3)
    assert figures["directions_per_worker"] == 10
    assert figures["applied_twice"] == figures["lost"] == 0


def test_without_json_a_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--groups", "3x20000,1x200000") == 0
    said = capsys.readouterr().out
    assert "efficiency" in said
    assert "waiting for all" in said
    assert "messages" in said


def test_settings_reach_the_pool(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--preset", "async") == 0
    assert run("--json", "--preset", "async", "--set", "pool.max_staleness=0") == 0
    free, classic = map(json.loads, capsys.readouterr().out.splitlines())
    assert classic["stale_share"] == 0.0 < free["stale_share"]


def test_too_many_members_are_refused_with_what_would_fit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert simulate.main(["--workers", "10000", "--directions-per-worker", "7"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--directions-per-worker 6" in said
    assert simulate.main(["--workers", "100000"]) == 2
    assert "use fewer workers" in capsys.readouterr().err


@pytest.mark.parametrize(("workers", "each"), [(1200, 50), (1201, 49), (10_000, 6), (60_000, 1)])
def test_each_worker_gets_as_many_directions_as_fit_where_nobody_says_how_many(
    workers: int, each: int
) -> None:
    scene = simulate.scenario(simulate.parser().parse_args(["--workers", str(workers)]))
    assert scene.directions_per_worker == each
    assert scene.run_spec().directions == each * workers


def test_it_is_said_how_many_directions_that_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scenario, "MAX_POPULATION", 12 * 2 * 4)
    assert simulate.main(["--workers", "12", "--updates", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["directions_per_worker"] == 4
    assert err.count("\n") == 1
    assert "12 workers with 4 directions each in a batch, as many as fit" in err


def test_too_short_a_time_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seconds", "1") == 2
    assert "--seconds" in capsys.readouterr().err


def test_groups() -> None:
    assert groups("100x20000, 3x2e5".replace("2e5", "200000")) == (
        Group(100, 20_000.0),
        Group(3, 200_000.0),
    )
    for wrong in ("", "100", "0x5", "5x0", "axb"):
        with pytest.raises(simulate.ShoalError, match="as in 100x20000"):
            groups(wrong)


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_plot_is_drawn(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / f"run.{kind}"
    assert run("--plot", str(file)) == 0
    assert file.stat().st_size > 10_000
    assert run("--plot", str(tmp_path / "none" / "run.png")) == 2
    assert "can't be written" in capsys.readouterr().err


def test_a_plot_without_matplotlib_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    assert run("--plot", str(tmp_path / "run.png")) == 2
    assert "pip install 'shoal[plot]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "rule"),
    [
        (["--late", "2"], "2 must be from 0 to 1"),
        (["--leaving", "20"], "20 must be from 0 to 1: 0.02 is 2 %"),
        (["--vanishing", "nan"], "nan must be from 0 to 1"),
        (["--stalling", "-0.1"], "-0.1 must be from 0 to 1"),
        (["--changing", "much"], "much must be from 0 to 1"),
        (["--workers", "0"], "0 must be a whole number of at least 1"),
        (["--directions-per-worker", "0"], "0 must be a whole number of at least 1"),
        (["--sigma", "inf"], "inf must be a number of at least 0"),
    ],
)
def test_a_figure_that_can_not_be_is_refused_by_its_flag(
    flags: list[str], rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        simulate.main(flags)
    assert refused.value.code == 2
    said = capsys.readouterr().err
    assert f"{flags[0]}: {rule}" in said
    assert said.count("\n") == 1
