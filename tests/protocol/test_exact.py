import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.exact import norm, sum_of_squares


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
