"""`shoal bench` measures what it says: the same seeds, the same steps, all of the time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from protocol.errors import ShoalError
from tests.worker.reference import TOYS, run_spec
from tests.worker.test_play import kept_run
from worker import bench
from worker.bench_command import register
from worker.evaluation import environments
from worker.policies import devices, making
from worker.policies.forms import form
from worker.policies.making import NOTHING, Grant
from worker.policies.on_device import DevicePolicy

SHARES = ("environment", "policy", "noise", "overhead")
KEYS = {
    "environment",
    "policy",
    "parameters",
    "theta",
    "sigma",
    "normalizer",
    "lanes",
    "vectorised",
    "path",
    "device",
    "steps_per_second",
    "bare_steps_per_second",
    "ratio",
    "evaluations_per_second",
    "episode_steps",
    "bare_episode_steps",
    *(f"share_{name}" for name in SHARES),
}


def run(*arguments: str) -> Any:
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, arguments)


def test_json_says_all_and_the_shares_make_the_whole():
    result = run("--policy", "gru", "--hidden", "3", "--normalizer", "--seconds", "0.2", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found) == KEYS
    assert (found["policy"], found["normalizer"]) == ("gru", True)
    parts = [found[f"share_{name}"] for name in SHARES]
    assert sum(parts) == pytest.approx(1.0) and min(parts) > 0
    assert found["evaluations_per_second"] * found["episode_steps"] == pytest.approx(
        found["steps_per_second"], rel=0.01
    )
    assert "turn 11 of 11" in result.stderr


def test_a_trained_policy_is_measured_as_its_run_keeps_it(tmp_path: Path):
    kept_run(tmp_path)
    result = run(str(tmp_path), "--seconds", "0.1")
    assert result.exit_code == 0, result.output
    assert "CartPole-v1, mlp of 23 parameters, cartpole-00000000 version 7" in result.stdout
    assert result.stdout.count(" steps/s, ") == 2 and result.stdout.count("% of the time") == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["CartPole-v9"], "did you mean"),
        (["--policy", "oracle"], "policy.kind is 'oracle'"),
        (["--hidden", "64;64"], "--hidden"),
        (["--set", "policy.hiden=3"], "policy.hiden"),
        (["ToyEndless-v0", "--allow-module", TOYS], "--set environment.max_steps=1000"),
        (
            [
                "ToyWalk-v0",
                *("--allow-module", TOYS),
                *("--set", "environment.kwargs.trouble=raise-in-reset"),
            ],
            "no start",
        ),
        (["--allow-module", "no_such_module"], "no such module is installed here"),
        ([str(Path(__file__).parent), "--normalizer"], "normalizer can't be changed"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(arguments, words):
    error = run(*arguments).exception
    assert isinstance(error, ShoalError) and words in str(error)
    assert error.exit_code == 2 and "\n" not in str(error)


def test_an_environment_without_a_limit_is_measured_up_to_the_steps_asked_for():
    result = run(
        "ToyEndless-v0",
        *("--allow-module", TOYS, "--seconds", "0.1", "--json"),
        *("--set", "environment.max_steps=20"),
    )
    found = json.loads(result.stdout)
    assert found["episode_steps"] == found["bare_episode_steps"] == 20


def test_the_bare_loop_begins_episodes_with_the_seeds_and_counts_their_limit():
    spec = run_spec("ToyWalk-v0", environment={"max_steps": 5})
    bare = bench.Bare(environments.maker(spec.environment, [TOYS]))
    seen: list[tuple[int, int]] = []
    step, reset = bare.environment.step, bare.environment.reset

    def noting_reset(*, seed: int) -> Any:
        seen.append((seed, 0))
        return reset(seed=seed)

    def noting_step(action: Any) -> Any:
        seen[-1] = (seen[-1][0], seen[-1][1] + 1)
        return step(action)

    bare.environment.reset, bare.environment.step = noting_reset, noting_step
    pace = bare.play([4, 5, 6], 40)
    assert [seed for seed, _ in seen] == [(4, 5, 6)[i % 3] for i in range(len(seen))]
    assert (pace.steps, pace.episodes) == (40, len(seen))
    assert sum(steps for _, steps in seen) == 40 and max(steps for _, steps in seen) == 5


def test_timed_lanes_give_what_lanes_give_and_the_time_of_the_environment():
    spec = run_spec("ToyWalk-v0")
    maker = environments.maker(spec.environment, [TOYS])
    subject = bench.untrained("ToyWalk-v0", {}, Grant((TOYS,)))
    burnt = [0.0]

    class Slow:
        limit = maker.limit

        def make(self) -> Any:
            environment = maker.make()
            step = environment.step

            def slowly(action: Any) -> Any:
                begin = time.perf_counter()
                while time.perf_counter() - begin < 2e-4:
                    pass
                burnt[0] += time.perf_counter() - begin
                return step(action)

            environment.step = slowly
            return environment

    lanes = bench.TimedLanes(subject.spec, Slow(), 4, fresh=False, grant=NOTHING)
    plain = bench.Lanes(subject.spec, maker, 4)
    job = bench.EvaluationJob("members", 0, 0, 9, 1, 0.1)
    begin = time.perf_counter()
    found = lanes.evaluate(job, subject.theta)
    whole = time.perf_counter() - begin
    assert (found.returns == plain.evaluate(job, subject.theta).returns).all()
    watches = lanes.watches
    assert watches["environment"].calls == found.lengths.sum() + found.lengths.size
    assert watches["noise"].calls == 1 and watches["policy"].calls >= found.lengths.max()
    assert watches["environment"].seconds >= burnt[0]
    assert sum(watch.seconds for watch in watches.values()) <= whole


def test_an_environment_is_asked_for_its_spaces_in_its_wrappers():
    around = [{"kind": "frame-stack", "n": 3}]
    subject = bench.untrained("CartPole-v1", {"environment": {"wrappers": around}})
    assert subject.spec.environment.observation.shape == (3, 4)
    assert len(subject.spec.environment.wrappers) == 1


def test_as_many_lanes_are_measured_as_are_asked_for():
    arguments = ["Pendulum-v1", "--set", "environment.max_steps=20", "--seconds", "0.1", "--json"]
    found = json.loads(run(*arguments, "--lanes", "3").stdout)
    assert (found["lanes"], found["device"], found["path"]) == (3, "cpu", "kernel")
    assert run(*arguments, "--lanes", "0").exit_code == 2


def test_members_are_built_and_computed_by_pytorch_on_a_device(monkeypatch):
    """On the CPU, by the same code."""

    def make(spec: Any, lanes: int, grant: Grant) -> DevicePolicy:
        assert grant.device == "cpu"
        return DevicePolicy(spec, lanes, form(spec), grant.device)

    monkeypatch.setattr(making, "make", make)
    result = run("--device", "cpu", "--lanes", "32", "--hidden", "3", "--seconds", "0.1", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["path"], found["device"]) == ("vmap", "cpu")
    assert found["share_noise"] > 0


def test_a_device_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setattr(devices, "cuda_devices", lambda: 0)
    error = run("--device", "cuda").exception
    assert isinstance(error, ShoalError) and "--device cuda: this machine has none" in str(error)
