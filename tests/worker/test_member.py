"""A member that is played gives the returns that it was evaluated with, of whatever run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import shoal
from protocol import replay
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.spec import RunSpec
from protocol.state import State
from worker import member, play
from worker.evaluation import environments
from worker.evaluation.jobs import EvaluationJob, Normalization
from worker.evaluation.lanes import Lanes

DIRECTION = 23
"""One whose two members get different returns in all of these runs."""


def spec_of(**changes: Any) -> RunSpec:
    """A small CartPole with these values laid over it."""
    base = {
        "name": "cartpole",
        "seed": 4,
        "environment": {
            "id": "CartPole-v1",
            "episodes": 2,
            "observation": {"kind": "box", "shape": [4]},
            "action": {"kind": "discrete", "n": 2},
        },
        "policy": {"kind": "mlp", "hidden": [3], "initialisation": "scaled"},
        "strategy": {"sigma": 0.5},
    }
    return run_spec.parse(run_spec.merge(base, changes))


SPECS = {
    "mirrored": spec_of(),
    "gaussian": spec_of(strategy={"noise": "gaussian"}),
    "own seeds": spec_of(environment={"seeding": "member"}),
    "normalised": spec_of(normalizer={"enabled": True}),
    "sigma each": spec_of(strategy={"kind": "pgpe", "noise": "gaussian"}),
}


def evaluated(spec: RunSpec, state: State) -> np.ndarray:
    """The returns of the direction as a worker gets them, shape (members,)."""
    norm = None if state.normalizer is None else Normalization.of(state.normalizer)
    job = EvaluationJob(
        "members",
        state.version,
        DIRECTION - 1,
        2,
        episodes=2,
        sigma=state.sigma,
        per_direction=spec.members_per_direction,
    )
    lanes = Lanes(spec, environments.maker(spec.environment), 5)
    returns = lanes.evaluate(job, state.basis, norm).returns[1]
    lanes.close()
    return np.asarray(returns)


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("sign", [1, -1])
def test_its_returns_are_those_that_it_was_evaluated_with(kind: str, sign: int) -> None:
    spec = SPECS[kind]
    state = replay.initial_state(spec)
    name = member.MemberName(0, DIRECTION, sign)
    returns = play.play(play.of_version(spec, "run", state, name), 2)
    plus, minus = evaluated(spec, state)
    assert plus != minus
    assert returns.mean() == (plus if sign > 0 else minus)


def test_a_run_without_mirrored_members_has_none_at_minus_sigma() -> None:
    spec = spec_of(strategy={"mirrored": False})
    name = member.parse("0:-7")
    with pytest.raises(ShoalError, match=r"not mirrored: give 0:\+7"):
        play.of_version(spec, "run", replay.initial_state(spec), name)


@given(st.integers(0, 10**12 - 1), st.integers(0, 2**63 - 1), st.sampled_from([1, -1]))
def test_names_are_read_as_they_are_written(version: int, direction: int, sign: int) -> None:
    text = f"{version}:{'+' if sign > 0 else '-'}{direction}"
    assert member.parse(text) == member.MemberName(version, direction, sign)


@pytest.mark.parametrize(
    "text", ["", "812", "812:40961", "812:+", "-1:+3", "1:+9223372036854775808"]
)
def test_what_names_no_member_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ShoalError, match=r"812:\+40961"):
        member.parse(text)


def test_what_says_two_versions_is_refused(tmp_path: Path) -> None:
    asked = ["play", str(tmp_path), "--version", "3", "--member", "2:+1"]
    done = CliRunner().invoke(shoal.app, asked)
    assert isinstance(done.exception, ShoalError)
    assert str(done.exception) == "--version and --member exclude each other: choose one"
    done = CliRunner().invoke(shoal.app, ["export", str(tmp_path), "--version", "3", "--best"])
    assert str(done.exception) == "--best and --version exclude each other: choose one"
