from __future__ import annotations

import dataclasses
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import replay, snapshot, state
from protocol import spec as run_spec
from protocol.cap import Cap
from protocol.packing import WireError
from protocol.spec import SpecError
from tests.protocol.test_replay import leader, spec

CAPPED: dict[str, Any] = {"environment": {"cap": 2.5, "cap_minimum": 20, "max_steps": 400}}
RUN = spec(**CAPPED)
RULES = replay.arithmetic(RUN)
EPISODES, STEPS = 16, 900
"""of every update of `leader`"""


@pytest.mark.parametrize(
    ("episodes", "steps", "steps_allowed"),
    [(16, 900, 141), (10, 400, 100), (10, 401, 101), (16, 16, 20), (1, 400, 400), (0, 0, 77)],
)
def test_a_cap_is_a_multiple_of_the_mean_length_within_its_bounds(episodes, steps, steps_allowed):
    assert Cap(2.5, 20, 400).after(77, episodes, steps) == steps_allowed


@given(
    multiple=st.floats(1.0, 1000.0, exclude_min=True),
    before=st.integers(2, 10**6),
    episodes=st.integers(1, 10**6),
)
def test_episodes_that_were_all_cut_may_last_longer(multiple, before, episodes):
    assert Cap(multiple, 1, 10**7).after(before, episodes, before * episodes) > before


def test_the_cap_of_a_version_follows_from_the_update_that_made_it():
    states, updates = leader(RUN, 2)
    assert [one.cap for one in states] == [0, 141, 141]
    ours = replay.initial_state(RUN)
    for update in updates:
        ours = replay.follow(RUN, RULES, ours, update)
        assert ours.cap == 141
    idle = state.UpdateTerms([], 1e-3, 0.1, 0.1)
    assert state.apply(RULES, ours, idle).cap == 141
    assert [one.cap for one in leader(spec(), 2)[0]] == [None] * 3


def test_without_a_limit_of_the_run_the_cap_stays_below_the_longest_episode():
    rules = replay.arithmetic(spec(environment={"cap": 3.0}))
    assert rules.cap == Cap(3.0, 100, run_spec.LONGEST_EPISODE)


def test_a_snapshot_has_the_cap_and_proves_it():
    reached = leader(RUN, 2)[0][2]
    data = snapshot.to_bytes(reached)
    assert len(data) == snapshot.state_bytes(RULES)
    restored = snapshot.from_bytes(RULES, data)
    assert (restored.cap, snapshot.to_bytes(restored)) == (141, data)
    other = dataclasses.replace(reached, cap=142)
    assert snapshot.state_digest(other) != snapshot.state_digest(reached)
    plain = leader(spec(environment={"max_steps": 400}), 2)[0][2]
    assert data == snapshot.to_bytes(plain) + struct.pack("<Q", 141)
    with pytest.raises(WireError, match="cuts episodes after 401 steps"):
        snapshot.from_bytes(RULES, data[:-8] + struct.pack("<Q", 401))
    with pytest.raises(WireError, match="bytes where this run's have"):
        snapshot.from_bytes(RULES, snapshot.to_bytes(plain))


def test_a_run_without_a_cap_does_not_mention_it():
    assert "cap" not in run_spec.to_plain(spec())["environment"]
    assert run_spec.to_plain(RUN)["environment"]["cap"] == 2.5


@pytest.mark.parametrize("cap", [1.0, 0.5])
def test_a_cap_below_which_nothing_could_grow_is_refused(cap):
    with pytest.raises(SpecError, match=rf"environment.cap is {cap}: must be above 1"):
        spec(environment={"cap": cap})
