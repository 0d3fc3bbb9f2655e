import ctypes
import json
import os
import platform
import subprocess
import sys
import threading

import numpy as np
import pytest
from numpy._core import _multiarray_umath

from protocol import noise, normalizer, optimizers, snapshot
from protocol.errors import ShoalError
from protocol.state import (
    Arithmetic,
    CohortTerms,
    UpdateTerms,
    apply,
    check_denormals,
    initial_state,
    params_digest,
    params_hash,
)
from tests.protocol import optimizer_vectors, update_vectors, vectors
from tests.protocol.vectors import VECTORS

SIZE = 33
PINNED = json.loads(update_vectors.PATH.read_text())["runs"]


@pytest.fixture(params=optimizers.OPTIMIZERS)
def arithmetic(request):
    optimizer = optimizers.make(request.param, {"weight_decay": 0.1}, [16, 16, 1])
    return Arithmetic("rademacher", 5, optimizer, SIZE, window=2)


def terms(*cohorts, **changes):
    values = {"scale": 1e-3, "learning_rate": 0.1, "sigma": 0.1, "episodes": 8, "steps": 100}
    return UpdateTerms(cohorts=cohorts, **(values | changes))


def cohort(first=0, version=0, weights=(3, -1, 2), multiplier=60):
    return CohortTerms(first, version, np.array(weights), multiplier)


def start(arithmetic):
    return initial_state(arithmetic, np.linspace(-1, 1, SIZE), sigma=0.1)


def same_parameters_and_slots(one, other):
    return one.theta.tobytes() == other.theta.tobytes() and all(
        one.slots[name].tobytes() == other.slots[name].tobytes() for name in one.slots
    )


@pytest.mark.parametrize("case", VECTORS["params_hash"])
def test_params_hash_vectors(case):
    theta = vectors.theta(case["n"])
    assert params_hash(theta) == case["hash"]
    assert params_digest(theta).hex() == case["hash"]


@pytest.mark.parametrize("pinned", PINNED, ids=lambda p: f"{p['optimizer']}-{p['noise']}")
def test_a_hundred_updates_end_where_they_always_did(pinned):
    state = update_vectors.run(pinned["strategy"], pinned["optimizer"], pinned["noise"])
    assert pinned == pinned | update_vectors.answer(state)


def test_every_strategy_optimizer_and_noise_is_pinned():
    pinned = {(p["strategy"], p["optimizer"], p["noise"]) for p in PINNED}
    assert len(pinned) == len(PINNED)
    assert pinned == set(update_vectors.combinations())


def test_the_simplest_processor_gives_the_same_bits():
    features = _multiarray_umath.__cpu_features__
    enabled = [name for name in _multiarray_umath.__cpu_dispatch__ if features[name]]
    done = subprocess.run(
        [sys.executable, "-c", SIMPLEST],
        env=os.environ
        | {
            "NPY_DISABLE_CPU_FEATURES": " ".join(enabled),
            "NUMBA_CPU_NAME": "generic",
            "NUMBA_CPU_FEATURES": "",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    steps = json.loads(optimizer_vectors.PATH.read_text())["runs"]
    assert json.loads(done.stdout) == {"left": [], "runs": PINNED, "steps": steps}


SIMPLEST = """
import json
from numpy._core import _multiarray_umath as numpy
from tests.protocol import optimizer_vectors, update_vectors
left = [name for name in numpy.__cpu_dispatch__ if numpy.__cpu_features__[name]]
answers = {"runs": update_vectors.answers(), "steps": optimizer_vectors.answers()}
print(json.dumps({"left": left, **answers}))
"""


def test_an_update_is_one_rounding_of_the_optimizers_step(arithmetic):
    state = start(arithmetic)
    after = apply(arithmetic, state, terms(cohort(), cohort(40, 0, [-7, 1], 30)))
    total = 60 * noise.weighted_sum("rademacher", 5, 0, [3, -1, 2], SIZE)
    total += 30 * noise.weighted_sum("rademacher", 5, 40, [-7, 1], SIZE)
    step, slots = arithmetic.optimizer.step(total, 1e-3, state.theta, state.slots, 0.1)
    assert np.array_equal(after.theta, (state.theta.astype(np.float64) + step).astype(np.float32))
    assert all(np.array_equal(after.slots[name], slots[name]) for name in slots)
    assert (after.version, after.episodes, after.steps, after.sigma) == (1, 8, 100, 0.1)


def test_the_order_and_cut_of_cohorts_change_nothing(arithmetic):
    whole = [5, -3, 0, 2, 9, -9, 1, 1, 4]
    one = apply(arithmetic, start(arithmetic), terms(cohort(3, 0, whole)))
    parts = cohort(9, 0, whole[6:]), cohort(3, 0, whole[:2]), cohort(5, 0, whole[2:6])
    other = apply(arithmetic, start(arithmetic), terms(*parts))
    assert snapshot.to_bytes(one) == snapshot.to_bytes(other)


@pytest.mark.parametrize(
    "cohorts", [(), (cohort(weights=[0, 0, 0]),), (cohort(multiplier=0),), (cohort(weights=[]),)]
)
def test_without_weights_everything_rests_but_the_counters(arithmetic, cohorts):
    moving = apply(arithmetic, start(arithmetic), terms(cohort()))
    assert any(slot.any() for slot in moving.slots.values())
    resting = apply(arithmetic, moving, terms(*cohorts, sigma=0.05))
    assert same_parameters_and_slots(resting, moving)
    assert (resting.version, resting.episodes, resting.sigma) == (2, 16, 0.05)


def test_a_state_can_not_be_changed_by_accident(arithmetic):
    for state in (start(arithmetic), apply(arithmetic, start(arithmetic), terms(cohort()))):
        for array in (state.theta, *state.slots.values()):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


@pytest.mark.parametrize(
    ("changes", "cohorts", "message"),
    [
        ({}, [cohort(version=1)], r"version 1 in update 0: must be of versions 0 \.\. 0"),
        ({}, [cohort(version=-1)], "version -1"),
        ({}, [cohort(multiplier=-1)], "negative multiplier"),
        ({"scale": np.nan}, [cohort()], "scale nan"),
        ({"learning_rate": np.inf}, [cohort()], "learning rate inf"),
        ({"sigma": 0.0}, [cohort()], "sigma 0.0"),
        ({"steps": -1}, [cohort()], "-1 steps"),
        ({"observations": [(0, normalizer.no_observations(2))]}, [], "without a normaliser"),
        ({"learning_rate": 1e300}, [cohort()], "not finite: lower the learning rate"),
    ],
)
def test_terms_that_do_not_fit_are_named(arithmetic, changes, cohorts, message):
    with pytest.raises(ValueError, match=message):
        apply(arithmetic, start(arithmetic), terms(*cohorts, **changes))


def test_returns_older_than_the_window_are_refused(arithmetic):
    state = start(arithmetic)
    for _ in range(2):
        state = apply(arithmetic, state, terms(cohort(version=state.version)))
    apply(arithmetic, state, terms(cohort(version=1)))
    with pytest.raises(ValueError, match=r"must be of versions 1 \.\. 2"):
        apply(arithmetic, state, terms(cohort(version=0)))


def test_weights_that_are_only_together_too_large_are_refused(arithmetic):
    large = cohort(weights=[2**52 // 60], multiplier=60)
    apply(arithmetic, start(arithmetic), terms(large))
    with pytest.raises(OverflowError, match=r"below 2\*\*53"):
        apply(arithmetic, start(arithmetic), terms(large, large, cohort()))


def test_starts_that_do_not_fit_are_named(arithmetic):
    with pytest.raises(ShoalError, match=r"shape \(3,\): must be \(33,\)"):
        initial_state(arithmetic, np.zeros(3), 0.1)
    with pytest.raises(ShoalError, match="must be finite"):
        initial_state(arithmetic, np.full(SIZE, np.nan), 0.1)


def test_this_process_keeps_denormals():
    check_denormals()


@pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() != "x86_64",
    reason="sets the x86 control register through glibc",
)
@pytest.mark.parametrize("bits", [0x8000, 0x0040], ids=["flush-to-zero", "denormals-are-zero"])
def test_flushed_denormals_stop_an_update(arithmetic, bits):
    failures = []

    def flushed():
        # The register belongs to the thread, so that no other test is touched.
        mathematics = ctypes.CDLL("libm.so.6")
        environment = (ctypes.c_uint32 * 8)()
        mathematics.fegetenv(environment)
        environment[7] |= bits
        mathematics.fesetenv(environment)
        try:
            apply(arithmetic, start(arithmetic), terms(cohort()))
        except ShoalError as error:
            failures.append(str(error))

    thread = threading.Thread(target=flushed)
    thread.start()
    thread.join()
    assert len(failures) == 1 and failures[0].startswith("5e-324 became 0: a library switched")
    check_denormals()
