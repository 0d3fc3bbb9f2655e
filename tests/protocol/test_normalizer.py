import dataclasses
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import kernels, normalizer
from protocol.normalizer import LIMIT, MAX_COUNT, ObservationSums
from protocol.packing import WireError


def measured(frames, state, age=0):
    """Sums over the rows of `frames` as the version `age` updates ago measures."""
    words = np.zeros((frames.shape[1], 4), dtype=np.uint64)
    kernels.observe_frames(frames, *state.measure(age), words)
    return normalizer.from_words(len(frames), words)


def sums_of(rows):
    """Sums over rows of integers q."""
    columns = list(zip(*rows, strict=True))
    return ObservationSums(
        len(rows),
        tuple(sum(column) for column in columns),
        tuple(sum(q * q for q in column) for column in columns),
    )


def same_bits(one, other):
    arrays = ("mean", "squares", "shifts", "exponents")
    return one.count == other.count and all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in arrays
    )


ROWS = st.integers(1, 4).flatmap(
    lambda dims: st.lists(
        st.lists(st.integers(-LIMIT, LIMIT), min_size=dims, max_size=dims), min_size=1, max_size=6
    )
)


@given(ROWS, st.sampled_from([np.float32, np.float64]))
@settings(deadline=None)
def test_sums_are_those_of_the_rounded_frames(rows, dtype):
    state = normalizer.initial_state(len(rows[0]), 1)
    frames = (np.array(rows, dtype=np.float64) / 2**26).astype(dtype)
    rounded = [[round(float(x) * 2**26) for x in row] for row in frames]
    assert measured(frames, state) == sums_of(rounded)


def test_frames_round_to_even_around_the_shift():
    state = normalizer.initial_state(1, 1)
    state.shifts[0] = 3.0
    frames = 3.0 + np.array([[0.5], [1.5], [-0.5], [-2.5], [0.75]]) / 2**26
    assert measured(frames, state) == sums_of([[0], [2], [0], [-2], [1]])


def test_what_lies_beyond_the_range_counts_at_its_edge():
    state = normalizer.initial_state(1, 1)
    frames = np.array([[np.inf], [-np.inf], [1e300], [-1e300], [np.nan]])
    made = measured(frames, state)
    assert made == sums_of([[LIMIT], [-LIMIT], [LIMIT], [-LIMIT], [0]])
    assert measured(frames[[0] * 70_000], state).square == (70_000 * LIMIT**2,)


def test_one_frame_at_a_time_is_the_block():
    frames = np.random.default_rng(1).normal(size=(30, 3)).astype(np.float32)
    state = normalizer.initial_state(3, 1)
    words = np.zeros((3, 4), dtype=np.uint64)
    for frame in frames:
        kernels.observe_frame(frame, *state.measure(), words)
    assert normalizer.from_words(30, words) == measured(frames, state)


@pytest.mark.parametrize("seed", range(3))
def test_any_cut_and_order_gives_the_same_bits(seed):
    generator, order = np.random.default_rng(seed), random.Random(seed)
    states = [normalizer.initial_state(5, 2) for _ in range(3)]
    for _ in range(4):
        frames = generator.normal([0, 1, -3, 1e4, 0.1], [1, 1e-3, 50, 1, 0], size=(400, 5))
        for i, (state, cuts) in enumerate(zip(states, (0, 7, 90), strict=True)):
            parts = np.split(frames, sorted(order.sample(range(400), cuts)))
            sums = [measured(part, state) for part in parts]
            order.shuffle(sums)
            states[i] = normalizer.advance(state, [(0, normalizer.merge(sums))])
        assert same_bits(states[0], states[1]) and same_bits(states[0], states[2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("mean", "deviation"), [(0.0, 1.0), (1e4, 1.0), (-1e4, 1e-2), (1e6, 1e3), (0.0, 1e-2)]
)
def test_mean_and_deviation_are_right_from_the_first_update_on(mean, deviation, dtype):
    generator = np.random.default_rng(4)
    state = normalizer.initial_state(1, 1)
    seen = []
    for _ in range(20):
        frames = generator.normal(mean, deviation, size=(2000, 1)).astype(dtype)
        seen.append(frames.astype(np.float64))
        state = normalizer.advance(state, [(0, measured(frames, state))])
        everything = np.concatenate(seen)
        assert abs(state.mean[0] - everything.mean()) < 1e-6 * deviation
        assert abs(state.deviation()[0] - everything.std()) < 1e-6 * deviation
    assert state.count == 40_000.0


def test_values_that_all_round_the_same_way_move_the_mean_by_half_a_step_at_most():
    frames = np.tile([[1 / 3], [2 / 3], [1 / 7]], (500, 1)) + 1000
    state = normalizer.initial_state(1, 1)
    for _ in range(6):
        state = normalizer.advance(state, [(0, measured(frames, state))])
        assert abs(state.mean[0] - frames.mean()) < 1e-6 * frames.std()
        assert abs(state.deviation()[0] - frames.std()) < 1e-6 * frames.std()


def test_a_drifting_mean_keeps_the_statistics_of_everything_seen():
    generator = np.random.default_rng(5)
    state, seen = normalizer.initial_state(1, 1), []
    for step in range(20):
        frames = generator.normal(5.0 * step / 19, 1.0, size=(1000, 1))
        seen.append(frames)
        state = normalizer.advance(state, [(0, measured(frames, state))])
    everything = np.concatenate(seen)
    assert abs(state.mean[0] - everything.mean()) < 1e-6
    assert abs(state.deviation()[0] - everything.std()) < 1e-6


def test_late_sums_count_as_their_own_version_measured():
    generator = np.random.default_rng(6)
    frames = [generator.normal(100.0, 3.0, size=(500, 2)) for _ in range(3)]
    state = first = normalizer.initial_state(2, 3)
    state = second = normalizer.advance(state, [(0, measured(frames[0], state))])
    state = normalizer.advance(state, [(0, measured(frames[1][:200], state))])
    assert np.array_equal(state.measure(1)[0], second.measure()[0])
    assert np.array_equal(state.measure(2)[1], first.measure()[1])
    late = [(2, measured(frames[2], first)), (1, measured(frames[1][200:], second))]
    advanced = normalizer.advance(state, late)
    assert same_bits(advanced, normalizer.advance(state, late[::-1]))
    everything = np.concatenate(frames)
    assert np.abs(advanced.mean - everything.mean(0)).max() < 1e-5
    assert np.abs(advanced.deviation() - everything.std(0)).max() < 1e-5


def test_the_measure_follows_mean_and_deviation():
    frames = np.random.default_rng(7).normal([50.0, 3.0, 7.0], [8.0, 1e-3, 0.0], size=(900, 3))
    state = normalizer.initial_state(3, 2)
    state = normalizer.advance(state, [(0, measured(frames, state))])
    shift, scale = state.measure()
    assert (np.abs(shift - state.mean) * scale <= 0.5).all()
    assert np.array_equal(shift * scale, np.rint(shift * scale))
    steps = state.deviation()[:2] * scale[:2]
    assert (steps >= 2**19).all() and (steps < 2**20).all()
    assert scale[2] == 2.0**26  # constant so far
    resting = normalizer.advance(state, [])
    assert np.array_equal(resting.mean, state.mean) and resting.count == state.count
    assert np.array_equal(resting.measure()[1], scale)


def test_huge_and_tiny_deviations_stay_in_range():
    frames = np.random.default_rng(8).normal(0.0, [1e30, 1e-30], size=(100, 2))
    state = normalizer.initial_state(2, 1)
    for _ in range(12):
        state = normalizer.advance(state, [(0, measured(frames, state))])
    assert np.isfinite(state.squares).all()
    assert state.exponents.min() >= normalizer.LOWEST_EXPONENT
    assert state.exponents.max() <= normalizer.HIGHEST_EXPONENT
    # Version 0 measured the first dimension at the edge of its range; the rest outweighs it.
    assert abs(state.deviation()[0] / frames[:, 0].std() - 1) < 0.2


def test_policies_get_float32_and_zero_for_what_never_varies():
    state = normalizer.initial_state(2, 1)
    assert [array.tolist() for array in state.policy_input()] == [[0.0, 0.0], [1.0, 1.0]]
    frames = np.array([[1.0, 7.0], [3.0, 7.0]])
    mean, inverse = normalizer.advance(state, [(0, measured(frames, state))]).policy_input()
    assert mean.dtype == inverse.dtype == np.float32
    assert mean.tolist() == [2.0, 7.0] and inverse.tolist() == [1.0, 0.0]


def test_an_update_refuses_sums_that_do_not_fit():
    state = normalizer.initial_state(2, 2)
    nothing = normalizer.no_observations(2)
    for ages in ([2], [-1], [0, 0]):
        with pytest.raises(ValueError, match=r"each once, 0 \.\. 1"):
            normalizer.advance(state, [(age, nothing) for age in ages])
    with pytest.raises(ValueError, match="3 dimensions: must be 2"):
        normalizer.advance(state, [(0, normalizer.no_observations(3))])


@given(ROWS)
def test_bytes_round_trip(rows):
    sums = sums_of(rows)
    assert normalizer.from_bytes(normalizer.to_bytes(sums), len(rows[0])) == sums


def test_bytes_are_few():
    frames = np.random.default_rng(9).normal(size=(250, 4)).astype(np.float32)
    state = normalizer.initial_state(4, 1)
    assert len(normalizer.to_bytes(measured(frames, state))) <= 60
    state = normalizer.advance(state, [(0, measured(frames, state))])
    assert len(normalizer.to_bytes(measured(frames, state))) <= 48
    assert len(normalizer.to_bytes(normalizer.no_observations(4))) == 7


@given(st.binary(max_size=60), st.integers(1, 4))
def test_arbitrary_bytes_are_refused_or_possible_sums(data, dims):
    try:
        sums = normalizer.from_bytes(data, dims)
    except WireError:
        return
    state = normalizer.advance(normalizer.initial_state(dims, 1), [(0, sums)])
    assert np.isfinite(state.mean).all() and (state.squares >= 0).all()


@pytest.mark.parametrize(
    "sums",
    [
        ObservationSums(0, (1,), (1,)),
        ObservationSums(3, (6,), (11,)),  # three sixes' squares are 12 at least
        ObservationSums(1, (0,), (LIMIT**2 + 1,)),
        ObservationSums(MAX_COUNT + 1, (0,), (0,)),
    ],
)
def test_impossible_sums_are_refused(sums):
    with pytest.raises(WireError):
        normalizer.from_bytes(normalizer.to_bytes(sums), 1)


def test_sums_of_too_many_frames_are_refused():
    full = ObservationSums(MAX_COUNT, (0,), (0,))
    assert normalizer.merge([full]) == full
    with pytest.raises(OverflowError, match="frames"):
        normalizer.merge([full, ObservationSums(1, (0,), (0,))])


def test_what_policies_see_stays_finite_whatever_was_observed() -> None:
    state = dataclasses.replace(
        normalizer.initial_state(2, 1),
        count=10.0,
        mean=np.array([1e300, -1e300]),
        squares=np.array([1e300, 1.0]),
    )
    mean, inverse = state.policy_input()
    assert np.isfinite(mean).all()
    assert np.isfinite(inverse).all()
