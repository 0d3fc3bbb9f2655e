from typing import Any, get_args

import numpy as np
import pytest
from numba import njit

from protocol.policies import Activation
from tests.worker import reference
from worker.policies import activations, elementwise
from worker.policies.forms import activation as torch_activation

WIDE = np.array([0.0, 0.1, 0.5, 1.0, 3.0, 6.0, 20.0, 20.1, 88.0, 104.0, 700.0, 3e38, np.inf])


@njit
def tanh_of(x, out):
    for i in range(x.size):
        out[i] = activations.tanh(x[i])


@njit
def sigmoid_of(x, out):
    for i in range(x.size):
        out[i] = activations.sigmoid(x[i])


@njit
def activate(values, code):
    activations.activate(values, code)


def test_tanh_is_accurate_odd_and_bounded():
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            np.exp(rng.uniform(np.log(1e-30), np.log(12.0), 200_000)),
            [0.0, 8.999, 9.0, 9.001, 50.0, np.inf, 1e38],
        ]
    ).astype(np.float32)
    out, mirrored = np.empty_like(x), np.empty_like(x)
    tanh_of(x, out)
    tanh_of(-x, mirrored)
    true = np.tanh(x.astype(np.float64))
    error = np.abs(out - true) / np.spacing(true.astype(np.float32))
    assert error.max() <= 7.0
    np.testing.assert_array_equal(mirrored, -out)
    assert np.abs(out).max() == 1.0
    np.testing.assert_array_equal(out, reference.tanh(x))


def test_sigmoid_is_accurate_and_bounded():
    x = np.linspace(-40, 40, 20_001, dtype=np.float32)
    out = np.empty_like(x)
    sigmoid_of(x, out)
    np.testing.assert_allclose(out, 1 / (1 + np.exp(-x.astype(np.float64))), atol=2e-7)
    assert out.min() == 0.0 and out.max() == 1.0
    np.testing.assert_array_equal(out, reference.sigmoid(x))


def test_activations_pass_nan_on():
    out = np.empty(1, np.float32)
    tanh_of(np.array([np.nan], np.float32), out)
    assert np.isnan(out[0])
    assert np.isnan(activations.relu.py_func(np.float32("nan")))


def inputs() -> Any:
    """Numbers near 0, of every size down to the smallest, and those where something ends."""
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(np.log(1e-45), np.log(3e38), 3000)) * rng.choice([-1, 1], 3000)
    return np.concatenate([rng.normal(0, 3, 3000), sizes, WIDE, -WIDE, [np.nan]]).astype(np.float32)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", get_args(Activation))
def test_activations_are_those_of_torch(name):
    torch = pytest.importorskip("torch")
    x = inputs()
    found = x.copy()
    activate(found, activations.code(name))
    expected = torch_activation(name)(torch.from_numpy(x.astype(np.float64))).numpy()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    with np.errstate(over="ignore"):
        equal = (found == expected.astype(np.float32)) | np.isnan(expected)
    # What PyTorch itself loses in float64, and half of the smallest float32; as relu and tanh,
    # which are for speed, have 7 units in the last place.
    allowed = 1e-6 * np.abs(expected) + 4e-16 * np.abs(x) + 1e-45
    wrong = ~(equal | (np.abs(found - expected) <= allowed))
    assert not wrong.any(), (name, x[wrong][:5], found[wrong][:5], expected[wrong][:5])


def test_an_activation_stays_within_its_values():
    values = np.ones(7, np.float32)
    activate(values[2:4], activations.code("softplus"))
    assert (values != 1.0).tolist() == [False, False, True, True, False, False, False]


def test_only_activations_that_are_asked_for_are_compiled():
    assert (
        activations.code("tanh") == activations.TANH
        and activations.code("relu") == activations.RELU
    )
    assert set(elementwise.FUNCTIONS) == set(get_args(Activation)) - {"tanh", "relu"}
    before = elementwise.compiled.cache_info().currsize
    assert activations.code("mish") == activations.code("mish") != activations.code("silu")
    assert elementwise.compiled.cache_info().currsize <= before + 2
