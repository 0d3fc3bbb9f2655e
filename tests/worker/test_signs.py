"""Members that are never built play as those that are, bit for bit."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.spec import RunSpec
from tests.worker.reference import run_spec
from worker.evaluation import environments
from worker.evaluation.jobs import EvaluationJob
from worker.evaluation.lanes import Lanes
from worker.policies import dense, making
from worker.policies.dense import DensePolicy, SignedPolicy
from worker.policies.policy import View
from worker.policies.signs import OCTET


def spec_of(hidden: list[int], mirrored: bool = True) -> RunSpec:
    kind = "mlp" if hidden else "linear"
    layers = {"hidden": hidden} if hidden else {}
    return run_spec(policy={"kind": kind, **layers}, strategy={"mirrored": mirrored})


def outputs(policy: DensePolicy, first: int, count: int, theta: np.ndarray) -> np.ndarray:
    """Of all members of some directions, and of their centre, each in a lane, which see the same
    in either policy; they are written behind others, as those of a second block are."""
    each = policy._per_direction
    behind = each * OCTET * 2
    room = policy.room(behind + each * max(count, OCTET))
    policy.members(3, OCTET, theta[policy.order] + 1, 2.0, room)
    part = room[behind:]
    policy.members(first, count, theta[policy.order], 0.3, part)
    many = each * count
    policy.rows[:many] = behind + np.arange(many)
    rng = np.random.default_rng(5)
    policy.observations[:] = rng.standard_normal(policy.observations.shape)
    policy.observations[:, 1] *= rng.integers(0, 2, len(policy.observations))  # 0 is passed over
    none, nothing = np.empty(0, np.float32), np.empty(0)
    view = View(none, none, np.float32(0), nothing, nothing, np.zeros((0, 4, 4), np.uint64))
    lanes = np.arange(many)
    assert policy.prepare_forward(lanes, room, view)() == 0
    members = policy.outputs[:many].copy()
    policy.centre(theta[policy.order], room)
    policy.rows[:] = 0
    assert policy.prepare_forward(lanes[:1], room, view)() == 0
    return np.concatenate([members, policy.outputs[:1]])


@settings(max_examples=30, deadline=None)
@example(hidden=[9, 17], first=5, count=19, mirrored=True)
@example(hidden=[], first=8, count=8, mirrored=False)
@given(
    hidden=st.lists(st.integers(1, 40), max_size=2),
    first=st.integers(0, 10**6),
    count=st.integers(1, 20),
    mirrored=st.booleans(),
)
def test_outputs_are_those_of_members_that_are_built(
    hidden: list[int], first: int, count: int, mirrored: bool
) -> None:
    spec = spec_of(hidden, mirrored)
    theta = np.random.default_rng(count).standard_normal(spec.size).astype(np.float32)
    built, signed = DensePolicy(spec, 2 * count), SignedPolicy(spec, 2 * count)
    expected = outputs(built, first, count, theta)
    assert len(np.unique(expected[:-1], axis=0)) > min(count, 2) - 1
    assert outputs(signed, first, count, theta).tobytes() == expected.tobytes()


def test_episodes_are_those_of_members_that_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several blocks, which begin anywhere in the noise's groups of eight."""
    spec = spec_of([20])
    found = []
    for fewest in (spec.size + 1, spec.size):
        monkeypatch.setattr(dense, "FEWEST_SIGNED", fewest)
        lanes = Lanes(spec, environments.maker(spec.environment), 5)
        monkeypatch.setattr(
            "worker.evaluation.lanes.BLOCK_BYTES", 20 * lanes.policy.direction_bytes
        )
        theta = np.zeros(spec.size, np.float32)
        job = EvaluationJob("members", 0, 1003, 45, sigma=0.5)
        found.append((type(lanes.policy), lanes.evaluate(job, theta, None, lambda take: None)))
        lanes.close()
    (built, theirs), (signed, ours) = found
    assert (built, signed) == (DensePolicy, SignedPolicy)
    assert theirs.lengths.std() > 0
    np.testing.assert_array_equal(ours.returns, theirs.returns)
    np.testing.assert_array_equal(ours.lengths, theirs.lengths)


def test_only_large_ones_with_one_sigma_and_signs_for_noise_are_played_so() -> None:
    large = spec_of([360, 360])
    assert type(making.make(large, 1)) is SignedPolicy
    assert SignedPolicy(large, 1).direction_bytes < DensePolicy(large, 1).direction_bytes / 8
    for policy, strategy in (
        ({"hidden": [64]}, {}),
        ({"hidden": [360, 360]}, {"noise": "gaussian"}),
        ({"hidden": [360, 360], "frozen": ["*.bias"]}, {}),
    ):
        other = run_spec(policy={"kind": "mlp", **policy}, strategy=strategy)
        assert type(making.make(other, 1)) is DensePolicy


def test_members_begin_where_a_group_of_signs_does() -> None:
    policy = SignedPolicy(spec_of([4]), 1)
    room = policy.room(64)
    with pytest.raises(ValueError, match="row 6 is in the middle of a group"):
        policy.members(0, 8, np.zeros(policy.order.size, np.float32), 0.1, room[6:])
