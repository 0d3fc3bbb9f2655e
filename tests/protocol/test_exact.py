import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.exact import euclidean, exp, log, norm, sum_of_squares


@given(st.integers(0, 53), st.sampled_from([0, 1, 5, 8191, 8192, 8193, 20_000]), st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_sum_of_squares_is_exact(bits, size, seed):
    values = np.random.default_rng(seed).integers(-(2**bits), 2**bits, size, endpoint=True)
    assert sum_of_squares(values) == sum(value**2 for value in values.tolist())


def test_the_largest_values():
    for extreme in (2**53, -(2**53)):
        assert sum_of_squares(np.full(30_000, extreme)) == 30_000 * 2**106


def test_the_norm_is_rounded_from_the_exact_sum():
    assert norm(np.array([3, -4])) == 5.0
    assert norm(np.array([2**53, 1])) == 2.0**53
    assert norm(np.array([1, 1])) == 2.0**0.5


@given(
    st.lists(st.floats(-1e308, 1e308), max_size=50)
    | st.lists(st.floats(-1e-300, 1e-300), min_size=1, max_size=9)
)
@settings(deadline=None)
def test_the_norm_of_floats_is_pythons_as_far_as_it_is_one(values):
    ours, pythons = euclidean(np.array(values, float)), math.hypot(*values)
    # Within a rounding of the largest number one may be infinite before the other.
    assert math.isclose(ours, pythons, rel_tol=1e-14) or min(ours, pythons) > 1.7976931348623e308


def test_a_norm_beyond_the_largest_number_is_infinite():
    assert euclidean(np.full(4, 9e307)) == math.inf
    assert euclidean(np.full(3, 9e307)) == pytest.approx(9e307 * 3**0.5)


def test_the_norm_of_floats_adds_in_one_order():
    """Whatever NumPy's own sum does: a change here would part peers."""
    values = np.random.default_rng(3).normal(size=40_001) * np.linspace(0.1, 9, 40_001)
    squares, size = [(v / 64.0) ** 2 for v in values.tolist()], 40_001
    while size > 1:
        kept = (size + 1) // 2
        for index in range(size - kept):
            squares[index] += squares[kept + index]
        size = kept
    assert euclidean(values) == math.sqrt(squares[0]) * 64.0
    assert values.max() < 64.0


@given(st.lists(st.floats(-699.0, 699.0), min_size=1, max_size=30))
@settings(deadline=None)
def test_exp_is_within_two_units_in_the_last_place(values):
    for value, found in zip(values, exp(np.array(values)), strict=True):
        expected = math.exp(value)
        assert abs(found - expected) <= 2 * math.ulp(expected)


def test_exp_of_what_is_known_and_beyond_its_range():
    assert exp(np.array([0.0, -0.0])).tolist() == [1.0, 1.0]
    assert exp(np.array([1e9, -1e9])).tolist() == exp(np.array([700.0, -700.0])).tolist()
    digits = np.linspace(-30, 30, 1001)
    pinned = hashlib.blake2b(exp(digits).tobytes(), digest_size=16).hexdigest()
    assert pinned == "a04e50275ecec6aee6cb16fa04489f90"


@given(st.floats(1e-300, 1e300))
@settings(deadline=None)
def test_log_is_pythons_within_some_units_in_the_last_place(value):
    expected = math.log(value)
    assert abs(log(value) - expected) <= 1e-15 * max(1.0, abs(expected))
    assert log(1.0) == 0.0
