"""Policies that programs load, and files for others, act as the runs' own kernels do."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import shoal
from protocol import replay
from protocol.errors import ShoalError
from protocol.spec import RunSpec
from tests.worker.reference import run_spec
from tests.worker.test_play import kept_run
from worker import play
from worker.acting import LoadedPolicy
from worker.evaluation.blocks import centre_seeds
from worker.evaluation.jobs import EvaluationJob, Normalization
from worker.export import FORMATS, check, export
from worker.play import TrainedPolicy

KINDS: dict[str, RunSpec] = {
    "mlp": run_spec("CartPole-v1", normalizer={"enabled": True}),
    "linear, continuous": run_spec("Pendulum-v1", policy={"kind": "linear"}),
    "tanh": run_spec("Pendulum-v1", policy={"kind": "mlp", "hidden": [5], "squash": "tanh"}),
    "gru": run_spec("CartPole-v1", policy={"kind": "gru", "hidden": [4, 3]}),
    "lstm": run_spec("CartPole-v1", policy={"kind": "lstm", "hidden": [4, 3]}),
    "tabular": run_spec("FrozenLake-v1", policy={"kind": "tabular"}),
}


def trained(spec: RunSpec, version: int = 3) -> TrainedPolicy:
    rng = np.random.default_rng(len(spec.tensors))
    theta = np.float32(replay.initial_state(spec).theta + rng.normal(0.0, 0.5, spec.size))
    normalization = None
    if spec.normalizer.enabled:
        size = spec.environment.observation.size
        mean = rng.normal(0.0, 0.1, size).astype(np.float32)
        inverse = rng.uniform(0.5, 4.0, size).astype(np.float32)
        normalization = Normalization(mean, inverse, np.zeros(size), np.ones(size))
    return TrainedPolicy(spec, "some", version, theta, normalization)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_policy_gets_the_returns_of_the_centre(kind: str) -> None:
    made = trained(KINDS[kind])
    policy = LoadedPolicy(made)
    environment = policy.environment()
    totals = []
    for seed in centre_seeds(made.spec, EvaluationJob("centre", made.version, 0, 2)):
        observation, _ = environment.reset(seed=seed)
        policy.reset(seed)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = environment.step(policy(observation))
            total, over = total + float(reward), terminated or truncated
        totals.append(total)
    assert totals == play.play(made, 2).tolist()


def test_what_a_policy_can_not_see_is_refused() -> None:
    policy = LoadedPolicy(trained(KINDS["mlp"]))
    with pytest.raises(ValueError, match=r"shape \(3,\): this policy sees \(4,\)"):
        policy([0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="not finite"):
        policy([0.0, np.nan, 0.0, 0.0])
    with pytest.raises(ValueError, match="seed -1"):
        policy.reset(-1)
    with pytest.raises(ShoalError, match=r"holds no policy\.safetensors"):
        shoal.load_policy("nowhere")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_acts_as_the_policy_does(kind: str, tmp_path: Path) -> None:
    made = trained(KINDS[kind])
    path = export(made, "torchscript", tmp_path / "policy.pt")
    steps, strays = check(made, path, "torchscript", 2)
    assert steps > 10 and strays <= 1
    other = TrainedPolicy(made.spec, made.run, made.version, -made.theta, made.normalization)
    with pytest.raises(ShoalError, match="acts otherwise"):
        check(other, path, "torchscript", 2)


@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_onnx_acts_as_the_policy_does(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    made = trained(KINDS[kind])
    path = export(made, "onnx", tmp_path / "policy.onnx")
    steps, strays = check(made, path, "onnx", 2)
    assert steps > 10 and strays <= 1


def test_the_folder_for_gymnasium_plays_by_itself(tmp_path: Path) -> None:
    made = trained(KINDS["gru"])
    path = export(made, "gymnasium-policy", tmp_path / "exported")
    spec = importlib.util.spec_from_file_location("exported_policy", path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    theirs, ours = module.Policy(), LoadedPolicy(made)
    environment = ours.environment()
    observation, _ = environment.reset(seed=1)
    for _ in range(20):
        action = theirs(observation)
        assert action == ours(observation) and environment.action_space.contains(action)
        observation, _, over, _, _ = environment.step(action)
        if over:
            break
    theirs.reset()
    ours.reset()
    assert theirs(observation) == ours(observation)


def test_tensors_are_named_as_the_modules_have_them(tmp_path: Path) -> None:
    import torch
    from safetensors.numpy import load_file

    made = trained(KINDS["mlp"])
    known = load_file(export(made, "safetensors", tmp_path / "policy.safetensors"))
    state = torch.load(export(made, "torch", tmp_path / "policy.pt"), weights_only=True)
    names = {part.name for part in made.spec.tensors}
    assert set(known) == set(state) and names < set(known)
    for name, tensor in known.items():
        np.testing.assert_array_equal(state[name].numpy(), tensor)


def test_what_has_no_such_form_says_what_else_there_is(tmp_path: Path) -> None:
    drawn = trained(run_spec("CartPole-v1", policy={"kind": "linear", "choice": "sample"}))
    with pytest.raises(ShoalError, match=r"draws its actions.*load_policy"):
        export(drawn, "torchscript", tmp_path / "policy.pt")
    composite = trained(run_spec("Blackjack-v1", policy={"kind": "linear"}))
    with pytest.raises(ShoalError, match=r"composite.*load_policy"):
        export(composite, "onnx", tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_the_formats_of_the_command_are_those_there_are() -> None:
    from worker.export_command import ENDINGS

    assert tuple(one.value for one in ENDINGS) == FORMATS


def test_a_file_that_can_not_be_written_is_said_before_it_is_made(tmp_path: Path) -> None:
    kept_run(tmp_path)
    (tmp_path / "file").touch()
    for arguments in (["--out", str(tmp_path)], ["--out", str(tmp_path / "no" / "x")]):
        result = CliRunner().invoke(shoal.app, ["export", str(tmp_path), *arguments])
        assert isinstance(result.exception, ShoalError)
        assert "can't be written: name a file" in str(result.exception)
    options = ["--to", "gymnasium-policy", "--out", str(tmp_path / "file")]
    result = CliRunner().invoke(shoal.app, ["export", str(tmp_path), *options])
    assert "name a folder" in str(result.exception)
    made = CliRunner().invoke(shoal.app, ["export", str(tmp_path), "--to", "safetensors"])
    assert made.exit_code == 0 and (tmp_path / "exported.safetensors").exists(), made.output
