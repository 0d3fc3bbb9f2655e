import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ShoalError
from protocol.initialisation import initial_theta
from protocol.networks import Image, Tensor, convolutional, dense, recurrent
from protocol.noise import gaussian_table, stream
from protocol.state import params_hash
from protocol.streams import Domain


def test_zero_start():
    assert not initial_theta(1, dense((4, 8, 2)), "zero", 1.0).any()


def test_scaled_start_has_the_deviation_of_its_inputs_and_no_bias():
    theta = initial_theta(7, dense((100, 300, 10)), "scaled", 0.5)
    assert theta.dtype == np.float32 and theta.shape == (100 * 300 + 300 + 300 * 10 + 10,)
    first, bias, second, last = np.split(theta, np.cumsum([30_000, 300, 3000]))
    assert not bias.any() and not last.any()
    assert abs(first.std() / 0.05 - 1) < 0.02 and abs(second.std() * 300**0.5 / 0.5 - 1) < 0.05
    assert abs(first.mean()) < 1e-3
    assert not np.array_equal(theta, initial_theta(8, dense((100, 300, 10)), "scaled", 0.5))


def test_scaled_start_is_pinned():
    theta = initial_theta(2**64 - 1, dense((4, 32, 2)), "scaled", 1.0)
    assert params_hash(theta) == "4a2a9318911066111ea1d46d2b5dbfc5"


def test_each_tensor_of_weights_has_noise_of_its_own():
    theta = initial_theta(7, recurrent(4, (5, 5), 2), "scaled", 1.0)
    ends = np.cumsum([60, 75, 15, 15, 75, 75, 15, 15, 20, 2])
    parts = np.split(theta, ends[:-1])
    biases = [parts[i] for i in (2, 3, 6, 7, 9)]
    assert not any(bias.any() for bias in biases)
    assert len({parts[i][:15].tobytes() for i in (1, 4, 5)}) == 3
    np.testing.assert_array_equal(parts[0], initial_theta(7, dense((4, 15)), "scaled", 1.0)[:60])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**64 - 1))
def test_orthogonal_weights_are_orthonormal_the_shorter_way(outputs, inputs, seed):
    theta = initial_theta(seed, [Tensor("w", (outputs, inputs))], "orthogonal", 3.0)
    weights = theta.reshape(outputs, inputs).astype(np.float64) / 3.0
    product = weights @ weights.T if outputs < inputs else weights.T @ weights
    np.testing.assert_allclose(product, np.eye(min(outputs, inputs)), atol=1e-5)


def test_orthogonal_weights_have_no_direction_before_others():
    starts = [
        initial_theta(seed, [Tensor("w", (6, 4))], "orthogonal", 1.0).reshape(6, 4)
        for seed in range(400)
    ]
    assert np.abs(np.mean(starts, axis=0)).max() < 0.1
    np.testing.assert_allclose(np.var(starts, axis=0), 1 / 6, atol=0.04)


def test_orthogonal_weights_are_the_plain_sums_in_order():
    outputs, inputs = 4, 7
    halves = stream(9, Domain.INITIALISATION, 0, 2 * outputs * inputs).view("<u2").tolist()
    table = gaussian_table()
    rows = [
        [2.0 * float(table[halves[row * inputs + i]]) + 1.0 for i in range(inputs)]
        for row in range(outputs)
    ]
    for place, row in enumerate(rows):
        square = 0.0
        for value in row:
            square += value * value
        row[:] = [value / math.sqrt(square) for value in row]
        for other in rows[place + 1 :]:
            share = 0.0
            for value, their in zip(row, other, strict=True):
                share += value * their
            other[:] = [their - value * share for value, their in zip(row, other, strict=True)]
    expected = (np.array(rows) * 0.7).astype(np.float32).ravel()
    found = initial_theta(9, [Tensor("w", (outputs, inputs))], "orthogonal", 0.7)
    np.testing.assert_array_equal(found, expected)


def test_orthogonal_start_is_pinned():
    image = Image(8, 9, 2, channels_first=False)
    pinned = {
        dense((4, 32, 2)): "2123d2b937a7b955ec8de275dd215472",
        recurrent(3, (5, 4), 2, "lstm"): "ae6dbebe82e49d0157d6ca088617271b",
        convolutional(image, [(5, 3, 2)], [7], 3): "67a822a0c38d275cf2f8a9d750f4aac8",
    }
    for tensors, expected in pinned.items():
        assert params_hash(initial_theta(2**64 - 1, tensors, "orthogonal", 1.4)) == expected


@pytest.mark.parametrize("kind", ["scaled", "orthogonal"])
def test_the_final_scale_is_of_the_last_weights_alone(kind):
    tensors = recurrent(3, (4,), 2)
    plain = initial_theta(5, tensors, kind, 1.0)
    small = initial_theta(5, tensors, kind, 1.0, 0.25)
    np.testing.assert_array_equal(small[:-10], plain[:-10])
    np.testing.assert_allclose(small[-10:], 0.25 * plain[-10:], rtol=1e-6)
    assert small[-10:-2].all() and not initial_theta(5, tensors, kind, 1.0, 0.0)[-10:].any()


def test_an_initialisation_of_another_name_is_refused():
    with pytest.raises(ShoalError, match="'xavier': must be one of zero, scaled, orthogonal"):
        initial_theta(1, dense((4, 2)), "xavier", 1.0)
