import hashlib
import subprocess
import sys
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import kernels, noise
from protocol.streams import words
from tests.protocol import vectors
from tests.protocol.vectors import VECTORS

KINDS = st.sampled_from(noise.KINDS)
SEEDS = st.integers(0, 2**64 - 1)
STARTS = st.one_of(st.integers(0, 100), st.integers(0, 2**63 - 1000))
SUMS_AND_MEMBERS = (kernels.add_rademacher_sum, kernels.rademacher_members)
SIZES = st.one_of(st.integers(0, 70), st.integers(2000, 2100), st.integers(4090, 4110))


def brute_force(kind, seed, start, weights, size):
    rows = noise.directions(kind, seed, start, len(weights), size)
    return sum((int(w) * row for w, row in zip(weights, rows, strict=True)), np.zeros(size, int))


def test_gaussian_table():
    assert vectors.digest(noise.gaussian_table()) == VECTORS["gaussian_table"]


def test_the_shipped_table_is_the_normal_quantiles():
    quantile = NormalDist().inv_cdf
    made = [round(4096 * quantile((i + 0.5) / 65536)) for i in range(65536)]
    assert noise.gaussian_table().tolist() == made
    assert noise.largest("gaussian") == max(made) == -min(made)


@pytest.mark.parametrize("case", VECTORS["directions"])
def test_direction_vectors(case):
    made = noise.directions(case["kind"], case["run_seed"], case["direction"], 1, case["size"])[0]
    assert made[:8].tolist() == case["first"]
    assert vectors.digest(made) == case["blake2b_128_of_int64_le"]


@pytest.mark.parametrize("case", VECTORS["weighted_sums"])
def test_weighted_sum_vectors(case):
    made = noise.weighted_sum(
        case["kind"],
        case["run_seed"],
        case["start"],
        vectors.weights(case["count"]),
        case["size"],
    )
    assert made.dtype == np.int64
    assert made[:8].tolist() == case["first"]
    assert vectors.digest(made) == case["blake2b_128_of_int64_le"]


@pytest.mark.parametrize("case", VECTORS["second_moments"])
def test_second_moment_vectors(case):
    made = noise.second_moment(
        "gaussian", case["run_seed"], case["start"], vectors.weights(case["count"]), case["size"]
    )
    assert made[:4].tolist() == case["first"]
    assert vectors.digest(made) == case["blake2b_128_of_int64_le"]


@pytest.mark.parametrize("case", VECTORS["episode_seeds"])
def test_episode_seed_vectors(case):
    arguments = case["run_seed"], case["index"], case["domain"]
    assert noise.episode_seed(*arguments) == case["seed"]
    assert noise.episode_seeds(case["run_seed"], [case["index"]], case["domain"]) == [case["seed"]]


@pytest.mark.parametrize("case", VECTORS["members"])
def test_member_vectors(case):
    theta = vectors.theta(case["size"])
    arguments = case["kind"], case["run_seed"], case["direction"]
    alone = noise.member(*arguments, case["sign"], theta, case["sigma"])
    both = noise.members(*arguments, 1, theta, case["sigma"])
    for made in (alone, both[0 if case["sign"] == 1 else 1]):
        assert [float(x).hex() for x in made[:4]] == case["first"]
        octets = made.astype("<f4").tobytes()
        assert hashlib.blake2b(octets, digest_size=16).hexdigest() == case["params_hash"]


@given(SEEDS, st.integers(0, 5), SEEDS, st.integers(0, 2**20))
@settings(deadline=None)
def test_philox_is_numpys(seed, domain, index, block):
    made = np.empty(16, np.uint64)
    first = np.uint64(block)
    kernels.fill_stream(np.uint64(seed), np.uint64(domain), np.uint64(index), first, made, 9)
    key, counter = np.array([seed, index], np.uint64), np.array([block, 0, 0, domain], np.uint64)
    assert made.tolist() == np.random.Philox(key=key, counter=counter).random_raw(16).tolist()


@given(KINDS, SEEDS, STARTS, st.lists(st.integers(-(2**30), 2**30), max_size=40), SIZES)
@settings(max_examples=200, deadline=None)
def test_weighted_sum_is_the_sum_over_directions(kind, seed, start, weights, size):
    made = noise.weighted_sum(kind, seed, start, weights, size)
    assert made.shape == (size,)
    assert np.array_equal(made, brute_force(kind, seed, start, weights, size))


@given(SEEDS, STARTS, st.lists(st.integers(-(2**22), 2**22), max_size=20), SIZES)
@settings(deadline=None)
def test_second_moment_is_the_sum_over_directions(seed, start, weights, size):
    rows = noise.directions("gaussian", seed, start, len(weights), size) ** 2 - 4096**2
    expected = np.array(weights, int) @ rows if weights else np.zeros(size, int)
    made = noise.second_moment("gaussian", seed, start, weights, size)
    assert np.array_equal(made, expected)


@given(KINDS, STARTS, st.lists(st.integers(-999, 999), max_size=60), st.data())
@settings(deadline=None)
def test_any_cut_of_the_directions_adds_up_to_the_same(kind, start, weights, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(weights)), max_size=5)))
    edges = [0, *cuts, len(weights)]
    total = np.zeros(1003, np.int64)
    parts = data.draw(st.permutations(list(pairwise(edges))))
    for begin, end in parts:
        noise.add_weighted_sum(kind, 7, start + begin, weights[begin:end], total)
    assert np.array_equal(total, noise.weighted_sum(kind, 7, start, weights, 1003))


def test_more_directions_than_one_set_of_tables_holds():
    count = 2 * noise.DIRECTIONS_AT_ONCE + 77
    weights = np.arange(count) % 13 - 6
    made = noise.weighted_sum("rademacher", 3, 5, weights, 33)
    assert np.array_equal(made, weights @ noise.directions("rademacher", 3, 5, count, 33))


@given(KINDS, SEEDS, STARTS, st.integers(0, 19), SIZES, st.sampled_from([0.1, 0.02, 3.0, 1e-3]))
@settings(deadline=None)
def test_members_are_two_roundings_of_theta_and_noise(kind, seed, start, count, size, sigma):
    theta = vectors.theta(size) - np.float32(5)
    made = noise.members(kind, seed, start, count, theta, sigma)
    assert made.dtype == np.float32 and made.shape == (2 * count, size)
    for i, row in enumerate(noise.directions(kind, seed, start, count, size)):
        product = np.float32(sigma * noise.unit(kind)) * row.astype(np.float32)
        assert np.array_equal(made[2 * i], theta + product)
        assert np.array_equal(made[2 * i + 1], theta - product)
        for sign in (1, -1):
            alone = noise.member(kind, seed, start + i, sign, theta, sigma)
            assert np.array_equal(made[2 * i + (sign < 0)], alone)


@given(KINDS, SEEDS, STARTS, st.integers(0, 19), SIZES, st.sampled_from([1, 2]))
@settings(deadline=None)
def test_a_sigma_for_each_parameter_rounds_twice_as_well(kind, seed, start, count, size, each):
    theta = vectors.theta(size) - np.float32(5)
    sigmas = np.linspace(1e-4, 2.0, size) / 3
    order = np.random.default_rng(size).permutation(size).astype(np.int32)
    made = noise.members(
        kind, seed, start, count, theta[order], sigmas[order], order=order, per_direction=each
    )
    for i, row in enumerate(noise.directions(kind, seed, start, count, size)):
        product = (sigmas * noise.unit(kind)).astype(np.float32) * row.astype(np.float32)
        for mirror, sign in enumerate((1, -1)[:each]):
            alone = noise.member(kind, seed, start + i, sign, theta, sigmas)
            assert np.array_equal(alone, theta + np.float32(sign) * product)
            assert np.array_equal(made[each * i + mirror], alone[order])


def test_one_sigma_for_all_is_that_sigma_for_each():
    theta = vectors.theta(70)
    for kind in noise.KINDS:
        one = noise.members(kind, 5, 3, 9, theta, 0.1)
        for dtype in (np.float32, np.float64):
            assert np.array_equal(noise.members(kind, 5, 3, 9, theta, np.full(70, 0.1, dtype)), one)
    with pytest.raises(ValueError, match=r"sigmas of shape \(69,\): must be \(70,\)"):
        noise.members("gaussian", 5, 3, 9, theta, np.full(69, 0.1))


@given(KINDS, SEEDS, STARTS, st.integers(0, 19), SIZES)
@settings(deadline=None)
def test_members_without_mirror_are_every_other_one(kind, seed, start, count, size):
    theta = vectors.theta(size) - np.float32(5)
    both = noise.members(kind, seed, start, count, theta, 0.3)
    alone = noise.members(kind, seed, start, count, theta, 0.3, per_direction=1)
    assert np.array_equal(alone, both[::2])
    with pytest.raises(ValueError, match="must be 1 or 2"):
        noise.members(kind, seed, start, count, theta, 0.3, per_direction=3)


@given(KINDS, SEEDS, STARTS, st.integers(0, 19), SIZES, st.integers(0, 2**32))
@settings(deadline=None)
def test_members_in_another_order_are_the_same(kind, seed, start, count, size, shuffle):
    theta = vectors.theta(size) - np.float32(5)
    order = np.random.default_rng(shuffle).permutation(size).astype(np.int32)
    made = noise.members(kind, seed, start, count, theta[order], 0.1, order=order)
    for i in range(2 * count):
        alone = noise.member(kind, seed, start + i // 2, 1 - 2 * (i % 2), theta, 0.1)
        assert np.array_equal(made[i], alone[order])


@pytest.mark.parametrize("kind", ["rademacher", "gaussian"])
@pytest.mark.parametrize("size", [8191, 8192, 8193, 16_500])
def test_members_of_several_stretches_in_another_order_are_the_same(kind, size):
    theta = vectors.theta(size) - np.float32(5)
    order = np.random.default_rng(size).permutation(size).astype(np.int32)
    made = noise.members(kind, 3, 6, 4, theta[order], 0.1, order=order)
    for i in range(8):
        alone = noise.member(kind, 3, 6 + i // 2, 1 - 2 * (i % 2), theta, 0.1)
        assert np.array_equal(made[i], alone[order])


def test_an_order_of_another_shape_or_type_is_refused():
    theta = vectors.theta(50)
    for wrong in (np.arange(49, dtype=np.int32), np.arange(50)):
        with pytest.raises(ValueError, match="must be"):
            noise.members("rademacher", 1, 4, 3, theta, 0.1, order=wrong)


def test_a_fused_multiply_add_would_be_noticed():
    theta = vectors.theta(4000)
    row = noise.directions("gaussian", 7, 5, 1, theta.size)[0]
    scale = np.float64(np.float32(0.3 / 4096))
    fused = (theta.astype(np.float64) + scale * row).astype(np.float32)
    assert (noise.members("gaussian", 7, 5, 1, theta, 0.3)[0] != fused).any()


def test_members_fill_the_array_that_they_are_given():
    theta, out = vectors.theta(50), np.zeros((6, 50), np.float32)
    assert noise.members("rademacher", 1, 4, 3, theta, 0.1, out=out) is out
    assert np.array_equal(out, noise.members("rademacher", 1, 4, 3, theta, 0.1))
    for wrong in (np.zeros((5, 50), np.float32), np.zeros((6, 50)), out.T[:50].T[:, ::-1]):
        with pytest.raises(ValueError, match="must be"):
            noise.members("rademacher", 1, 4, 3, theta, 0.1, out=wrong)


def test_read_only_and_scattered_arrays_compile_nothing_new():
    weights, theta = np.arange(24), vectors.theta(80)
    expected = noise.weighted_sum("rademacher", 1, 0, weights[::2], 80)
    noise.members("rademacher", 1, 0, 2, theta[::2].copy(), 0.1)
    counts = [len(kernel.signatures) for kernel in SUMS_AND_MEMBERS]
    frozen = weights[::2].copy()
    frozen.setflags(write=False)
    theta.setflags(write=False)
    assert np.array_equal(noise.weighted_sum("rademacher", 1, 0, frozen, 80), expected)
    noise.members("rademacher", 1, 0, 2, theta[::2], 0.1)
    assert [len(kernel.signatures) for kernel in SUMS_AND_MEMBERS] == counts


def test_rademacher_directions_of_a_block_are_independent():
    rows = noise.directions("rademacher", 11, 0, 16, 100_000)
    correlation = rows @ rows.T / rows.shape[1]
    assert np.abs(correlation - np.eye(16)).max() < 0.02


def test_gaussian_noise_is_standard_normal():
    values = noise.directions("gaussian", 11, 0, 4, 50_000) * noise.unit("gaussian")
    assert abs(values.mean()) < 0.01 and abs(values.std() - 1) < 0.01
    assert abs((values**4).mean() - 3) < 0.1


def test_a_sum_that_could_not_be_exact_is_refused():
    most = 2**53 - 1
    assert abs(noise.weighted_sum("rademacher", 1, 0, [most], 3)).tolist() == [most] * 3
    for weights in ([most, 1], [-most, -1], [2**52, -(2**52)], [-(2**63)]):
        with pytest.raises(OverflowError, match=r"below 2\*\*53"):
            noise.weighted_sum("rademacher", 1, 0, weights, 3)
    with pytest.raises(OverflowError, match=r"up to 17715"):
        noise.weighted_sum("gaussian", 1, 0, [2**53 // 17715 + 1], 3)
    with pytest.raises(OverflowError, match=r"below 2\*\*63"):
        noise.second_moment("gaussian", 1, 0, [2**40], 3)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="'cauchy': must be one of rademacher, gaussian"):
        noise.weighted_sum("cauchy", 1, 0, [1], 3)
    with pytest.raises(TypeError, match="float64: must be integers"):
        noise.weighted_sum("rademacher", 1, 0, [0.5], 3)
    with pytest.raises(ValueError, match="one dimension"):
        noise.weighted_sum("rademacher", 1, 0, [[1]], 3)
    with pytest.raises(ValueError, match="directions -1"):
        noise.weighted_sum("rademacher", 1, -1, [1], 3)
    with pytest.raises(ValueError, match=r"2\*\*63"):
        noise.weighted_sum("gaussian", 1, 2**63 - 1, [1, 1], 3)
    with pytest.raises(ValueError, match="run seed"):
        noise.members("gaussian", 2**64, 0, 1, vectors.theta(3), 0.1)
    with pytest.raises(ValueError, match="only gaussian"):
        noise.second_moment("rademacher", 1, 0, [1], 3)
    with pytest.raises(ValueError, match="sign 0"):
        noise.member("rademacher", 1, 0, 0, vectors.theta(3), 0.1)


def test_episode_seeds_are_those_of_episode_seed():
    indices = np.array([[0, 1, 65536], [2**63 + 1, 2**64 - 1, 7]], dtype=np.uint64)
    made = noise.episode_seeds(2**64 - 1, indices, domain=noise.Domain.CENTRE)
    expected = [[noise.episode_seed(2**64 - 1, int(i), 4) for i in row] for row in indices]
    assert made.tolist() == expected


def test_words_feed_the_directions():
    assert noise.directions("gaussian", 5, 9, 1, 4)[0].tolist() == [
        int(noise.gaussian_table()[int(words(5, 0, 9, 1)[0]) >> 16 * j & 0xFFFF]) for j in range(4)
    ]


@pytest.mark.parametrize(
    ("kind", "count", "size"), [("rademacher", 20_000, 1000), ("gaussian", 40, 1_000_000)]
)
def test_a_sum_needs_little_memory_above_its_result(kind, count, size):
    code = f"""
import resource, numpy as np
from protocol import noise
weights = np.arange({count}) % 7 - 3
noise.weighted_sum({kind!r}, 1, 0, weights[:8], 100)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = noise.weighted_sum({kind!r}, 1, 0, weights, {size})
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024 - result.nbytes)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64 * 2**20
