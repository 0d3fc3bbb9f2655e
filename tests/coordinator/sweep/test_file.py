"""A sweep file says what it means, and every mistake in one is a line with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.sweep import file
from coordinator.sweep.extending import refuse_other
from coordinator.sweep.file import SweepError, SweepFile, parse
from coordinator.sweep.points import all_points
from coordinator.sweep.specs import Specs

PATH = Path("Some Sweep.toml")
GRID = "[grid]\nstrategy.sigma = [0.1, 0.2]\n"
BUDGET = "[budget]\nupdates = 10\n"
BASE = 'base = "CartPole-v1"\n'


def read(text: str) -> SweepFile:
    return parse(text, PATH)


def test_what_is_left_out_is_usual() -> None:
    said = read(BASE + GRID + BUDGET)
    assert said.name == "some-sweep"
    assert (said.all_seeds, said.sampled, said.metric, said.pool) == (
        (0, 1, 2),
        "grid",
        "final",
        "sync",
    )


WRONG = {
    "": "`base` is missing",
    "base = 3\n" + GRID + BUDGET: "base is 3: must be text",
    BASE + GRID: "`budget` is missing",
    BASE + GRID + "[budget]\n": "ends no run",
    BASE + GRID + "[budget]\nupdates = 0\n": "budget.updates is 0",
    BASE + GRID + "[budget]\nupdate = 3\n": "did you mean `updates`?",
    BASE + BUDGET: "nothing that varies",
    BASE + GRID + "[random]\nstrategy.sigma = { uniform = [0, 1] }\n" + BUDGET: "exactly one of",
    BASE + "points = 3\n" + GRID + BUDGET: "for [random] alone",
    BASE + "[random]\nstrategy.sigma = { uniform = [0, 1] }\n" + BUDGET: "above all tables",
    BASE + 'sampler = "tpe"\n' + GRID + BUDGET: "does not go with [grid]",
    BASE + 'sampler = "cmaes"\n' + GRID + BUDGET: "sampler is 'cmaes'",
    BASE + "seeds = 0\n" + GRID + BUDGET: "seeds",
    BASE + "seeds = [1, 2, 1]\n" + GRID + BUDGET: "has 1 twice",
    BASE + 'metric = "loss"\n' + GRID + BUDGET: "metric is 'loss'",
    BASE + 'pool = "fast"\n' + GRID + BUDGET: "pool is 'fast'",
    BASE + 'name = "A b"\n' + GRID + BUDGET: "lower-case letters",
    BASE + "colour = 3\n" + GRID + BUDGET: "unknown field `colour`",
    BASE + GRID + '[stop]\nrule = "worst"\n' + BUDGET: "stop.rule is 'worst'",
    BASE + GRID + '[stop]\nrule = "halving"\n[budget]\nseconds = 3\n': "give budget.updates",
    BASE + GRID + '[stop]\nrule = "halving"\nfactor = 1\n' + BUDGET: "stop.factor is 1",
    BASE + "[grid\n": "not valid TOML",
    BASE + GRID * 2: "not valid TOML",
}


@pytest.mark.parametrize("text", WRONG, ids=WRONG.values())
def test_a_wrong_file_is_one_line(text: str) -> None:
    with pytest.raises(SweepError) as caught:
        read(text)
    said = str(caught.value)
    assert WRONG[text] in said and said.startswith("Some Sweep.toml") and "\n" not in said


WRONG_POINTS = {
    "[grid]\nstrategy.sigma = 0.1\n": "must be a list of values",
    "[grid]\nstrategy.sigma = []\n": "must be a list of values",
    "[grid]\nstrategy = {}\n": "empty table",
    "[grid]\nseed = [1, 2]\n": "by `name`, `seeds`",
    "[grid]\nstop.updates = [1, 2]\n": "[budget]",
    '[grid]\nstrategy.sigma = [1]\n"strategy.sigma" = [2]\n': "twice",
    '[grid]\nstrategy.sigma = [1]\n"strategy" = [2]\n': "not valid TOML",
    '[grid]\n"a..b" = [1]\n': "no name of a field",
    '[grid]\n"policy.hidden" = [1]\n"policy.hidden.x" = [2]\n': "both policy.hidden and",
    "[[list]]\n": "says nothing",
    "points = 2\n[random]\nstrategy.sigma = [0.1]\n": "must be a table with one of",
    "points = 2\n[random]\nstrategy.sigma = { uniform = [2, 1] }\n": "the lower one first",
    "points = 2\n[random]\nstrategy.sigma = { uniform = [0, inf] }\n": "two numbers",
    "points = 2\n[random]\nstrategy.sigma = { log-uniform = [0, 1] }\n": "must be above 0",
    "points = 2\n[random]\nstrategy.population = { integer = [1.5, 2] }\n": "whole numbers",
    "points = 2\n[random]\nstrategy.population = { integer = [1, 9], step = 0 }\n": "step is 0",
    "points = 2\n[random]\nstrategy.sigma = { uniform = [0, 1], step = 2 }\n": "beside uniform",
    "points = 2\n[random]\noptimizer.kind = { choice = [] }\n": "list of values",
    "[grid]\n" + "".join(f"a.f{n} = [1,2,3,4,5,6,7,8,9,10]\n" for n in range(5)): "100,000 points",
}


@pytest.mark.parametrize("text", WRONG_POINTS, ids=WRONG_POINTS.values())
def test_wrong_points_are_one_line(text: str) -> None:
    with pytest.raises(SweepError) as caught:
        all_points(read(BASE + text + BUDGET))
    assert WRONG_POINTS[text] in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="no sweep file"):
        file.load(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SweepError, match="can't read"):
        file.load(tmp_path / "bytes.toml")
    with pytest.raises(SweepError, match="goes on with shoal sweep resume"):
        file.load(tmp_path)
    (tmp_path / "large.toml").write_bytes(b"#" * (file.MOST_BYTES + 1))
    with pytest.raises(SweepError, match="bytes"):
        file.load(tmp_path / "large.toml")


def test_a_run_ends_by_the_budget_alone() -> None:
    said = read(BASE + "seeds = [4]\n" + GRID + BUDGET)
    points = all_points(said)
    specs = Specs(said, said.base)
    spec = specs.of(points[1], 4).spec
    assert (spec.stop.updates, spec.stop.target, spec.stop.seconds) == (10, None, None)
    assert (spec.seed, spec.strategy.sigma) == (4, 0.2)
    assert spec.pool.quorum == 1.0 and spec.pool.max_staleness == 0
    assert spec.name == f"some-sweep-{points[1].name}-4"


def test_a_metric_to_a_target_takes_the_base_s() -> None:
    said = read(BASE + 'metric = "updates-to-target"\n' + GRID + BUDGET)
    assert Specs(said, said.base).aim.target == 475.0
    said = read(BASE + 'metric = "updates-to-target"\n' + GRID + BUDGET + "target = 200\n")
    assert Specs(said, said.base).of(all_points(said)[0], 0).spec.stop.target == 200.0


def test_a_base_that_does_not_suit_is_one_line(tmp_path: Path) -> None:
    without = tmp_path / "base.toml"
    text = Path("coordinator/presets/CartPole-v1.toml").read_text()
    without.write_text(text.replace("target = 475.0", "updates = 1"))
    said = read(BASE + 'metric = "episodes-to-target"\n' + GRID + BUDGET)
    with pytest.raises(SweepError, match="needs a target"):
        Specs(said, str(without))
    without.write_text(without.read_text() + "[centre]\nevaluate_every = 0\n")
    with pytest.raises(SweepError, match="never evaluates its centre"):
        Specs(read(BASE + GRID + BUDGET), str(without))


def test_a_name_is_cut_to_what_a_run_may_have() -> None:
    said = read(BASE + f'name = "{"long-" * 7}"\nseeds = [{2**63 - 1}]\n' + GRID + BUDGET)
    spec = Specs(said, said.base).of(all_points(said)[0], 2**63 - 1).spec
    assert len(spec.name) <= 40 and spec.name.endswith(f"-{2**63 - 1}")


OTHER = {
    BASE + "seeds = [0, 1, 3]\n" + GRID + BUDGET: "leaves out the seed 2",
    BASE + GRID + "[budget]\nupdates = 11\n": "another `budget`",
    'base = "Acrobot-v1"\n' + GRID + BUDGET: "another `base`",
    BASE + 'metric = "best"\n' + GRID + BUDGET: "another `metric`",
    BASE + GRID + "[set]\nstrategy.population = 8\n" + BUDGET: "another `set`",
    BASE
    + 'sampler = "tpe"\npoints = 3\n[random]\nstrategy.sigma = { uniform = [0, 1] }\n'
    + BUDGET: "sampler = 'tpe'",
}


@pytest.mark.parametrize("text", OTHER, ids=OTHER.values())
def test_a_sweep_grows_by_points_and_seeds_alone(text: str) -> None:
    before = read(BASE + GRID + BUDGET)
    refuse_other(before, read(BASE + "seeds = [3, 2, 1, 0]\n" + GRID + BUDGET))
    with pytest.raises(SweepError) as caught:
        refuse_other(before, read(text))
    assert OTHER[text] in str(caught.value)


def test_what_tpe_draws_from_stays_the_same() -> None:
    text = (
        BASE + 'sampler = "{}"\npoints = {}\n[random]\nstrategy.sigma = {{ uniform = [0, {}] }}\n'
    )
    for sampler in ("tpe", "random"):
        before = read(text.format(sampler, 3, 1) + BUDGET)
        refuse_other(before, read(text.format(sampler, 4, 1) + BUDGET))
    refuse_other(before, read(text.format("random", 3, 2) + BUDGET))
    with pytest.raises(SweepError, match="another `random` than the sweep, whose sampler = 'tpe'"):
        refuse_other(
            read(text.format("tpe", 3, 1) + BUDGET), read(text.format("tpe", 3, 2) + BUDGET)
        )
