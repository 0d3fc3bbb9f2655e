"""What points are worth, in what order they are told, and that a store keeps all of it."""

from __future__ import annotations

import csv
import io
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.sweep import pictures, report
from coordinator.sweep.file import Budget, Stop, SweepError, SweepFile
from coordinator.sweep.judging import Verdict
from coordinator.sweep.measures import Aim, Evaluation, so_far, summary, worth
from coordinator.sweep.planning import Trained, Tried, turns, verdicts
from coordinator.sweep.points import point
from coordinator.sweep.sampling import drawn_next, keep_study
from coordinator.sweep.store import STORE, Store

FINAL = Aim("final")


def curve(*means: float) -> tuple[Evaluation, ...]:
    """Evaluations of versions 1, 2, ...; the last one whole."""
    last = len(means)
    return tuple(
        Evaluation(
            version, mean, 1.0, 100 if version == last else 10, version == last, 64 * version
        )
        for version, mean in enumerate(means, 1)
    )


def tried(number: int, *runs: Trained, rungs: tuple[int, ...] = ()) -> Tried:
    return Tried(number, point({"strategy.sigma": 0.1 * (number + 1)}), list(runs), rungs)


def finished(seed: int, *means: float) -> Trained:
    return Trained(seed, "finished", run=f"run-{seed}", curve=curve(*means))


def test_the_worth_of_a_run() -> None:
    line = curve(10.0, 90.0, 50.0)
    assert worth(line, FINAL) == 50.0
    assert worth(line, Aim("best")) == 90.0
    assert worth((), FINAL) is None
    assert worth(line, Aim("updates-to-target", 40.0)) == 3.0  # the others were screened alone
    assert worth(line, Aim("episodes-to-target", 40.0)) == 192.0
    assert worth(line, Aim("updates-to-target", 60.0)) is None
    assert worth(line, Aim("updates-to-target", 49.9, 0.95)) is None


def test_the_worth_at_a_rung_is_that_of_what_was_judged_by_then() -> None:
    line = curve(10.0, 90.0, 50.0)
    assert so_far(line, 2, FINAL, over=False) == 90.0
    assert so_far(line, 3, Aim("best"), over=False) == 90.0
    assert so_far(line, 4, FINAL, over=False) is None
    assert so_far(line, 4, FINAL, over=True) == 50.0
    assert so_far((), 4, FINAL, over=True) is None


def test_an_interval_takes_two_seeds() -> None:
    assert summary([3.0]).half == math.inf
    found = summary([1.0, 3.0])
    assert (found.mean, found.low, found.high) == (
        2.0,
        pytest.approx(-10.7, 0.01),
        found.mean + found.half,
    )
    assert math.isnan(summary([]).mean)


def test_the_best_come_first_and_those_that_failed_last() -> None:
    points = [
        tried(0, Trained(0, "failed", "no such thing"), Trained(1, "failed", "nor this")),
        tried(1, finished(0, 5.0), finished(1, 7.0)),
        tried(2, Trained(0, "running", curve=curve(9.0)), Trained(1)),
        tried(3, finished(0, 8.0), Trained(1, "failed", "lost")),
        tried(4, Trained(0), Trained(1)),
    ]
    rows = report.rows(points, [Verdict(0)] * 5, FINAL)
    assert [row.number for row in rows] == [3, 1, 2, 4, 0]
    assert [row.state for row in rows] == ["finished", "finished", "running", "pending", "failed"]
    assert rows[0].values == (8.0, None) and rows[-1].why == "no such thing"
    table = report.table(rows, FINAL)
    assert "failed: no such thing" in table and "1 of 2" in table and "nan" not in table
    read = list(csv.DictReader(io.StringIO(report.to_csv(rows))))
    assert len(read) == 10 and [line["value"] for line in read[:4]] == ["8.0", "", "5.0", "7.0"]
    assert read[0]["low"] == "" and read[0]["mean"] == "8.0"


def test_of_a_target_who_reached_it_more_often_and_sooner_is_better() -> None:
    aim = Aim("updates-to-target", 50.0)
    points = [
        tried(0, finished(0, 60.0), finished(1, 1.0)),
        tried(1, finished(0, 1.0, 1.0, 60.0), finished(1, 1.0, 60.0)),
        tried(2, finished(0, 60.0), finished(1, 1.0, 60.0)),
    ]
    rows = report.rows(points, [Verdict(0)] * 3, aim)
    assert [row.number for row in rows] == [2, 1, 0]


def test_a_point_that_was_stopped_is_told_as_it_was_then() -> None:
    """However far its runs came until they heard of it."""
    stop = Stop(rule="halving", rungs=1)
    points = [
        tried(0, Trained(0, "running", curve=curve(5.0, 900.0)), rungs=(1,)),
        tried(1, Trained(0, "running", curve=curve(6.0)), rungs=(1,)),
    ]
    judged = verdicts(points, stop, FINAL)
    assert judged == [Verdict(0, 0), Verdict(1)]
    assert [turn.tried.number for turn in turns(points, judged)] == [1]
    last = report.rows(points, judged, FINAL)[-1]
    assert (last.state, last.values, last.updates) == ("stopped", (5.0,), 1)
    assert last.why == "worse than others at update 1"


def test_all_runs_go_to_a_rung_before_any_goes_on() -> None:
    stop = Stop(rule="halving", rungs=1)
    points = [
        tried(0, Trained(0, "running", curve=curve(5.0)), Trained(1), rungs=(1,)),
        tried(1, Trained(0), Trained(1), rungs=(1,)),
    ]
    found = [
        (turn.tried.number, turn.run.seed, turn.until)
        for turn in turns(points, verdicts(points, stop, FINAL))
    ]
    assert found == [(0, 1, 1), (1, 0, 1), (1, 1, 1)]


def test_a_run_that_a_person_stopped_keeps_no_other_waiting() -> None:
    """It counts where it was before that, and no further."""
    stop = Stop(rule="halving", rungs=1)
    points = [
        tried(0, Trained(0, "stopped", "by the host", curve=curve(9.0)), rungs=(2,)),
        tried(
            1,
            Trained(0, "running", curve=curve(6.0, 2.0)),
            Trained(1, "stopped", "by the host", curve=curve(1.0, 9.0)),
            rungs=(2,),
        ),
        tried(2, Trained(0, "running", curve=curve(5.0, 5.0)), rungs=(2,)),
    ]
    judged = verdicts(points, stop, FINAL)
    assert judged == [Verdict(1), Verdict(1), Verdict(0, 0)]
    assert [each.state(v) for each, v in zip(points, judged, strict=True)] == [
        "stopped",
        "running",
        "stopped",
    ]
    assert [turn.run for turn in turns(points, judged)] == [points[1].runs[0]]


def test_a_store_gives_back_what_it_was_given(tmp_path: Path) -> None:
    points = [tried(0, Trained(3), Trained(1), rungs=(4, 8)), tried(1, Trained(3), Trained(1))]
    with Store.create(tmp_path / "s", {"file": "text"}, points) as store:
        points[0].runs[0] = finished(3, 0.1, 1 / 3)
        store.keep(0, points[0].runs[0])
        with pytest.raises(SweepError, match="led by another process"):
            Store.open(tmp_path / "s")
    with Store.read(tmp_path / "s") as read:
        found = read.points()
        assert read.noted("file") == "text" and read.noted("none") == ""
    assert [(each.number, each.point, each.runs, tuple(each.rungs)) for each in found] == [
        (each.number, each.point, each.runs, tuple(each.rungs)) for each in points
    ]
    assert (tmp_path / "s" / STORE).stat().st_mode & 0o077 == 0


def test_a_store_whose_host_was_killed_as_it_wrote_can_be_looked_at(tmp_path: Path) -> None:
    """What it had half written is undone first."""
    with Store.create(tmp_path / "s", {}, [tried(0, Trained(0))]) as store:
        store._connection.execute("PRAGMA cache_size = 1")  # so that it writes before it commits
        with store._writing() as connection:
            connection.execute("UPDATE runs SET state = 'finished', why = ?", ("x" * 100_000,))
            shutil.copytree(tmp_path / "s", tmp_path / "killed")
    with Store.read(tmp_path / "killed") as read:
        assert read.points()[0].runs[0].state == "pending"


def test_a_store_that_is_damaged_or_newer_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="holds no sweep"):
        Store.open(tmp_path)
    with Store.create(tmp_path / "s", {}, []):
        pass
    with pytest.raises(SweepError, match="has a sweep already"):
        Store.create(tmp_path / "s", {}, [])
    path = tmp_path / "s" / STORE
    whole = path.read_bytes()
    path.write_bytes(whole[:60] + (99).to_bytes(4, "big") + whole[64:])
    with pytest.raises(SweepError, match="has format 99"):
        Store.open(tmp_path / "s")
    path.write_bytes(b"nonsense" * 1000)
    with pytest.raises(SweepError, match="can't be read"):
        Store.open(tmp_path / "s")


RANDOM = SweepFile(
    base="CartPole-v1",
    name="drawn",
    sampler="tpe",
    points=16,
    random={
        "strategy": {"sigma": {"log-uniform": [0.01, 1.0]}, "population": {"integer": [8, 64]}},
        "policy.hidden": {"choice": [[8], [16, 16]]},
    },
    budget=Budget(updates=1),
)


def searched(said: SweepFile) -> list[Tried]:
    """A search whose points are worth the more, the nearer sigma is to 0.3."""
    found: list[Tried] = []
    while True:
        more = drawn_next(said, report.rows(found, [Verdict(0)] * len(found), FINAL), FINAL)
        if not more:
            return found
        for number, drawn in more:
            far = abs(math.log(drawn.settings["strategy.sigma"] / 0.3))
            found.append(Tried(number, drawn, [finished(0, -far)]))


def test_tpe_draws_the_same_again_and_near_what_was_good(tmp_path: Path) -> None:
    found = searched(RANDOM)
    assert [each.number for each in found] == list(range(16))
    assert [each.point for each in searched(RANDOM)] == [each.point for each in found]
    near = [abs(math.log(each.point.settings["strategy.sigma"] / 0.3)) for each in found]
    assert sum(near[12:]) / 4 < sum(near[:10]) / 10
    assert {str(each.point.settings["policy.hidden"]) for each in found} == {"[8]", "[16, 16]"}

    import optuna

    rows = report.rows(found, [Verdict(0)] * 16, FINAL)
    with Store.create(tmp_path / "s", {}, found) as store:
        keep_study(tmp_path / "s" / STORE, RANDOM, rows[:9], FINAL)
        keep_study(tmp_path / "s" / STORE, RANDOM, rows, FINAL)
        assert len(store.points()) == 16
    study = optuna.load_study(study_name="drawn", storage=f"sqlite:///{tmp_path}/s/{STORE}")
    assert len(study.trials) == 16
    assert study.best_value == max(row.summary.mean for row in rows)


def test_whoever_missed_the_target_is_worse_than_all_who_reached_it(tmp_path: Path) -> None:
    aim = Aim("updates-to-target", 50.0)
    runs = [finished(0, 60.0), finished(0, 1.0), Trained(0, "failed", "lost")]
    points = [
        Tried(number, drawn, [run])
        for (number, drawn), run in zip(drawn_next(RANDOM, [], aim), runs, strict=False)
    ]
    with Store.create(tmp_path / "s", {}, points):
        path = tmp_path / "s" / STORE
        keep_study(path, RANDOM, report.rows(points, [Verdict(0)] * 3, aim), aim)
    import optuna

    study = optuna.load_study(study_name="drawn", storage=f"sqlite:///{path}")
    assert [trial.value for trial in study.trials] == [1.0, math.inf, None]
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE", "FAIL"]


def test_a_study_that_cannot_be_kept_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"study can't be kept in .*unable to open") as caught:
        keep_study(tmp_path / "nowhere" / STORE, RANDOM, [], FINAL)
    assert "\n" not in str(caught.value)


def test_a_small_space_comes_to_an_end() -> None:
    few = {"optimizer.kind": {"choice": ["adam", "sgd"]}}
    assert len(drawn_next(SweepFile(**_but(random=few)), [], FINAL)) == 2


def _but(**changes: object) -> dict[str, object]:
    return {field: getattr(RANDOM, field) for field in RANDOM.__struct_fields__} | changes


def test_without_what_draws_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['optuna'] = None\n"
        "from coordinator.sweep import sampling\n"
        "from coordinator.sweep.file import SweepError\n"
        "try:\n    sampling._optuna()\nexcept SweepError as error:\n    print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip().endswith("pip install 'shoal[sweep]'")


def test_axes_are_of_numbers_where_they_are_and_else_of_words() -> None:
    settings = [{"a": 0.01, "b": "x", "c": 1}, {"a": 1.0, "b": [1], "c": 2}, {"a": 0.1, "b": "x"}]
    points = [Tried(n, point(each), [finished(0, n)]) for n, each in enumerate(settings)]
    rows = sorted(report.rows(points, [Verdict(0)] * 3, FINAL), key=lambda row: row.number)
    assert pictures.axis_of("a", rows) == pictures.Axis((0.01, 1.0, 0.1), log=True)
    assert pictures.axis_of("b", rows) == pictures.Axis((1.0, 0.0, 1.0), ((0.0, "[1]"), (1.0, "x")))
    assert pictures.axis_of("c", rows).places == (1.0, 2.0, 0.0)
    with pytest.raises(SweepError, match="no point has come to anything"):
        pictures.draw([], FINAL, Path("nowhere"), "png")


def test_points_of_one_value_are_drawn_beside_one_another() -> None:
    assert pictures.dodged(pictures.Axis((1.0, 2.0, 1.0))) == pytest.approx([0.99, 2.0, 1.01])
    places = pictures.dodged(pictures.Axis((0.01, 0.01, 1.0), log=True))
    assert places[0] < 0.01 < places[1] < 0.02 and places[2] == pytest.approx(1.0)
    crowd = pictures.dodged(pictures.Axis((0.0,) * 50 + (1.0,)))
    assert len(set(crowd)) == 51 and max(map(abs, crowd[:50])) <= pictures.ALL_APART / 2
    assert pictures.dodged(pictures.Axis((3.0,))) == [3.0]


def test_a_picture_shows_the_runs_however_wide_intervals_are() -> None:
    points = [tried(0, finished(0, 10.0), finished(1, 400.0)), tried(1, finished(0, 20.0))]
    rows = report.rows(points, [Verdict(0)] * 2, FINAL)
    low, high = pictures.bounds(rows)
    assert -100 < low < 10 and 400 < high < 500
    low, high = pictures.bounds(report.rows([tried(0, finished(0, 0.0))], [Verdict(0)], FINAL))
    assert low < 0 < high
