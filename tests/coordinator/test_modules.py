"""Runs whose policy is a PyTorch module, which the coordinator itself never imports."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from coordinator.composing import compose
from coordinator.host import load, prepare
from protocol import spec as run_spec
from protocol.spec import SpecError
from tests.worker import nets

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
FLAGS = {"policy": {"kind": "module", "module": "tests.worker.nets:Net"}, "seed": 9}


COMPOSING = f"""
import pickle, sys
from coordinator.composing import compose
composed = compose("CartPole-v1", {FLAGS!r}, sys.argv[2:], ("tests",))
with open(sys.argv[1], "wb") as file:
    pickle.dump((composed.spec, composed.first), file)
sys.exit(bool({{"torch", "tests"}} & set(sys.modules)))
"""


def test_a_run_begins_with_the_parameters_that_its_module_makes(tmp_path: Path) -> None:
    """Which the coordinator has without importing PyTorch or the module."""
    import torch

    assignments = ["policy.arguments={hidden=[5,3]}", "normalizer.enabled=true"]
    found = tmp_path / "composed"
    subprocess.run([sys.executable, "-c", COMPOSING, found, *assignments], cwd=ROOT, check=True)
    spec, first = pickle.loads(found.read_bytes())
    assert spec.policy.parameters[:2] == (("hidden.0.weight", (5, 4)), ("hidden.0.bias", (5,)))
    assert spec.tensors[2].name == "hidden.1.weight" and spec.tensors[2].shape == (3, 5)
    assert spec.policy.initialisation == "given"
    assert run_spec.from_bytes(run_spec.to_bytes(spec)) == spec
    (tmp_path / "spec.toml").write_text(run_spec.to_toml(spec))
    assert run_spec.parse(run_spec.load(tmp_path / "spec.toml")) == spec
    run = prepare(spec, tmp_path / "run", first=first)
    course = load(run, lambda line: None)
    theta = course.recovered.versions.current.theta
    course.log.close()
    run.directory.close()
    torch.manual_seed(9)
    values = [value.detach().numpy().ravel() for value in nets.Net(hidden=(5, 3)).parameters()]
    np.testing.assert_array_equal(theta, np.concatenate(values))


def test_a_module_that_is_not_allowed_is_refused_in_one_line() -> None:
    with pytest.raises(
        SpecError, match=r"'tests\.worker\.nets' is not allowed here.*--allow-module"
    ):
        compose("CartPole-v1", FLAGS)
