"""What an update that reverts restores, bit for bit, on every peer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import optimizers, snapshot, strategies
from protocol.cap import Cap
from protocol.packing import WireError
from protocol.state import Arithmetic, State, UpdateTerms, apply, initial_state
from tests.protocol import update_vectors
from tests.protocol.update_vectors import DIMS, RUN_SEED, SIZE

CLIMBING = strategies.make("hill-climbing", {})
RULES = Arithmetic(
    "gaussian",
    RUN_SEED,
    optimizers.make("sgd", {"momentum": 0.5}),
    SIZE,
    DIMS,
    1,
    Cap(1.5, 10, 500),
    CLIMBING,
)
REVERT = UpdateTerms((), 0.0, 0.05, 0.3, reverts=True)


def first() -> State:
    return initial_state(RULES, np.linspace(-1, 1, SIZE, dtype=np.float32), 0.1)


def stepped(state: State) -> State:
    terms = update_vectors.terms_of(CLIMBING, RULES, dataclasses.replace(state, accepted=None))
    return apply(RULES, state, terms)


def same_policy(one: State, other: State) -> bool:
    """Whether theta, slots and statistics are the same."""
    alike = [dataclasses.replace(s, version=0, sigma=1.0, episodes=0, steps=0, cap=0, accepted=None)
             for s in (one, other)]  # fmt: skip
    return snapshot.to_bytes(alike[0]) == snapshot.to_bytes(alike[1])


def test_a_step_makes_a_candidate_and_what_it_came_from_is_accepted() -> None:
    start = first()
    assert not start.is_candidate
    one = stepped(start)
    two = stepped(one)
    assert one.is_candidate and two.is_candidate
    assert one.accepted is not None and two.accepted is not None
    assert (one.accepted.version, two.accepted.version) == (0, 1)
    assert same_policy(one.accepted, start) and same_policy(two.accepted, one)
    assert not same_policy(one, start)


def test_a_revert_restores_all_but_sigma_and_counters() -> None:
    start = stepped(first())
    candidate = stepped(start)
    back = apply(RULES, candidate, REVERT)
    assert not back.is_candidate and same_policy(back, start)
    assert (back.version, back.sigma) == (3, 0.3)
    assert (back.episodes, back.steps, back.cap) == (
        candidate.episodes,
        candidate.steps,
        candidate.cap,
    )
    again = apply(RULES, stepped(back), REVERT)
    assert same_policy(again, start) and again.version == 5


@settings(max_examples=20, deadline=None)
@given(st.lists(st.booleans(), max_size=8))
def test_snapshots_hold_what_is_accepted(course: list[bool]) -> None:
    state = first()
    for reverts in course:
        state = apply(RULES, state, REVERT) if reverts and state.is_candidate else stepped(state)
    data = snapshot.to_bytes(state)
    assert len(data) == snapshot.state_bytes(RULES)
    restored = snapshot.from_bytes(RULES, data)
    assert snapshot.to_bytes(restored) == data
    assert restored.is_candidate == state.is_candidate
    after = [stepped(s) for s in (state, restored)]
    assert snapshot.state_digest(after[0]) == snapshot.state_digest(after[1])
    if state.is_candidate:
        back = [apply(RULES, s, REVERT) for s in (state, restored)]
        assert snapshot.state_digest(back[0]) == snapshot.state_digest(back[1])


def test_the_digest_proves_what_is_accepted() -> None:
    state = stepped(first())
    assert state.accepted is not None
    other = dataclasses.replace(state.accepted, theta=np.zeros(SIZE, np.float32))
    changed = dataclasses.replace(state, accepted=other)
    assert snapshot.state_digest(changed) != snapshot.state_digest(state)
    later = dataclasses.replace(state.accepted, version=9)
    with pytest.raises(WireError, match="a state of version 1 that accepts 9"):
        snapshot.from_bytes(RULES, snapshot.to_bytes(dataclasses.replace(state, accepted=later)))


def test_only_candidates_are_reverted_and_without_returns() -> None:
    start = first()
    with pytest.raises(ValueError, match="revert of version 0: it must be a candidate"):
        apply(RULES, start, REVERT)
    candidate = stepped(start)
    returns = update_vectors.terms_of(CLIMBING, RULES, dataclasses.replace(start, version=1))
    with pytest.raises(ValueError, match="must be none"):
        apply(RULES, candidate, dataclasses.replace(returns, reverts=True))
    plain = dataclasses.replace(RULES, strategy=strategies.make("openai-es", {}))
    unaware = initial_state(plain, start.theta, 0.1)
    assert unaware.accepted is None
    with pytest.raises(ValueError, match="must be a candidate"):
        apply(plain, unaware, REVERT)
