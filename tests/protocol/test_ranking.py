import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.ranking import centred_ranks
from tests.protocol.vectors import VECTORS

RETURNS = st.lists(
    st.one_of(st.integers(-3, 3).map(float), st.floats(allow_nan=False, allow_infinity=False)),
    max_size=30,
)


@pytest.mark.parametrize("case", VECTORS["centred_ranks"])
def test_vectors(case):
    made = centred_ranks(case["returns"])
    assert made.dtype == np.int64
    assert made.tolist() == case["weights"]


@given(RETURNS)
def test_a_rank_is_what_is_below_minus_what_is_above(returns):
    assert centred_ranks(returns).tolist() == [
        sum(other < own for other in returns) - sum(other > own for other in returns)
        for own in returns
    ]


@given(RETURNS, st.randoms())
def test_ranks_follow_their_returns_into_any_order(returns, random):
    order = list(range(len(returns)))
    random.shuffle(order)
    shuffled = centred_ranks([returns[i] for i in order])
    assert shuffled.tolist() == centred_ranks(returns)[order].tolist()


@given(st.integers(0, 50), st.floats(allow_nan=False, allow_infinity=False))
def test_equal_returns_have_no_ranks(count, value):
    assert not centred_ranks([value] * count).any()


def test_both_zeros_are_one_value():
    assert centred_ranks([0.0, -0.0, 1.0]).tolist() == [-1, -1, 2]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match=f"{bad} at position 2: must be finite"):
        centred_ranks([1.0, 2.0, bad, 4.0])


def test_more_than_one_dimension_is_refused():
    with pytest.raises(ValueError, match="one dimension"):
        centred_ranks([[1.0, 2.0]])
