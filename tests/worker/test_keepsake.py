"""A copy of a policy that a volunteer keeps: one file, to be played anywhere."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save_file

import shoal
from protocol import replay
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.policy_file import SPEC, PolicyError
from tests.worker.reference import run_spec as spec_of
from tests.worker.test_play import kept_run
from worker import play
from worker.keepsake import policy_file

RUN = spec_of("CartPole-v1", policy={"kind": "linear"}, normalizer={"enabled": True})


def test_a_kept_policy_needs_nothing_but_its_file(tmp_path):
    state = replay.initial_state(RUN)
    file = tmp_path / "mine.safetensors"
    file.write_bytes(policy_file(RUN, "cartpole-00000000", state))
    kept = play.load(file)
    assert (kept.spec, kept.run, kept.version) == (RUN, "cartpole-00000000", 0)
    np.testing.assert_array_equal(kept.theta, state.theta)
    assert kept.normalization is not None and state.normalizer is not None
    for ours, theirs in zip(
        (kept.normalization.mean, kept.normalization.inverse_deviation),
        state.normalizer.policy_input(),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)
    policy = shoal.load_policy(file)
    assert policy.environment().action_space.contains(policy(np.zeros(4, np.float32)))


def test_its_own_spec_goes_before_one_that_lies_beside_it(tmp_path):
    kept_run(tmp_path)
    file = tmp_path / "mine.safetensors"
    file.write_bytes(policy_file(RUN, "cartpole-00000000", replay.initial_state(RUN)))
    assert play.load(file).spec == RUN


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("{", "has a spec of its own that can't be read"),
        ("name = 3", "has a spec of its own that can't be read"),
        ("a = " + "[" * 5000, "has a spec of its own that can't be read"),
        ("seed = " + "9" * 5000, "has a spec of its own that can't be read"),
        (run_spec.to_toml(spec_of("Pendulum-v1")), "asks"),
    ],
)
def test_a_spec_that_is_none_is_refused_in_a_line(spec, words, tmp_path):
    file = tmp_path / "mine.safetensors"
    save_file({"weight": np.zeros(3, np.float32)}, file, metadata={SPEC: spec})
    with pytest.raises(PolicyError, match=words) as error:
        play.load(file)
    assert isinstance(error.value, ShoalError)
    assert "\n" not in str(error.value)
