import numpy as np
import pytest

from protocol import optimizers
from protocol.errors import ShoalError
from protocol.optimizers import SGD, Adam, Normalised
from protocol.optimizers.base import BLOCK, blocks

SIZE = 40
RATE = 0.03
SCALE = 1e-3


@pytest.fixture(params=optimizers.OPTIMIZERS)
def optimizer(request):
    return optimizers.make(request.param, {"weight_decay": 0.01})


def totals(count, seed=0):
    return np.random.default_rng(seed).integers(-3000, 3000, (count, SIZE))


def ascend(optimizer, count=60):
    """theta after `count` steps, all in float64, so that only the method is compared."""
    theta, slots = np.linspace(-1, 1, SIZE), optimizer.initial_slots(SIZE)
    for total in totals(count):
        step, slots = optimizer.step(total, SCALE, theta, slots, RATE)
        theta = theta + step
    return theta


def ascend_torch(make, count=60):
    torch = pytest.importorskip("torch")
    theta = torch.linspace(-1, 1, SIZE, dtype=torch.float64, requires_grad=True)
    optimizer = make(torch.optim, [theta])
    for total in totals(count):
        theta.grad = torch.from_numpy(total * SCALE)
        optimizer.step()
    return theta.detach().numpy()


@pytest.mark.parametrize("decay", [0.0, 0.02])
def test_adam_is_torchs(decay):
    expected = ascend_torch(
        lambda optim, theta: optim.Adam(
            theta, RATE, (0.8, 0.99), 1e-6, weight_decay=decay, maximize=True
        )
    )
    made = ascend(Adam(beta1=0.8, beta2=0.99, epsilon=1e-6, weight_decay=decay))
    assert np.allclose(made, expected, rtol=1e-10, atol=1e-12)
    assert np.abs(made - np.linspace(-1, 1, SIZE)).max() > 0.1


@pytest.mark.parametrize("decay", [0.0, 0.02])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs(momentum, decay):
    expected = ascend_torch(
        lambda optim, theta: optim.SGD(theta, RATE, momentum, weight_decay=decay, maximize=True)
    )
    made = ascend(SGD(momentum=momentum, weight_decay=decay))
    assert np.allclose(made, expected, rtol=1e-10, atol=1e-12)
    assert np.abs(made - np.linspace(-1, 1, SIZE)).max() > 0.1


def test_normalised_steps_by_length_whatever_the_scale():
    total, theta = np.array([3, -4, 0]), np.zeros(3)
    optimizer = Normalised(momentum=0.5)
    slots = optimizer.initial_slots(3)
    step, slots = optimizer.step(total, SCALE, theta, slots, 2.0)
    assert step.tolist() == [1.2, -1.6, 0.0]
    step, _ = optimizer.step(1000 * total, 7.0, theta, slots, 2.0)
    assert np.allclose(step, [1.8, -2.4, 0.0], rtol=1e-15)


def test_normalised_shrinks_weights_beside_the_unit_vector():
    step, _ = Normalised(momentum=0.0, weight_decay=0.25).step(
        np.array([3, -4]), SCALE, np.array([1, 2], np.float32), {"velocity": np.zeros(2)}, 1.0
    )
    assert np.allclose(step, [0.6 - 0.25, -0.8 - 0.5], rtol=1e-15)


def test_a_step_changes_none_of_its_arguments(optimizer):
    theta = np.linspace(-1, 1, SIZE, dtype=np.float32)
    slots = optimizer.initial_slots(SIZE)
    total = totals(1)[0]
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


def test_a_step_goes_uphill(optimizer):
    total = totals(1)[0]
    theta = np.zeros(SIZE, dtype=np.float32)
    step, _ = optimizer.step(total, SCALE, theta, optimizer.initial_slots(SIZE), RATE)
    assert np.array_equal(np.sign(step), np.sign(total))


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("normalised", "momentum", 1.0),
        ("sgd", "momentum", -0.1),
        ("sgd", "momentum", float("nan")),
        ("adam", "beta1", 1.0),
        ("adam", "beta2", -0.5),
        ("adam", "epsilon", 0.0),
        ("adam", "weight_decay", 1.0),
        ("normalised", "weight_decay", -1e-9),
    ],
)
def test_hyperparameters_out_of_range_are_named(kind, name, value):
    with pytest.raises(ShoalError, match=rf"optimizer {kind}: {name} = {value}: must satisfy"):
        optimizers.make(kind, {name: value})


def test_an_optimizer_takes_its_own_from_a_table():
    table = {"momentum": 0.3, "beta1": 0.1, "beta2": 0.2, "epsilon": 0.5, "weight_decay": 0.4}
    assert optimizers.make("sgd", table) == SGD(momentum=0.3, weight_decay=0.4)
    assert optimizers.make("adam", table) == Adam(
        beta1=0.1, beta2=0.2, epsilon=0.5, weight_decay=0.4
    )


def test_an_unknown_optimizer_is_named():
    with pytest.raises(ShoalError, match="'adamw': must be one of normalised, sgd, adam"):
        optimizers.make("adamw", {})


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, 2 * BLOCK + 3])
def test_a_block_of_adam_ends_where_the_next_one_begins(size):
    """What is computed block by block is what each parameter would get on its own."""
    adam, rng = Adam(weight_decay=0.02), np.random.default_rng(4)
    total = rng.integers(-3000, 3000, size)
    theta = rng.normal(0.0, 1.0, size).astype(np.float32)
    slots = {
        "first_moment": rng.normal(0.0, 1.0, size),
        "second_moment": rng.uniform(0.1, 1.0, size),
        "beta_powers": np.array([0.9, 0.999]),
    }
    step, after = adam.step(total, SCALE, theta, slots, RATE)
    picked = np.unique([0, size // 2, *range(BLOCK - 2, min(size, BLOCK + 2)), size - 1])
    alone = {**slots, **{name: slots[name][picked] for name in ("first_moment", "second_moment")}}
    few, slots_of_few = adam.step(total[picked], SCALE, theta[picked], alone, RATE)
    assert (step[picked] == few).all()
    assert np.isfinite(step).all()
    for name in ("first_moment", "second_moment"):
        assert (after[name][picked] == slots_of_few[name]).all()
        assert (after[name] != slots[name]).all()


@pytest.mark.parametrize("size", [1, BLOCK, BLOCK + 1, 5 * BLOCK - 1])
def test_blocks_cover_everything_once(size):
    covered = np.zeros(size, int)
    for part in blocks(size):
        covered[part] += 1
        assert covered[part].size <= BLOCK
    assert (covered == 1).all()
