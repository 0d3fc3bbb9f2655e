"""One update of each strategy against its paper's formula, in plain float64 over all members."""

import math

import numpy as np
import pytest

from protocol import noise, strategies
from protocol.state import initial_state
from protocol.strategies import Cohort
from tests.protocol.strategies import runs

SIZE, COUNT, SIGMA = 12, 15, 0.2
START = np.linspace(-1.0, 2.0, SIZE).astype(np.float32)
RETURNS = np.random.default_rng(2).normal(size=(COUNT, 2)) ** 3


def members(each=2):
    """Noise and returns of every member."""
    rows = noise.directions("gaussian", runs.RUN_SEED, 0, COUNT, SIZE) / 4096
    signs = np.array([1.0, -1.0])[:each]
    z = (rows[:, None, :] * signs[None, :, None]).reshape(-1, SIZE)
    return z, RETURNS[:, :each].reshape(-1)


def stepped(strategy, each=2, rate=1.0, updates=1):
    """What the strategy makes of them: parameters' move, and the state."""
    plain = {"kind": "sgd", "momentum": 0.0}
    arithmetic = runs.rules(strategy, SIZE, plain)
    state = initial_state(arithmetic, START, SIGMA)
    minus = RETURNS[:, 1].copy() if each == 2 else None
    for _ in range(updates):
        cohort = Cohort(0, state.version, 0, RETURNS[:, 0].copy(), minus)
        state = runs.made(arithmetic, state, [cohort], rate)
    return state.theta.astype(float) - START, state


def utilities(kind, r):
    if kind == "centred-ranks":
        return r.argsort().argsort() / (r.size - 1) - 0.5
    if kind == "z-score":
        return (r - r.mean()) / r.std()
    if kind == "sign":
        return np.sign(r - np.median(r))
    if kind == "raw":
        return r - r.mean()
    return (r - r.mean()) / (r.max() - r.min())


def near(found, expected, quantum=1e-4):
    """As near as weights of 15 bits and parameters in float32 are."""
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=quantum * scale + 1e-6)


@pytest.mark.parametrize("each", [2, 1])
@pytest.mark.parametrize("shaping", strategies.SHAPINGS)
def test_openai_es_with_every_shaping(shaping, each):
    z, r = members(each)
    u = utilities(shaping, r)
    found, _ = stepped(strategies.make("openai-es", {"shaping": shaping}), each)
    near(found, (u[:, None] * z).mean(0) / SIGMA)


@pytest.mark.parametrize(("elites", "best"), [(1.0, 15), (0.4, 6), (0.01, 1)])
def test_ars_is_its_algorithm_2(elites, best):
    z = members()[0][::2]
    plus, minus = RETURNS.T
    top = np.argsort(-np.maximum(plus, minus))[:best]
    deviation = np.concatenate([plus[top], minus[top]]).std()
    expected = 0.02 / (best * deviation) * ((plus - minus)[top, None] * z[top]).sum(0)
    found, _ = stepped(strategies.make("ars", {"elites": elites}), rate=0.02)
    near(found, expected)


def test_ars_counts_late_directions_less():
    arithmetic = runs.rules(strategies.make("ars", {"discount": 1}), SIZE)
    plus, minus = (column.copy() for column in RETURNS.T)
    cohorts = [Cohort(0, 3, 0, plus[:8], minus[:8]), Cohort(8, 2, 1, plus[8:], minus[8:])]
    where = strategies.Situation(3, SIZE, SIGMA, noise.unit("gaussian"))
    made = arithmetic.strategy.weigh(cohorts, where)
    z = members()[0][::2]
    shares = np.repeat([60, 30], [8, 7])
    expected = ((shares * (plus - minus))[:, None] * z).sum(0) / shares.sum() / RETURNS.std()
    sums = sum(
        share * noise.weighted_sum("gaussian", runs.RUN_SEED, c.first_direction, row, SIZE)
        for c, row, share in zip(cohorts, made.weights, made.multipliers, strict=True)
    )
    near(sums * made.scale, expected)


@pytest.mark.parametrize("shaping", ["centred-ranks", "z-score", "raw"])
def test_pgpe_moves_mean_and_deviation_by_their_gradients(shaping):
    z, r = members()
    u = utilities(shaping, r).reshape(-1, 2)
    half = z[::2]
    found, state = stepped(strategies.make("pgpe", {"shaping": shaping, "sigma_rate": 0.3}))
    near(found, (((u[:, 0] - u[:, 1]) / 2)[:, None] * SIGMA * half).mean(0))
    growth = ((u.sum(1) / 2 - u.mean())[:, None] * SIGMA * (half**2 - 1)).mean(0)
    near(state.sigmas, SIGMA + np.clip(0.3 * growth, -0.2 * SIGMA, 0.2 * SIGMA))
    assert (np.abs(0.3 * growth) > 0.2 * SIGMA).any() or shaping != "raw"


@pytest.mark.parametrize("each", [2, 1])
def test_snes_follows_the_natural_gradient(each):
    z, r = members(each)
    n = r.size
    position = (-r).argsort().argsort() + 1
    u = np.maximum(0, math.log(n / 2 + 1) - np.log(position))
    u = u / u.sum() - 1 / n
    found, state = stepped(strategies.get("snes")(), each)
    near(found, SIGMA * (u[:, None] * z).sum(0))
    rate = (3 + math.log(SIZE)) / (5 * math.sqrt(SIZE))
    near(state.sigmas, SIGMA * np.exp(rate / 2 * (u[:, None] * (z**2 - 1)).sum(0)))


@pytest.mark.parametrize("each", [2, 1])
def test_cem_takes_mean_and_deviation_of_the_elites(each):
    z, r = members(each)
    elites = START + SIGMA * z[np.argsort(-r)[: round(0.4 * r.size)]]
    strategy = strategies.make("cem", {"elites": 0.4, "extra_noise": 0.5, "extra_noise_updates": 9})
    found, state = stepped(strategy, each)
    near(START + found, elites.mean(0))
    near(state.sigmas, np.sqrt(elites.var(0) + (0.5 * SIGMA) ** 2))
    plain, _ = stepped(strategies.make("cem", {"elites": 0.4, "extra_noise": 0.0}), each)
    near(plain, found)


def test_the_extra_noise_of_cem_fades_in_a_line():
    strategy = strategies.make("cem", {"extra_noise": 0.5, "extra_noise_updates": 8})
    cohort = Cohort(0, 0, 0, *(column.copy() for column in RETURNS.T))
    added = [
        strategy.weigh([cohort], strategies.Situation(v, SIZE, SIGMA, 1.0)).scalars[0]
        for v in (0, 2, 8, 20)
    ]
    np.testing.assert_allclose(added, [0.01, 0.0075, 0.0, 0.0])


@pytest.mark.parametrize("each", [2, 1])
def test_sep_cma_is_cma_with_a_diagonal(each):
    """Three updates, in the paper's own words, of the selected steps."""
    z, r = members(each)
    if each == 2:
        z, r = z.reshape(-1, 2, SIZE), r.reshape(-1, 2)
        best = r.argmax(1)
        z, r = z[np.arange(COUNT), best], r.max(1)
    n, mu = SIZE, r.size // 2
    w = math.log(mu + 1) - np.log(np.arange(1, mu + 1))
    w /= w.sum()
    chosen = z[np.argsort(-r)[:mu]]
    mu_eff = 1 / (w**2).sum()
    c_s = (mu_eff + 2) / (n + mu_eff + 3)
    d_s = 1 + 2 * max(0, math.sqrt((mu_eff - 1) / (n + 1)) - 1) + c_s
    c_c = 4 / (n + 4)
    c_cov = 1 / mu_eff * 2 / (n + math.sqrt(2)) ** 2
    c_cov += (1 - 1 / mu_eff) * min(1, (2 * mu_eff - 1) / ((n + 2) ** 2 + mu_eff))
    c_cov *= (n + 2) / 3
    chi = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))
    mean, sigma, c = START.astype(float), SIGMA, np.ones(n)
    p_s, p_c = np.zeros(n), np.zeros(n)
    for g in range(3):
        y = np.sqrt(c) * chosen
        average = (w[:, None] * y).sum(0)
        mean = mean + sigma * average
        p_s = (1 - c_s) * p_s + math.sqrt(c_s * (2 - c_s) * mu_eff) * average / np.sqrt(c)
        length = np.linalg.norm(p_s)
        h = length / math.sqrt(1 - (1 - c_s) ** (2 * (g + 1))) < (1.4 + 2 / (n + 1)) * chi
        p_c = (1 - c_c) * p_c + h * math.sqrt(c_c * (2 - c_c) * mu_eff) * average
        c = (1 - c_cov) * c + c_cov / mu_eff * p_c**2
        c += c_cov * (1 - 1 / mu_eff) * (w[:, None] * y**2).sum(0)
        sigma *= math.exp(c_s / d_s * (length / chi - 1))
        found, state = stepped(strategies.get("sep-cma")(), each, updates=g + 1)
        near(START + found, mean, 1e-3)
        assert math.isclose(state.sigma, sigma, rel_tol=1e-3)
        near(state.sigmas, sigma * np.sqrt(c), 1e-3)


def test_shapings_that_are_no_ranks_clip_at_five_deviations():
    returns = np.append(np.linspace(-1, 1, 99), 1e6)
    for kind in ("z-score", "raw", "normalised"):
        far = strategies.shape(kind, returns)
        farther = strategies.shape(kind, np.append(np.linspace(-1, 1, 99), 1e9))
        assert np.abs(far.integers).max() == 32767
        utilities_, more = far.integers / far.divisor, farther.integers / farther.divisor
        if kind == "z-score":
            np.testing.assert_allclose(utilities_, more, rtol=1e-3)
            assert utilities_[-1] < 10.0
        limit = returns.mean() + 5 * returns.std()
        if kind == "raw":
            clipped = np.minimum(returns, limit)
            np.testing.assert_allclose(utilities_[-1], limit - clipped.mean(), rtol=1e-6)


@pytest.mark.parametrize("kind", strategies.SHAPINGS)
def test_shapings_do_not_depend_on_the_order(kind):
    source = np.random.default_rng(1)
    returns = np.round(source.normal(size=101) * 3)
    order = source.permutation(101)
    straight, shuffled = strategies.shape(kind, returns), strategies.shape(kind, returns[order])
    assert np.array_equal(straight.integers[order], shuffled.integers)
    assert straight.divisor == shuffled.divisor
    assert not strategies.shape(kind, np.full(9, 0.1)).integers.any()
    tiny = strategies.shape(kind, np.array([0.0, 5e-324, 0.0]))
    assert tiny.integers[1] > tiny.integers[0] or kind == "z-score"
    with pytest.raises(ValueError, match="nan at position 1"):
        strategies.shape(kind, [1.0, np.nan])
