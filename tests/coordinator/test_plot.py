"""Curves of runs: what they show, and what a picture of them takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import shoal
from coordinator.curves import Curve, of_run, of_seeds
from protocol import spec as run_spec
from protocol.errors import ShoalError
from tests.worker.reference import run_spec as spec_of


def update(version: int, mean: float, **values: Any) -> dict[str, Any]:
    line = {"kind": "update", "version": version, "mean_return": mean, "return_deviation": 2.0}
    return {**line, "members": 4, "episodes": 10 * version, "seconds": 1.5 * version, **values}


def kept(directory: Path, seed: int, lines: list[dict[str, Any]], **sections: Any) -> Path:
    directory.mkdir()
    spec = spec_of("CartPole-v1", seed=seed, **sections)
    (directory / "spec.toml").write_text(run_spec.to_toml(spec))
    text = "\n".join(json.dumps(line) for line in lines)
    (directory / "metrics.jsonl").write_text(text + '\n{"kind": "upda')
    return directory


def test_a_run_is_shown_with_what_its_members_leave_unsure() -> None:
    again = update(2, 7.0)  # of a host that went on from version 1
    lines = [update(1, 5.0), update(2, 6.0), again, update(3, 8.0, members=1)]
    curve = of_run(lines, "members", "episodes")
    assert curve.x.tolist() == [10, 20, 30] and curve.mean.tolist() == [5.0, 7.0, 8.0]
    # Student's t for 3 degrees of freedom is 3.182; of one value nothing is known.
    np.testing.assert_allclose(curve.half, [3.1824, 3.1824, np.nan], rtol=1e-4)


def test_the_centre_lies_where_its_version_was_made() -> None:
    judged = {"kind": "centre", "return_deviation": 1.0, "episodes": 10}
    lines = [
        {**judged, "version": 0, "mean_return": 9.0},
        update(1, 5.0),
        {**judged, "version": 1, "mean_return": 11.0},
        {**judged, "version": 7, "mean_return": 12.0},  # of a version that no update tells of
        {**judged, "version": 1, "mean_return": None},
    ]
    curve = of_run(lines, "centre", "time")
    assert (curve.x.tolist(), curve.mean.tolist()) == ([0.0, 1.5], [9.0, 11.0])
    assert of_run(lines[:1], "members", "time").x.size == 0


def test_seeds_are_averaged_where_all_of_them_are() -> None:
    nan = np.full(3, np.nan)
    one = Curve(np.array([0.0, 2.0, 4.0]), np.array([0.0, 2.0, 4.0]), nan)
    two = Curve(np.array([1.0, 2.0, 3.0]), np.array([3.0, 4.0, 5.0]), nan)
    mean = of_seeds([one, two, Curve(*np.empty((3, 0)))])
    assert mean.x.tolist() == [1.0, 2.0, 3.0] and mean.mean.tolist() == [2.0, 3.0, 4.0]
    # Student's t for 1 degree of freedom is 12.706; numbers 2 apart deviate by sqrt(2).
    np.testing.assert_allclose(mean.half, 12.7062, rtol=1e-4)
    assert of_seeds([one]) is one and of_seeds([]).x.size == 0


def test_runs_that_differ_by_seed_alone_are_one_curve(tmp_path: Path) -> None:
    lines = [update(1, 5.0), update(2, 6.0)]
    paths = [kept(tmp_path / name, seed, lines) for seed, name in enumerate("ab")]
    paths.append(kept(tmp_path / "c", 0, lines, strategy={"sigma": 0.3}))
    for ending in ("png", "svg"):
        picture = tmp_path / f"out.{ending}"
        arguments = ["plot", *map(str, paths), "--out", str(picture)]
        result = CliRunner().invoke(shoal.app, arguments)
        assert result.exit_code == 0, result.output
        assert picture.stat().st_size > 1000
        assert "a and 1 other seed: mean return of members 6.0 at the end\n" in result.output
        assert "\nc: mean return of members 6.0 at the end\n" in result.output
    result = CliRunner().invoke(shoal.app, [*arguments, "--apart"])
    assert [line.split(":")[0] for line in result.output.splitlines()[:3]] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "can't be read (No such file or directory): give the directory"),
        (["RUN", "--out", "x.txt"], "end it in .png or .svg"),
        (["RUN", "--what", "centre"], "none of these runs has returns of its centre yet"),
        (["RUN", "--out", "no/such/x.png"], "can't be written"),
    ],
)
def test_mistakes_are_told_with_what_to_do(
    tmp_path: Path, arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = kept(tmp_path / "run", 0, [update(1, 5.0)])
    given = [str(run) if one == "RUN" else one for one in arguments]
    result = CliRunner().invoke(shoal.app, ["plot", *given])
    assert isinstance(result.exception, ShoalError) and told in str(result.exception)
