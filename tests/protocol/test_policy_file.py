"""What a policy file is written as, it is read as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import normalizer
from protocol import spec as run_spec
from protocol.policy_file import STATISTICS, PolicyError, from_tensors, to_tensors
from protocol.spec import RunSpec

FILE = Path("policy.safetensors")


def spec_of(observations: int, hidden: list[int], normalised: bool = True) -> RunSpec:
    return run_spec.parse(
        {
            "name": "test",
            "environment": {
                "id": "Test-v0",
                "observation": {"kind": "box", "shape": [observations]},
                "action": {"kind": "discrete", "n": 2},
            },
            "policy": {"kind": "mlp" if hidden else "linear", "hidden": hidden or [1]},
            "normalizer": {"enabled": normalised},
        }
    )


def parts_of(spec: RunSpec) -> tuple[Any, Any]:
    size = spec.environment.observation.size
    theta = np.arange(spec.size, dtype=np.float32)
    mean, squares = np.arange(size) / 3, np.arange(1.0, size + 1)
    return theta, normalizer.continued(7.0, mean, squares, 1)


@given(st.integers(1, 5), st.lists(st.integers(1, 4), max_size=3), st.booleans())
def test_a_policy_comes_back_as_it_was(size: int, hidden: list[int], normalised: bool) -> None:
    spec = spec_of(size, hidden, normalised)
    theta, statistics = parts_of(spec)
    kept = statistics if normalised else None
    found, with_it = from_tensors(spec, to_tensors(spec, theta, kept), FILE)
    np.testing.assert_array_equal(found, theta)
    assert found.dtype == np.float32
    assert (with_it is None) is not normalised
    if with_it is not None:
        np.testing.assert_array_equal(with_it, statistics.policy_input())


def test_tensors_are_the_layers_in_the_order_of_theta() -> None:
    spec = spec_of(2, [3])
    theta, statistics = parts_of(spec)
    tensors = to_tensors(spec, theta, statistics)
    assert tensors["layers.0.weight"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert tensors["layers.0.bias"].tolist() == [6, 7, 8]
    assert tensors["layers.1.weight"].tolist() == [[9, 10, 11], [12, 13, 14]]
    assert tensors["layers.1.bias"].tolist() == [15, 16]
    assert tuple(tensors)[-5:] == STATISTICS
    seen = [tensors[name].tolist() for name in STATISTICS]
    assert seen[:2] == [part.tolist() for part in statistics.policy_input()]
    assert seen[2:] == [[7.0], [0.0, 1 / 3], [1.0, 2.0]]
    assert set(to_tensors(spec, theta, None)) == {name for name in tensors if "lay" in name}


def test_a_recurrent_policy_has_the_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    plain = run_spec.to_plain(spec_of(2, [3, 4], normalised=False))
    spec = run_spec.parse({**plain, "policy": {"kind": "gru", "hidden": [3, 4]}})
    theta = np.arange(spec.size, dtype=np.float32)
    tensors = to_tensors(spec, theta, None)
    np.testing.assert_array_equal(from_tensors(spec, tensors, FILE)[0], theta)
    assert list(tensors)[:2] == ["gru.0.weight_ih", "gru.0.weight_hh"]
    assert list(tensors)[-2:] == ["readout.weight", "readout.bias"]
    for layer, (inputs, units) in enumerate([(2, 3), (3, 4)]):
        for name, parameter in torch.nn.GRUCell(inputs, units).named_parameters():
            assert tensors[f"gru.{layer}.{name}"].shape == tuple(parameter.shape)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("layers.0.weight", r"no float32 layers\.0\.weight of shape \(3, 2\).*different runs"),
        ("layers.1.bias", r"no float32 layers\.1\.bias of shape \(2,\)"),
        ("observation.mean", "lacks the observation statistics"),
        ("observation.inverse_deviation", "lacks the observation statistics"),
    ],
)
@pytest.mark.parametrize("damage", ["missing", "shape"])
def test_what_is_missing_or_of_another_shape_is_named(name: str, words: str, damage: str) -> None:
    spec = spec_of(2, [3])
    tensors = to_tensors(spec, *parts_of(spec))
    if damage == "missing":
        del tensors[name]
    else:
        tensors[name] = np.zeros((7, 7), np.float32)
    with pytest.raises(PolicyError, match=words):
        from_tensors(spec, tensors, FILE)


def test_parameters_of_another_precision_are_refused() -> None:
    spec = spec_of(2, [3])
    tensors: Any = to_tensors(spec, *parts_of(spec))
    tensors["layers.0.bias"] = tensors["layers.0.bias"].astype(np.float64)
    with pytest.raises(PolicyError, match="no float32"):
        from_tensors(spec, tensors, FILE)
