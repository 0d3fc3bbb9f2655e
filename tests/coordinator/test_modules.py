"""Runs whose policy is a PyTorch module, which the coordinator itself never imports."""

from __future__ import annotations

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

FLAGS = {"policy": {"kind": "module", "module": "tests.worker.nets:Net"}, "seed": 9}


def test_a_run_begins_with_the_parameters_that_its_module_makes(tmp_path: Path) -> None:
    import torch

    assignments = ["policy.arguments={hidden=[5,3]}", "normalizer.enabled=true"]
    spec, first = compose("CartPole-v1", FLAGS, assignments, ("tests",))
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


def test_the_coordinator_imports_neither_pytorch_nor_the_module() -> None:
    code = (
        "import sys\n"
        "from coordinator.composing import compose\n"
        f"compose('CartPole-v1', {FLAGS!r}, (), ('tests',))\n"
        "sys.exit(bool({'torch', 'tests'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
