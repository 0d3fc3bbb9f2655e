"""A function of the parameters is evaluated as an environment is: its numbers, its failures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocol import noise, replay
from protocol import spec as run_spec
from protocol.policy_file import to_tensors
from protocol.spec import RunSpec
from protocol.state import params_hash
from tests.worker import problems
from tests.worker.evaluating import DEADLINE, EVERY, cursed, until, whole
from worker import bench, news, play
from worker.evaluation import makers
from worker.evaluation.blocks import member_seeds
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import EnvironmentUnavailable, EvaluationJob
from worker.evaluation.lanes import Lanes
from worker.evaluation.probe import probe
from worker.policies import making
from worker.policies.making import Grant

ALLOWED = ("tests.worker.problems",)
SIGMA = 0.3


def spec_of(function: str, parameters: int = 7, **objective: Any) -> RunSpec:
    named = {"function": f"tests.worker.problems:{function}", "parameters": parameters}
    return run_spec.parse({"name": "test", "seed": 7, "objective": {**named, **objective}})


def lanes_of(spec: RunSpec, count: int = 3) -> Lanes:
    return Lanes(spec, makers.maker(spec, ALLOWED), count)


def job(count: int, episodes: int = 1) -> EvaluationJob:
    return EvaluationJob("members", 4, 2, count, episodes, SIGMA)


@pytest.mark.parametrize("goal", ["maximise", "minimise"])
def test_a_return_is_the_value_of_the_members_parameters(goal: str) -> None:
    spec = spec_of("sphere", goal=goal, start=[0.5])
    theta = replay.initial_state(spec).theta
    np.testing.assert_array_equal(theta, np.full(7, 0.5, dtype=np.float32))
    found = lanes_of(spec).evaluate(job(5), theta)
    sign = 1.0 if goal == "maximise" else -1.0
    for place in range(5):
        for column, side in enumerate((1, -1)):
            member = noise.member("rademacher", 7, 2 + place, side, theta, SIGMA)
            assert found.returns[place, column] == sign * problems.sphere(member)
    assert (found.lengths == 1).all() and not found.failed


def test_a_function_with_a_seed_gets_that_of_the_episode() -> None:
    spec = spec_of("noisy")
    theta = replay.initial_state(spec).theta
    asked = job(3, episodes=2)
    found = lanes_of(spec).evaluate(asked, theta)
    seeds = iter(member_seeds(spec, asked))
    for place in range(3):
        for column, side in enumerate((1, -1)):
            member = noise.member("rademacher", 7, 2 + place, side, theta, SIGMA)
            values = [problems.noisy(member, seed) for seed in next(seeds)]
            assert found.returns[place, column] == sum(values) / 2


def test_what_a_function_does_to_its_argument_touches_nobody_else() -> None:
    asked = job(6, episodes=3)
    returns = []
    for function in ("sphere", "greedy"):
        spec = spec_of(function)
        returns.append(lanes_of(spec).evaluate(asked, replay.initial_state(spec).theta).returns)
    np.testing.assert_array_equal(*returns)


@pytest.mark.parametrize(
    ("start", "words"), [(0.1, "add up to nan"), (-5.0, "could not convert string to float")]
)
def test_what_is_no_number_fails_its_direction_alone(start: float, words: str) -> None:
    spec = spec_of("logarithm", parameters=1, start=[start])
    found = lanes_of(spec).evaluate(job(2), replay.initial_state(spec).theta)
    assert [direction for direction, _ in found.failed] == [2, 3]  # one of each pair is below 0
    assert all(words in reason for _, reason in found.failed)
    assert np.isnan(found.returns).all()


def test_a_worker_is_tried_out_where_the_run_begins_and_no_further() -> None:
    close = spec_of("logarithm", parameters=1, start=[0.3])
    found = probe(close, makers.maker(close, ALLOWED), lambda take: None)
    assert found.numeric_class and not found.fresh
    wide = run_spec.parse({**run_spec.to_plain(close), "strategy": {"sigma": 0.4}})
    with pytest.raises(EnvironmentUnavailable, match=r"every trial episode .* fails here"):
        probe(wide, makers.maker(wide, ALLOWED), lambda take: None)


async def test_a_crash_costs_its_direction_and_no_more() -> None:
    assert problems.EVERY == EVERY
    spec = spec_of("crashing")
    evaluators = Evaluators(DEADLINE, 1.0)
    await evaluators.start(spec, 1, ALLOWED, lanes=8)
    try:
        await until(lambda: evaluators.ready == 1)
        theta = replay.initial_state(spec).theta
        await evaluators.set_theta(0, theta, None)
        asked = cursed(before=1, after=1)
        found = await whole(evaluators, asked)
    finally:
        await evaluators.close()
    bad = asked.first + 1
    assert found.failed == ((bad, "twice its process died (SIGABRT)"),)
    assert np.isnan(found.returns[:, 0]).tolist() == [False, True, False]


def test_nothing_is_imported_that_is_not_allowed(tmp_path: Path) -> None:
    module = tmp_path / "trap.py"
    module.write_text("raise SystemExit('imported')")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from worker.evaluation import objectives\n"
        "from protocol.objective import ObjectiveSpec\n"
        "objectives.maker(ObjectiveSpec(function='trap:f', parameters=1), sys.argv[2:])\n"
    )
    run = [sys.executable, "-c", code, str(tmp_path)]
    for allowed, words in (((), "'trap' is not allowed here"), (("tra",), "not allowed here")):
        done = subprocess.run([*run, *allowed], capture_output=True, text=True)
        assert words in done.stderr and "--allow-module trap" in done.stderr
    done = subprocess.run([*run, "trap"], capture_output=True, text=True)
    assert "can't be imported (SystemExit: imported)" in done.stderr


@pytest.mark.parametrize(
    ("function", "words"), [("missing", "can't be imported"), ("NO_FUNCTION", "must be a function")]
)
def test_what_is_no_function_is_unavailable(function: str, words: str) -> None:
    with pytest.raises(EnvironmentUnavailable, match=words):
        makers.maker(spec_of(function), ALLOWED)


def test_a_device_changes_nothing() -> None:
    """There is nothing to compute on one, so no PyTorch is asked for."""
    grant = Grant(ALLOWED, "cuda:7")
    assert type(making.make(spec_of("sphere"), 2, grant)).__name__ == "ParametersPolicy"
    assert not making.together(spec_of("sphere"), grant)


def test_its_policy_file_is_its_parameters_and_gives_the_centres_returns(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    spec = spec_of("noisy", goal="minimise", start=list(range(7)))
    theta = replay.initial_state(spec).theta
    (tmp_path / "spec.toml").write_text(run_spec.to_toml(spec))
    about = {"version": "3", "params_hash": params_hash(theta)}
    save_file(to_tensors(spec, theta, None), tmp_path / play.LATEST, metadata=about)
    policy = play.load(tmp_path)
    np.testing.assert_array_equal(policy.theta, np.arange(7, dtype=np.float32))
    returns = play.play(policy, 3, allowed=ALLOWED)
    judged = lanes_of(spec).evaluate(EvaluationJob("centre", 3, 0, 3), theta)
    np.testing.assert_array_equal(returns, judged.returns)
    assert (returns < 0).all() and len(set(returns)) == 3
    with pytest.raises(EnvironmentUnavailable, match="nothing to see"):
        play.play(policy, 1, allowed=ALLOWED, video=tmp_path / "film.gif")
    with pytest.raises(Exception, match="time its calls"):
        bench.measure(bench.trained(tmp_path, ALLOWED), 1.0)


def test_a_volunteer_reads_of_no_policy() -> None:
    line = news.introduced("sphere-1a2b3c4d", spec_of("sphere"), "key", checked=True)
    assert "sphere, 7 parameters; led by key" in line and "policy" not in line
