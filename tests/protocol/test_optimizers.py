import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import optimizers
from protocol.errors import ShoalError
from protocol.optimizers import (
    SGD,
    AdaBelief,
    Adam,
    AdamW,
    AMSGrad,
    Clipped,
    ClipUp,
    Decayed,
    LookAhead,
    Nesterov,
    Normalised,
    NovoGrad,
    RAdam,
)
from protocol.optimizers.base import BLOCK, blocks
from tests.protocol import optimizer_vectors

SIZE = 40
SIZES = (24, 4, 10, 2)
RATE = 0.03
SCALE = 1e-3
START = np.linspace(-1, 1, SIZE)
KINDS = sorted(optimizers.OPTIMIZERS)
PINNED = json.loads(optimizer_vectors.PATH.read_text())["runs"]


@pytest.fixture(params=KINDS)
def optimizer(request):
    return optimizers.make(request.param, {"weight_decay": 0.01}, SIZES)


def totals(count, seed=0):
    return np.random.default_rng(seed).integers(-3000, 3000, (count, SIZE))


def ascend(optimizer, count=60):
    """theta after `count` steps, all in float64, so that only the method is compared."""
    theta, slots = START.copy(), optimizer.initial_slots(SIZE)
    for total in totals(count):
        step, slots = optimizer.step(total, SCALE, theta, slots, RATE)
        theta = theta + step
    return theta


def assert_same(made, expected):
    assert np.allclose(made, expected, rtol=1e-10, atol=1e-12)
    assert np.abs(made - START).max() > 0.1


# Against PyTorch.


def ascend_torch(make, count=60, clip=None):
    torch = pytest.importorskip("torch")
    theta = torch.linspace(-1, 1, SIZE, dtype=torch.float64, requires_grad=True)
    optimizer = make(torch.optim, [theta])
    for total in totals(count):
        theta.grad = torch.from_numpy(total * SCALE)
        if clip is not None:
            torch.nn.utils.clip_grad_norm_([theta], clip)
        optimizer.step()
    return theta.detach().numpy()


MOMENTS = {"beta1": 0.8, "beta2": 0.99, "epsilon": 1e-6}
TORCHS = {"lr": RATE, "betas": (0.8, 0.99), "eps": 1e-6, "maximize": True}


@pytest.mark.parametrize("decay", [0.0, 0.02])
@pytest.mark.parametrize(
    ("kind", "name", "more"),
    [(Adam, "Adam", {}), (AMSGrad, "Adam", {"amsgrad": True}), (RAdam, "RAdam", {})],
)
def test_optimizers_with_moments_are_torchs(kind, name, more, decay):
    expected = ascend_torch(
        lambda optim, theta: getattr(optim, name)(theta, **TORCHS, **more, weight_decay=decay)
    )
    assert_same(ascend(kind(**MOMENTS, l2=decay)), expected)


@pytest.mark.parametrize(
    ("kind", "amsgrad"), [("adam", False), ("adamw", False), ("amsgrad", True)]
)
def test_decoupled_decay_is_that_of_torchs_adamw(kind, amsgrad):
    expected = ascend_torch(
        lambda optim, theta: optim.AdamW(theta, **TORCHS, amsgrad=amsgrad, weight_decay=0.2)
    )
    assert_same(ascend(optimizers.make(kind, {**MOMENTS, "weight_decay": 0.2})), expected)


@pytest.mark.parametrize("decay", [0.0, 0.02])
@pytest.mark.parametrize(
    ("kind", "momentum", "nesterov"),
    [(SGD, 0.0, False), (SGD, 0.9, False), (Nesterov, 0.9, True)],
)
def test_sgd_is_torchs(kind, momentum, nesterov, decay):
    expected = ascend_torch(
        lambda optim, theta: optim.SGD(
            theta, RATE, momentum, weight_decay=decay, nesterov=nesterov, maximize=True
        )
    )
    assert_same(ascend(kind(momentum=momentum, l2=decay)), expected)


def test_clipping_is_torchs():
    def clipped(clip):
        return ascend_torch(
            lambda optim, theta: optim.SGD(theta, RATE, 0.9, maximize=True), 60, clip
        )

    lengths = np.linalg.norm(totals(60) * SCALE, axis=1)
    clip = float(np.median(lengths))
    made = ascend(optimizers.make("sgd", {"momentum": 0.9, "clip_norm": clip}))
    # PyTorch adds 1e-6 to the length.
    assert np.allclose(made, clipped(clip), rtol=1e-6, atol=1e-6)
    assert np.abs(made - clipped(None)).max() > 0.01


# Against the papers, written from their equations.


def test_adabelief_is_its_papers():
    theta, m, s = START.copy(), np.zeros(SIZE), np.zeros(SIZE)
    b1, b2, eps = 0.8, 0.99, 1e-6
    for t, total in enumerate(totals(60), start=1):
        g = -total * SCALE  # of what the paper minimises
        m = b1 * m + (1 - b1) * g
        s = b2 * s + (1 - b2) * (g - m) ** 2 + eps
        theta = theta - RATE * (m / (1 - b1**t)) / (np.sqrt(s / (1 - b2**t)) + eps)
    assert_same(ascend(AdaBelief(**MOMENTS)), theta)


def test_amsgrad_is_its_papers_but_for_the_corrections():
    theta, m, v, top = START.copy(), np.zeros(SIZE), np.zeros(SIZE), np.zeros(SIZE)
    b1, b2, eps = 0.8, 0.5, 1e-6
    for t, total in enumerate(totals(60), start=1):
        g = -total * SCALE
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        top = np.where(top > v, top, v)
        theta = theta - RATE * (m / (1 - b1**t)) / (np.sqrt(top / (1 - b2**t)) + eps)
    assert_same(ascend(AMSGrad(beta1=b1, beta2=b2, epsilon=eps)), theta)


def test_radam_is_its_papers_and_begins_without_the_second_moment():
    theta, m, v, adaptive = START.copy(), np.zeros(SIZE), np.zeros(SIZE), 0
    b1, b2 = 0.8, 0.99
    rho_inf = 2 / (1 - b2) - 1
    for t, total in enumerate(totals(60), start=1):
        g = -total * SCALE
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        rho = rho_inf - 2 * t * b2**t / (1 - b2**t)
        step = RATE * m / (1 - b1**t)
        if rho > 5:
            adaptive += 1
            r = math.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
            step = step * r * math.sqrt(1 - b2**t) / (np.sqrt(v) + 1e-6)
        theta = theta - step
    assert 0 < adaptive < 60
    assert_same(ascend(RAdam(**MOMENTS)), theta)


@pytest.mark.parametrize("decay", [0.0, 0.02])
def test_novograd_is_its_papers_layer_by_layer(decay):
    b1, b2, eps = 0.9, 0.8, 1e-6
    layers = np.split(START.copy(), np.cumsum(SIZES)[:-1])
    m, v = [np.zeros(size) for size in SIZES], [0.0] * len(SIZES)
    for t, total in enumerate(totals(60)):
        for layer, part in enumerate(np.split(total, np.cumsum(SIZES)[:-1])):
            g = -part * SCALE
            square = float(g @ g)
            v[layer] = square if t == 0 else b2 * v[layer] + (1 - b2) * square
            scaled = g / (math.sqrt(v[layer]) + eps) + decay * layers[layer]
            m[layer] = b1 * m[layer] + scaled
            layers[layer] = layers[layer] - RATE * m[layer]
    made = NovoGrad(beta1=b1, beta2=b2, epsilon=eps, weight_decay=decay, sizes=SIZES)
    assert_same(ascend(made), np.concatenate(layers))
    assert np.abs(ascend(NovoGrad(beta1=b1, beta2=b2)) - np.concatenate(layers)).max() > 0.01


@pytest.mark.parametrize("limit", [0.0, 0.05, 10.0])
def test_clipup_is_its_papers(limit):
    theta, velocity, cut = START.copy(), np.zeros(SIZE), 0
    speed = limit or 2 * RATE
    for total in totals(60):
        g = total * SCALE
        velocity = 0.9 * velocity + RATE * g / np.linalg.norm(g)
        if np.linalg.norm(velocity) > speed:
            velocity = speed * velocity / np.linalg.norm(velocity)
            cut += 1
        theta = theta + velocity
    assert (cut > 5) == (limit != 10.0)
    made = ascend(ClipUp(momentum=0.9, maximum_speed=limit))
    assert np.allclose(made, theta, rtol=1e-10, atol=1e-12)


def test_normalised_steps_by_length_whatever_the_scale():
    total, theta = np.array([3, -4, 0]), np.zeros(3)
    optimizer = Normalised(momentum=0.5)
    slots = optimizer.initial_slots(3)
    step, slots = optimizer.step(total, SCALE, theta, slots, 2.0)
    assert step.tolist() == [1.2, -1.6, 0.0]
    step, _ = optimizer.step(1000 * total, 7.0, theta, slots, 2.0)
    assert np.allclose(step, [1.8, -2.4, 0.0], rtol=1e-15)


@pytest.mark.parametrize("kind", [Normalised, ClipUp])
def test_the_penalty_of_normalised_gradients_stands_beside_the_unit_vector(kind):
    step, _ = kind(momentum=0.0, l2=0.25).step(
        np.array([3, -4]), SCALE, np.array([1, 2], np.float32), {"velocity": np.zeros(2)}, 1.0
    )
    assert np.allclose(step, [0.6 - 0.25, -0.8 - 0.5], rtol=1e-15)


def test_lookahead_is_its_papers():
    theta, slow, fast, velocity = START.copy(), START.copy(), START.copy(), np.zeros(SIZE)
    for t, total in enumerate(totals(60), start=1):
        velocity = 0.9 * velocity + total * SCALE
        fast = fast + RATE * velocity
        if t % 7 == 0:
            slow = slow + 0.3 * (fast - slow)
            fast = slow
        theta = fast
    made = LookAhead(SGD(momentum=0.9), steps=7, alpha=0.3)
    assert_same(ascend(made), theta)


# What others got wrong.


def test_lookaheads_slow_weights_begin_at_the_parameters():
    """Where they begin at zero the first round ends near zero."""
    made = optimizers.make("sgd", {"lookahead_steps": 1, "lookahead_alpha": 0.5, "momentum": 0.0})
    total, theta = totals(1)[0], np.full(SIZE, 5.0, np.float32)
    step, slots = made.step(total, SCALE, theta, made.initial_slots(SIZE), RATE)
    assert np.allclose(step, 0.5 * RATE * SCALE * total, rtol=0, atol=1e-12)
    assert (slots["slow_weights"] == 5.0).all()


def test_weights_decay_and_moments_know_nothing_of_it(optimizer):
    """As many steps with decay and without, along the same gradients."""
    if isinstance(optimizer, NovoGrad):
        pytest.skip("decays within its moment: see the test below")
    assert isinstance(optimizer, Decayed)
    theta, total = np.linspace(2, 3, SIZE, dtype=np.float32), totals(1)[0]
    slots = optimizer.initial_slots(SIZE)
    plain, slots_without = optimizer.inner.step(total, SCALE, theta, slots, RATE)
    decayed, slots_with = optimizer.step(total, SCALE, theta, slots, RATE)
    assert np.allclose(plain - decayed, RATE * 0.01 * theta, rtol=1e-9)
    assert all((slots_with[name] == slots_without[name]).all() for name in slots)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", ["weight_decay", "l2"])
def test_decay_and_penalty_shrink_large_weights(kind, field, sign):
    if kind == "novograd" and field == "l2":
        return
    theta = {decay: np.full(SIZE, sign * 50.0, np.float32) for decay in (0.0, 0.1)}
    for decay in theta:
        made = optimizers.make(kind, {field: decay, "weight_decay": 0.0} | {field: decay}, SIZES)
        slots = made.initial_slots(SIZE)
        for total in totals(20):
            step, slots = made.step(total, 1e-4, theta[decay], slots, RATE)
            theta[decay] = (theta[decay] + step).astype(np.float32)
    assert np.abs(theta[0.1]).mean() < np.abs(theta[0.0]).mean() - 0.01


# What holds for all.


@pytest.mark.parametrize("pinned", PINNED, ids=lambda p: f"{p['optimizer']}-{p['around']}")
def test_a_hundred_steps_end_where_they_always_did(pinned):
    assert optimizer_vectors.run(pinned["optimizer"], pinned["around"]) == pinned


def test_every_optimizer_is_pinned():
    assert {(p["optimizer"], p["around"]) for p in PINNED} == {
        (kind, around) for kind in KINDS for around in optimizer_vectors.TABLES
    }


def test_a_step_changes_none_of_its_arguments(optimizer):
    optimizer = LookAhead(Clipped(optimizer, 1e-3), steps=2, alpha=0.5)
    theta = np.linspace(-1, 1, SIZE, dtype=np.float32)
    slots = optimizer.initial_slots(SIZE)
    for total in totals(3):
        arrays = [theta, total, *slots.values()]
        before = [array.copy() for array in arrays]
        for array in arrays:
            array.setflags(write=False)
        step, after = optimizer.step(total, SCALE, theta, slots, RATE)
        assert step.dtype == np.float64 and step.shape == (SIZE,)
        assert after.keys() == slots.keys()
        assert all(after[name].dtype == np.float64 for name in after)
        assert all(after[name].shape == slots[name].shape for name in after)
        assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))
        slots = after


def test_a_step_goes_uphill(optimizer):
    total = totals(1)[0]
    theta = np.zeros(SIZE, dtype=np.float32)
    step, _ = optimizer.step(total, SCALE, theta, optimizer.initial_slots(SIZE), RATE)
    assert np.array_equal(np.sign(step), np.sign(total))


FINITE = st.floats(-(2.0**100), 2.0**100, width=32)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    around=st.booleans(),
    scales=st.lists(st.floats(-1e60, 1e60), min_size=1, max_size=5),
    theta=st.lists(FINITE, min_size=SIZE, max_size=SIZE),
    peak=st.integers(1, 2**53 - 1),
    seed=st.integers(0, 99),
)
def test_what_goes_in_finite_comes_out_finite(kind, around, scales, theta, peak, seed):
    table = {"weight_decay": 0.1, "lookahead_steps": 2, "clip_norm": 0.5} if around else {}
    made = optimizers.make(kind, table, SIZES)
    theta, slots = np.array(theta, np.float32), made.initial_slots(SIZE)
    rng = np.random.default_rng(seed)
    for scale in scales:
        total = rng.integers(-peak, peak, SIZE, endpoint=True)
        total[rng.integers(SIZE)] = peak
        step, slots = made.step(total, scale, theta, slots, RATE)
        assert np.isfinite(step).all()
        assert all(np.isfinite(slot).all() for slot in slots.values())


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, 2 * BLOCK + 3])
@pytest.mark.parametrize("kind", ["adam", "amsgrad", "adabelief", "radam", "sgd", "nesterov"])
def test_a_block_ends_where_the_next_one_begins(kind, size):
    """What is computed block by block is what each parameter would get on its own."""
    made, rng = optimizers.make(kind, {"l2": 0.02, "weight_decay": 0.01}), np.random.default_rng(4)
    total = rng.integers(-3000, 3000, size)
    theta = rng.normal(0.0, 1.0, size).astype(np.float32)
    slots = {
        name: rng.uniform(0.1, 0.9, slot.shape) for name, slot in made.initial_slots(size).items()
    }
    step, after = made.step(total, SCALE, theta, slots, RATE)
    picked = np.unique([0, size // 2, *range(BLOCK - 2, min(size, BLOCK + 2)), size - 1])
    alone = {n: slot[picked] if slot.size == size else slot for n, slot in slots.items()}
    few, slots_of_few = made.step(total[picked], SCALE, theta[picked], alone, RATE)
    assert (step[picked] == few).all()
    assert np.isfinite(step).all()
    for name in (name for name, slot in slots.items() if slot.size == size):
        assert (after[name][picked] == slots_of_few[name]).all()
        if name != "highest":
            assert (after[name] != slots[name]).all()


def test_a_layer_of_novograd_may_be_longer_than_a_block():
    total = np.random.default_rng(1).integers(-3000, 3000, 2 * BLOCK + 10)
    theta = np.zeros(total.size, np.float32)
    made = NovoGrad(sizes=(3, 2 * BLOCK + 7))
    step, slots = made.step(total, SCALE, theta, made.initial_slots(total.size), RATE)
    lengths = np.linalg.norm(total[:3]), np.linalg.norm(total[3:])
    assert np.allclose(step[:3], RATE * total[:3] / lengths[0], rtol=1e-4)
    assert np.allclose(step[3:], RATE * total[3:] / lengths[1], rtol=1e-4)
    assert slots["second_moments"].shape == (2,)


@pytest.mark.parametrize("size", [1, BLOCK, BLOCK + 1, 5 * BLOCK - 1])
def test_blocks_cover_everything_once(size):
    covered = np.zeros(size, int)
    for part in blocks(size):
        covered[part] += 1
        assert covered[part].size <= BLOCK
    assert (covered == 1).all()


# Made from a table.


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("normalised", "momentum", 1.0),
        ("sgd", "momentum", -0.1),
        ("nesterov", "momentum", 1.5),
        ("sgd", "momentum", float("nan")),
        ("clipup", "maximum_speed", -1.0),
        ("adam", "beta1", 1.0),
        ("adabelief", "beta2", -0.5),
        ("amsgrad", "epsilon", 0.0),
        ("radam", "l2", 1.0),
        ("novograd", "beta1", 1.0),
        ("novograd", "weight_decay", 1.0),
        ("normalised", "l2", -1e-9),
    ],
)
def test_hyperparameters_out_of_range_are_named(kind, name, value):
    with pytest.raises(ShoalError, match=rf"optimizer {kind}: {name} = {value}: must satisfy"):
        optimizers.make(kind, {name: value})


def test_an_optimizer_takes_its_own_from_a_table():
    table = {"momentum": 0.3, "beta1": 0.1, "beta2": 0.2, "epsilon": 0.5, "l2": 0.4}
    assert optimizers.make("sgd", table) == SGD(momentum=0.3, l2=0.4)
    assert optimizers.make("adam", table) == Adam(beta1=0.1, beta2=0.2, epsilon=0.5, l2=0.4)
    assert optimizers.make("sgd", {"arguments": {"momentum": 0.2}}) == SGD(momentum=0.2)


def test_what_lies_around_an_optimizer_comes_from_the_same_table():
    table = {"weight_decay": 0.1, "clip_norm": 2.0, "lookahead_steps": 5, "lookahead_alpha": 0.8}
    inner = Decayed(Clipped(SGD(), 2.0), 0.1)
    assert optimizers.make("sgd", table) == LookAhead(inner, 5, 0.8)
    assert optimizers.make("adamw", {}) == Decayed(AdamW(), 0.01)
    assert optimizers.make("adamw", {"weight_decay": 0.0}) == AdamW()
    made = optimizers.make("novograd", {"weight_decay": 0.1}, SIZES)
    assert made == NovoGrad(weight_decay=0.1, sizes=SIZES)


def test_what_an_optimizer_does_not_take_is_refused():
    with pytest.raises(ShoalError, match=r"novograd: l2 = 0\.1: takes none, use weight_decay"):
        optimizers.make("novograd", {"l2": 0.1})
    for name in ("speed", "sizes"):
        with pytest.raises(ShoalError, match=f"no argument '{name}': known here: beta1, beta2"):
            optimizers.make("novograd", {"arguments": {name: 1.0}})


def test_an_unknown_optimizer_is_named():
    with pytest.raises(
        ShoalError, match=r"'lion': must be one of adabelief, adam, adamw, .*install"
    ):
        optimizers.make("lion", {})


def test_the_table_for_people_says_what_each_has_of_its_own():
    document = Path(__file__).parents[2] / "docs" / "optimizers.md"
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+ \| .*?) \|", document.read_text(), re.M))
    assert sorted(rows) == KINDS
    for kind, row in rows.items():
        rate, _, others = row.partition(" | ")
        own = optimizers.own_values(optimizers.get(kind))
        if base := re.match(r"those of `(\w+)`", others):
            own = {n: v for n, v in own.items() if v != optimizers.own_values(Adam).get(n)}
            assert base[1] == "adam"
            assert float(rate) == optimizers.get(kind).learning_rate
        else:
            assert float(rate) == own.pop("learning_rate")
        said = {name: float(value) for name, value in re.findall(r"(\w+) ([\d.e-]+)", others)}
        assert said == {name: value for name, value in own.items() if value}, kind
