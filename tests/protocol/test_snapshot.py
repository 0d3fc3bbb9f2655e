import dataclasses
import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import normalizer, optimizers, snapshot
from protocol.packing import WireError
from protocol.proof import Proof, cut, proof
from protocol.state import Arithmetic, CohortTerms, UpdateTerms, apply, initial_state
from tests.protocol import update_vectors

SIZE = 50


def arithmetic_of(optimizer="adam", dims=3, **table):
    made = optimizers.make(optimizer, table, [40, 10])
    return Arithmetic("rademacher", 5, made, SIZE, dims, window=2)


def advanced(arithmetic, state=None, count=3):
    state = state or initial_state(arithmetic, np.linspace(-1, 1, SIZE), sigma=0.1)
    for _ in range(count):
        rows = np.arange(6 * arithmetic.observation_dims) * (state.version + 3) % 17
        q = rows.reshape(6, -1).T.tolist()
        sums = normalizer.ObservationSums(
            6, tuple(map(sum, q)), tuple(sum(x * x for x in column) for column in q)
        )
        terms = UpdateTerms(
            cohorts=[CohortTerms(8 * state.version, state.version, np.array([3, -1, 2]), 60)],
            scale=1e-3,
            learning_rate=0.1,
            sigma=state.sigma * 0.9,
            observations=[(state.version, sums)] if q else [],
            episodes=6,
            steps=99,
        )
        state = apply(arithmetic, state, terms)
    return state


@pytest.mark.parametrize("dims", [0, 3])
@pytest.mark.parametrize("around", [{}, {"lookahead_steps": 2, "weight_decay": 0.1}])
@pytest.mark.parametrize("optimizer", optimizers.OPTIMIZERS)
def test_nothing_is_lost(optimizer, around, dims):
    arithmetic = arithmetic_of(optimizer, dims, **around)
    state = advanced(arithmetic)
    data = snapshot.to_bytes(state)
    assert len(data) == snapshot.state_bytes(arithmetic)
    restored = snapshot.from_bytes(arithmetic, data)
    assert snapshot.to_bytes(restored) == data
    assert (restored.version, restored.episodes, restored.steps) == (3, 18, 297)
    assert restored.sigma == state.sigma
    assert np.array_equal(restored.theta, state.theta)
    # And nothing that the bytes leave out matters later.
    assert snapshot.to_bytes(advanced(arithmetic, restored)) == snapshot.to_bytes(
        advanced(arithmetic, state)
    )


def different_states():
    state = advanced(arithmetic_of())
    yield state
    theta = state.theta.copy()
    theta[-1] = np.nextafter(theta[-1], np.float32(9))
    yield dataclasses.replace(state, theta=theta)
    for name in state.slots:
        slot = state.slots[name].copy()
        slot[-1] = np.nextafter(slot[-1], 9.0)
        yield dataclasses.replace(state, slots={**state.slots, name: slot})
    for name in ("version", "episodes", "steps", "sigma"):
        yield dataclasses.replace(state, **{name: getattr(state, name) + 1})
    for name in ("mean", "squares", "shifts", "exponents"):
        array = getattr(state.normalizer, name).copy()
        array.flat[-1] += 1
        statistics = dataclasses.replace(state.normalizer, **{name: array})
        yield dataclasses.replace(state, normalizer=statistics)
    yield dataclasses.replace(state, normalizer=dataclasses.replace(state.normalizer, count=7.0))


def test_the_digest_sees_every_field():
    digests = [snapshot.state_digest(state) for state in different_states()]
    assert len(set(digests)) == len(digests) == 14
    assert all(len(digest) == 16 for digest in digests)


def test_the_digest_proves_every_chunk_and_the_length():
    data = bytes(range(256)) * 2000  # two chunks and a part
    total, digests = proof(cut(data))
    assert total == len(data)
    assert len(digests) == 3 * 16
    part = hashlib.blake2b(data[192 * 1024 : 384 * 1024], digest_size=16).digest()
    assert digests[16:32] == part
    whole = Proof(total, digests).digest
    expected = hashlib.blake2b(struct.pack("<Q", len(data)) + digests, digest_size=16).digest()
    assert whole == expected
    assert whole != Proof(total + 1, digests).digest


def test_a_digest_is_that_of_the_bytes():
    state = advanced(arithmetic_of())
    data = snapshot.to_bytes(state)
    assert snapshot.state_digest(state) == proof(cut(data)).digest


def broken(offset, layout, value):
    data = bytearray(snapshot.to_bytes(advanced(arithmetic_of())))
    struct.pack_into(layout, data, offset, value)
    return bytes(data)


STATISTICS = 40 + 4 * SIZE + 8 * (2 * SIZE + 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "of 0 bytes"),
        (broken(0, "<B", 0) + b"\0", "bytes where this run's have"),
        (broken(0, "<B", 0), "mark of this format"),
        (broken(8, "<Q", 2**63), "version 9223372036854775808"),
        (broken(32, "<d", float("nan")), "sigma nan"),
        (broken(32, "<d", -1.0), "sigma -1.0"),
        (broken(40, "<f", float("inf")), "NaN or infinity"),
        (broken(40 + 4 * SIZE, "<d", float("nan")), "NaN or infinity"),
        (broken(STATISTICS, "<d", 0.5), "impossible observation statistics"),
        (broken(STATISTICS, "<d", -1.0), "impossible observation statistics"),
        (broken(STATISTICS + 8 + 3 * 8, "<d", -1.0), "impossible observation statistics"),
        (broken(STATISTICS + 8 + 12 * 8, "<h", 99), "exponents out of range"),
    ],
)
def test_bytes_that_are_no_state_are_refused(data, message):
    with pytest.raises(WireError, match=message):
        snapshot.from_bytes(arithmetic_of(), data)


@given(st.binary(max_size=64), st.integers(0, 1000))
def test_damaged_bytes_are_refused_or_a_state(piece, offset):
    arithmetic = arithmetic_of()
    whole = snapshot.to_bytes(initial_state(arithmetic, np.ones(SIZE), 0.1))
    damaged = (whole[:offset] + piece + whole[offset + len(piece) :])[: len(whole)]
    try:
        state = snapshot.from_bytes(arithmetic, damaged)
    except WireError:
        return
    assert snapshot.to_bytes(state) == damaged
    assert np.isfinite(state.theta).all()


def test_a_restored_replica_goes_on_to_the_pinned_state():
    kinds = "openai-es", "adam", "rademacher"
    optimizer = optimizers.make("adam", update_vectors.HYPERPARAMETERS)
    arithmetic = Arithmetic(
        "rademacher", 1, optimizer, update_vectors.SIZE, update_vectors.DIMS, update_vectors.WINDOW
    )
    state = update_vectors.run(*kinds)
    restored = snapshot.from_bytes(arithmetic, snapshot.to_bytes(state))
    assert update_vectors.answer(restored) == update_vectors.answer(state)
