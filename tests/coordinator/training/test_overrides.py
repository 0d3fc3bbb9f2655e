"""A spec in any form, and settings by name, come to one run; what is none is a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from coordinator.pool.presets import PRESETS
from coordinator.training.overrides import NAMES, composed, spec_values
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.policy_file import to_tensors
from tests.coordinator.runs import BASE, spec_of


def test_every_form_of_a_spec_comes_to_the_same_run(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(run_spec.to_toml(spec_of()))
    forms: list[Any] = [BASE, spec_of(), file, str(file)]
    for form in forms:
        assert composed(form, {"seed": 6, "target": 1.0}).spec == spec_of(
            seed=6, stop={"target": 1.0}
        )


def test_settings_go_over_all_of_a_whole_spec(tmp_path: Path) -> None:
    """Also where a field that it has says nothing for another kind, and where it begins."""
    whole = composed("CartPole-v1", {"updates": 3}).spec
    other = composed(whole, {"optimizer": "adam", "pool": "async"}).spec
    assert other.optimizer.kind == "adam" and other.pool.quorum < 1.0
    assert other.optimizer == composed("CartPole-v1", {"optimizer": "adam"}).spec.optimizer
    theta = np.full(whole.size, 0.5, np.float32)
    save_file(to_tensors(whole, theta, None), tmp_path / "theta.safetensors")
    begun = composed(whole, {"init": tmp_path / "theta.safetensors"})
    assert begun.first is not None and (begun.first.theta == theta).all()


def test_an_environment_by_name_has_its_preset() -> None:
    spec = composed("CartPole-v1", {"hidden": (8, 8), "pool": "quorum"}).spec
    assert spec.policy.hidden == (8, 8) and spec.stop.target == 475.0 and spec.pool.quorum < 1.0
    assert composed("CartPole-v1", {"target": None}).spec.stop.target is None
    assert composed("CartPole-v1", {"preset": "none"}).spec.strategy.sigma != 0.0


@pytest.mark.parametrize(
    ("overrides", "values"),
    [
        ({}, {}),
        ({"strategy": "snes", "sigma": 0.2}, {"strategy": {"kind": "snes", "sigma": 0.2}}),
        (
            {"strategy": {"kind": "snes"}, "population": 8},
            {"strategy": {"kind": "snes", "population": 8}},
        ),
        ({"policy": "nets:Net"}, {"policy": {"kind": "module", "module": "nets:Net"}}),
        ({"pool": {"quorum": 0.5}}, {"pool": {"quorum": 0.5}}),
        (
            {"pool": "sync", "quorum": 0.5},
            {"pool": {**PRESETS["sync"], "quorum": 0.5}},
        ),
        (
            {"objective": "f:g", "parameters": 3, "minimise": True},
            {"objective": {"function": "f:g", "parameters": 3, "goal": "minimise"}},
        ),
        ({"normalize": True, "name": "a"}, {"normalizer": {"enabled": True}, "name": "a"}),
        ({"updates": np.int64(3), "seed": 1}, {"stop": {"updates": 3}, "seed": 1}),
        (
            {"objective": {"start": np.arange(2.0)}, "hidden": np.array([4, 4])},
            {"objective": {"start": [0.0, 1.0]}, "policy": {"hidden": [4, 4]}},
        ),
        ({"target": None}, {"stop": {"target": None}}),
    ],
)
def test_settings_by_name_are_values_of_the_spec(
    overrides: dict[str, Any], values: dict[str, Any]
) -> None:
    assert spec_values(overrides) == values


@pytest.mark.parametrize(
    ("source", "overrides", "rule"),
    [
        ("CartPole-v1", {"sigmas": 1}, "did you mean 'sigma'"),
        ("CartPole-v1", {"zzz": 1}, f"there are {', '.join(NAMES[:3])}"),
        ("CartPole-v1", {"sigma": "large"}, "strategy.sigma"),
        ("CartPole-v1", {"sigma": None}, "strategy.sigma"),
        ("CartPole-v1", {"strategy": 5}, "strategy.kind"),
        ("CartPole-v1", {"centre": 5}, "centre"),
        ("CartPole-v1", {"pool": "fast"}, "fast"),
        ("CartPole-v1", {"hidden": 32}, "policy.hidden"),
        ("CartPole-v1", {"population": 3}, "strategy.population"),
        ("CartPole-v1", {"environment": ["toys"]}, "are environments=[...]"),
        ("CartPole-v1", {"preset": 3}, "preset is 3: must be the id of an environment"),
        ("CartPole-v1", {"policy": np.arange(3)}, "policy.kind"),
        ("CartPole-v1", {"init": 3}, "init is 3: must be a path"),
        ("CartPole-v1", {"init": "nowhere"}, "nowhere"),
        ("nowhere.toml", {}, "no run file nowhere.toml"),
        (Path("CartPole-v1"), {}, "ends in .toml"),
        ({}, {}, "the run names no environment"),
        ({"environment": 5}, {}, "the run names no environment"),
        (5, {}, "spec is of type int"),
        (["CartPole-v1"], {}, "spec is of type list"),
        (None, {"objective": "nowhere"}, "objective"),
    ],
)
def test_what_is_no_run_is_a_line(source: Any, overrides: dict[str, Any], rule: str) -> None:
    with pytest.raises(ShoalError) as error:
        composed(source, overrides)
    assert rule in str(error.value) and "\n" not in str(error.value)
