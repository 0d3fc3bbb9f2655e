import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import noise, normalizer
from protocol.spec import RunSpec
from tests.worker import reference
from tests.worker.reference import TOYS, run_spec
from worker.evaluation import blocks, environments, lanes
from worker.evaluation.jobs import Evaluation, EvaluationJob, join, split
from worker.evaluation.lanes import Lanes

SIGMA = 0.3


def lanes_of(spec: RunSpec, count: int, *, fresh: bool = False) -> Lanes:
    return Lanes(spec, environments.maker(spec.environment, [TOYS]), count, fresh=fresh)


def members(first: int, count: int, episodes: int = 1, version: int = 0) -> EvaluationJob:
    return EvaluationJob("members", version, first, count, episodes, SIGMA)


def assert_same(a: Evaluation, b: Evaluation) -> None:
    np.testing.assert_array_equal(a.returns, b.returns)
    np.testing.assert_array_equal(a.lengths, b.lengths)
    assert a.observed == b.observed
    assert a.failed == b.failed


@pytest.mark.parametrize("sections", [{}, {"normalizer": {"enabled": True}}])
@pytest.mark.parametrize("noise_kind", ["rademacher", "gaussian"])
def test_members_without_mirror_return_as_they_do_beside_it(noise_kind, sections):
    mirrored = run_spec("CartPole-v1", strategy={"noise": noise_kind}, **sections)
    alone = run_spec("CartPole-v1", strategy={"noise": noise_kind, "mirrored": False}, **sections)
    view = reference.normalization(mirrored) if sections else None
    theta, job = reference.theta(mirrored), members(3, 7, 2)
    both, one = lanes_of(mirrored, 5), lanes_of(alone, 5)
    expected = both.evaluate(job, theta, view)
    found = one.evaluate(replace(job, per_direction=1), theta, view)
    assert found.returns.shape == (7, 1)
    np.testing.assert_array_equal(found.returns, expected.returns[:, :1])
    np.testing.assert_array_equal(found.lengths, expected.lengths[:, :1])
    if sections:
        assert found.observed is not None and found.observed.count == found.lengths.sum()


@pytest.mark.parametrize("policy", [{"hidden": [6, 7]}, {"kind": "gru", "hidden": [5]}])
def test_sigmas_behind_theta_are_those_of_the_members(policy):
    spec = run_spec("CartPole-v1", policy=policy, strategy={"noise": "gaussian"})
    theta, job = reference.theta(spec), members(2, 5)
    sigmas = np.linspace(1.0, 0.01, spec.size).astype(np.float32)
    basis = np.concatenate([theta, sigmas])
    expected, lengths = reference.returns(spec, job, theta, sigmas=sigmas)
    found = lanes_of(spec, 3).evaluate(job, basis)
    np.testing.assert_array_equal(found.returns, expected)
    np.testing.assert_array_equal(found.lengths, lengths)
    assert (reference.returns(spec, job, theta)[0] != expected).any()
    centre = EvaluationJob("centre", 0, 0, 4)
    assert_same(
        lanes_of(spec, 3).evaluate(centre, basis), lanes_of(spec, 3).evaluate(centre, theta)
    )


@pytest.mark.parametrize(
    ("environment_id", "sections"),
    [
        ("CartPole-v1", {}),
        ("CartPole-v1", {"policy": {"kind": "linear"}, "strategy": {"noise": "gaussian"}}),
        ("CartPole-v1", {"policy": {"hidden": [6, 7], "activation": "relu"}}),
        ("CartPole-v1", {"policy": {"kind": "gru", "hidden": [5, 3]}}),
        ("FrozenLake-v1", {"policy": {"kind": "gru", "hidden": [4]}}),
        ("ToyMiser-v0", {"policy": {"kind": "gru", "hidden": [4]}}),
        ("Pendulum-v1", {"policy": {"hidden": [4], "squash": "tanh"}}),
        ("FrozenLake-v1", {}),
        ("ToyWalk-v0", {}),
        ("ToyMiser-v0", {}),
        ("ToyLadder-v0", {}),
        ("ToyRescaled-v0", {}),
        ("Blackjack-v1", {}),
        ("Blackjack-v1", {"policy": {"kind": "gru", "hidden": [4], "choice": "sample"}}),
        ("Taxi-v4", {"policy": {"kind": "linear"}, "environment": {"max_steps": 9}}),
        ("CartPole-v1", {"policy": {"hidden": [5], "choice": "sample"}}),
        ("CartPole-v1", {"policy": {"kind": "lstm", "hidden": [5, 3]}}),
        ("CartPole-v1", {"policy": {"hidden": [6, 7], "activation": "silu"}}),
        ("FrozenLake-v1", {"policy": {"kind": "tabular"}}),
        ("Taxi-v4", {"policy": {"kind": "tabular"}, "environment": {"max_steps": 9}}),
        ("Blackjack-v1", {"policy": {"kind": "tabular", "choice": "sample"}}),
        ("ToyLadder-v0", {"policy": {"kind": "tabular"}}),
        ("Pendulum-v1", {"policy": {"hidden": [4], "action_noise": "fixed"}}),
        ("ToyMiser-v0", {"policy": {"kind": "gru", "hidden": [4], "action_noise": "learned"}}),
        ("ToyMiser-v0", {"policy": {"hidden": [4], "action_noise": "learned", "squash": "tanh"}}),
        ("ToyMiser-v0", {"policy": {"kind": "lstm", "hidden": [4], "action_noise": "predicted"}}),
        ("ToyGarden-v0", {"policy": {"choice": "sample", "action_noise": "learned"}}),
        (
            "CartPole-v1",
            {"policy": {"frozen": ["layers.1.*"], "sigma_scale": {"layers.0.weight": 0.3}}},
        ),
        (
            "CartPole-v1",
            {
                "policy": {"kind": "gru", "hidden": [5, 3], "sigma_scale": {"*_hh": 3.0}},
                "strategy": {"noise": "gaussian"},
            },
        ),
        ("ToyGarden-v0", {}),
        ("ToyGarden-v0", {"policy": {"hidden": [6], "choice": "sample", "squash": "tanh"}}),
    ],
)
def test_returns_are_those_of_episodes_played_one_by_one(environment_id, sections):
    spec = run_spec(environment_id, **sections)
    job, theta = members(5, 6, episodes=2), reference.theta(spec)
    found = lanes_of(spec, 4).evaluate(job, theta)
    returns, lengths = reference.returns(spec, job, theta)
    np.testing.assert_array_equal(found.returns, returns)
    np.testing.assert_array_equal(found.lengths, lengths)
    assert found.failed == () and found.observed is None
    assert found.returns.dtype == np.float64 and found.lengths.dtype == np.int64


@settings(max_examples=25, deadline=None)
@given(
    environment_id=st.sampled_from(["CartPole-v1", "ToyWalk-v0", "ToyWorn-v0", "ToyGarden-v0"]),
    trouble=st.sampled_from(["none", "tell", "nan-observation"]),
    kind=st.sampled_from(["mlp", "gru", "lstm"]),
    choice=st.sampled_from(["argmax", "sample"]),
    noise=st.sampled_from(["none", "fixed", "learned", "predicted"]),
    counts=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    parts=st.integers(1, 7),
    order=st.randoms(use_true_random=False),
    block=st.sampled_from([1, 4000, 1 << 26]),
)
def test_no_cut_of_the_work_changes_a_return(
    environment_id, trouble, kind, choice, noise, counts, parts, order, block
):
    kwargs = {"trouble": trouble} if environment_id == "ToyWalk-v0" else {}
    moves = environment_id == "ToyGarden-v0"  # some of its actions are real numbers
    spec = run_spec(
        environment_id,
        environment={"kwargs": kwargs},
        policy={
            "kind": kind,
            "hidden": [5],
            "choice": choice,
            "action_noise": noise if moves else "none",
        },
        normalizer={"enabled": True},
    )
    theta, view = reference.theta(spec), reference.normalization(spec)
    fresh = environment_id == "ToyWorn-v0"
    whole = lanes_of(spec, counts[0], fresh=fresh).evaluate(members(3, 7, 2), theta, view)
    other = lanes_of(spec, counts[1], fresh=fresh)
    pieces = list(enumerate(split(members(3, 7, 2), parts)))
    order.shuffle(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "BLOCK_BYTES", block)
        found = {place: other.evaluate(piece, theta, view) for place, piece in pieces}
    assert_same(join([found[place] for place in range(len(pieces))]), whole)


@settings(max_examples=40, deadline=None)
@given(
    job=st.sampled_from([members(3, 7, 2), members(0, 9), EvaluationJob("centre", 2, 5, 11)]),
    trouble=st.sampled_from(["none", "tell", "raise"]),
    count=st.integers(1, 8),
    wishes=st.lists(st.booleans(), max_size=60),
    block=st.sampled_from([1, 4000, 1 << 26]),
)
def test_what_is_taken_of_a_job_and_what_is_left_are_the_whole(job, trouble, count, wishes, block):
    kwargs = {"trouble": trouble}
    spec = run_spec("ToyWalk-v0", environment={"kwargs": kwargs}, normalizer={"enabled": True})
    theta, view = reference.theta(spec), reference.normalization(spec)
    whole = lanes_of(spec, 3).evaluate(job, theta, view)
    pieces, wanted = [], iter(wishes)

    def pulse(take: Any) -> None:
        if next(wanted, False) and (piece := take()) is not None:
            assert len(piece.returns)
            pieces.append(piece)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "BLOCK_BYTES", block)
        rest = lanes_of(spec, count).evaluate(job, theta, view, pulse)
    assert len(rest.returns)
    assert_same(join([*pieces, rest]), whole)


def version_of(spec: RunSpec, version: int) -> tuple[Any, Any]:
    """Parameters and normalization, which no other version has."""
    view = reference.normalization(spec)
    return reference.theta(spec, version), replace(view, mean=view.mean + np.float32(version))


JOBS = st.builds(
    EvaluationJob,
    kind=st.sampled_from(["members", "members", "centre"]),
    version=st.integers(0, 2),
    first=st.integers(0, 20),
    count=st.integers(1, 9),
    episodes=st.integers(1, 2),
    sigma=st.sampled_from([0.1, 0.4]),
)


@settings(max_examples=40, deadline=None)
@given(
    trouble=st.sampled_from(["none", "tell", "nan-observation"]),
    kind=st.sampled_from(["mlp", "gru"]),
    count=st.integers(1, 12),
    jobs=st.lists(
        # A job, steps of the lanes before it comes, and until it is stopped, if it is.
        st.tuples(JOBS, st.integers(0, 9), st.sampled_from([None, None, 0, 3, 9])),
        min_size=2,
        max_size=5,
    ),
    block=st.sampled_from([1, 4000, 1 << 26]),
    wishes=st.randoms(use_true_random=False),
)
def test_jobs_that_share_lanes_give_what_each_gives_alone(
    trouble, kind, count, jobs, block, wishes
):
    spec = run_spec(
        "ToyWalk-v0",
        environment={"kwargs": {"trouble": trouble}},
        policy={"kind": kind, "hidden": [5]},
        normalizer={"enabled": True},
    )
    shared = lanes_of(spec, count)
    playing: dict[Any, tuple[EvaluationJob, list[Evaluation], int | None]] = {}
    told: list[tuple[EvaluationJob, list[Evaluation], bool]] = []

    def steps(most: int) -> None:
        for _ in range(most):
            for one, (job, pieces, stop) in list(playing.items()):
                if stop == 0 or wishes.random() < 0.2:
                    pieces += filter(None, [one.take()])
                if stop == 0:
                    shared.stop(one)
                    told.append((job, pieces, False))
                    del playing[one]
                else:
                    playing[one] = job, pieces, None if stop is None else stop - 1
            for one in shared.step():
                job, pieces, _ = playing.pop(one)
                told.append((job, [*pieces, one.take()], True))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "BLOCK_BYTES", block)
        for job, before, stop in jobs:
            steps(before)
            playing[shared.start(job, *version_of(spec, job.version))] = job, [], stop
        while playing:
            steps(1)
    assert len(told) == len(jobs) and sorted(shared._free) == list(range(count))
    for job, pieces, all_of_it in told:
        some = join(pieces) if pieces else None
        assert not all_of_it or (some is not None and len(some.returns) == job.count)
        if some is not None:
            part = replace(job, count=len(some.returns))
            assert_same(some, lanes_of(spec, 3).evaluate(part, *version_of(spec, job.version)))


def test_episodes_of_the_next_job_begin_where_one_has_no_more():
    spec = run_spec("ToyLadder-v0", environment={"max_steps": 4})
    shared = lanes_of(spec, 4)
    first, second = (shared.start(members(0, 3), reference.theta(spec)) for _ in range(2))
    over = {one: step for step in range(1, 100) for one in shared.step()}
    assert over == {first: 8, second: 12}  # 12 episodes of 4 steps, 4 at a time


def test_what_is_finished_can_be_taken_though_others_play():
    spec = run_spec("ToyLadder-v0", environment={"max_steps": 4})
    taken = []

    def pulse(take: Any) -> None:
        taken.append(take())

    rest = lanes_of(spec, 4).evaluate(members(0, 6), reference.theta(spec), None, pulse)
    # Two directions at a time, four steps each.
    begins = [(place, piece.first, piece.end) for place, piece in enumerate(taken) if piece]
    assert begins == [(4, 0, 2), (8, 2, 4)]
    assert (rest.first, rest.end) == (4, 6)


def test_a_worn_instance_is_told_from_a_fresh_one_only_by_fresh_lanes():
    spec = run_spec("ToyWorn-v0")
    theta, job = reference.theta(spec), members(0, 4)
    fresh = lanes_of(spec, 2, fresh=True).evaluate(job, theta)
    np.testing.assert_array_equal(fresh.returns, reference.returns(spec, job, theta)[0])
    assert (lanes_of(spec, 2).evaluate(job, theta).returns != fresh.returns).any()


@pytest.mark.parametrize("clip", [10.0, 0.2, 0.0])
def test_normalised_members_and_their_exact_observation_sums(clip):
    spec = run_spec("CartPole-v1", normalizer={"enabled": True, "clip": clip})
    theta, view = reference.theta(spec), reference.normalization(spec)
    found = lanes_of(spec, 3).evaluate(members(2, 3), theta, view)
    rows = noise.members("rademacher", 7, 2, 3, theta, SIGMA).reshape(3, 2, -1)
    count, linear, square = 0, [0] * 4, [0] * 4
    for d in range(3):
        for mirror in range(2):
            seed = noise.episode_seed(7, (2 + d) * 65536)
            total, length, frames = reference.play(spec, rows[d, mirror], seed, view)
            assert found.returns[d, mirror] == total and found.lengths[d, mirror] == length
            count += length
            q = np.rint((np.float64(frames) - view.shift) * view.scale).astype(np.int64)
            linear = [int(a + b) for a, b in zip(linear, q.sum(axis=0), strict=True)]
            square = [int(a + b) for a, b in zip(square, (q**2).sum(axis=0), strict=True)]
    assert found.observed == normalizer.ObservationSums(count, tuple(linear), tuple(square))


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("raise", "step 3 raised ValueError: broken leg"),
        ("raise-in-reset", "reset raised RuntimeError: no start"),
        ("exit", "step 3 raised SystemExit: 1"),
        ("panic", "step 3 raised Panic:"),
        ("unsayable", "step 3 raised UnsayableError: its message can't be had"),
        ("half-a-character", "step 3 raised ValueError: file ?"),
        ("nan", "rewards add up to nan"),
        ("infinite", "rewards add up to inf"),
        ("word", "step 3 raised ValueError"),
        ("nan-observation", "the observation after step 3 is not finite"),
        ("shape", "step 3 raised ValueError"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_a_failed_episode_fails_its_direction_alone(trouble, words):
    kwargs = {"trouble": trouble, "every": 4}
    spec = run_spec("ToyWalk-v0", environment={"kwargs": kwargs}, normalizer={"enabled": True})
    well = run_spec("ToyWalk-v0", normalizer={"enabled": True})
    theta, view, job = reference.theta(spec), reference.normalization(spec), members(0, 12, 2)
    found = lanes_of(spec, 5).evaluate(job, theta, view)
    cursed = [
        d
        for d in range(12)
        if any(noise.episode_seed(7, d * 65536 + episode) % 4 == 0 for episode in range(2))
    ]
    assert 0 < len(cursed) < 12
    assert [direction for direction, _ in found.failed] == cursed
    assert all(words in reason and "\n" not in reason for _, reason in found.failed)
    assert np.isnan(found.returns[cursed]).all() and not found.lengths[cursed].any()
    sound = [d for d in range(12) if d not in cursed]
    apart = [lanes_of(well, 2).evaluate(members(d, 1, 2), theta, view) for d in sound]
    np.testing.assert_array_equal(found.returns[sound], np.concatenate([a.returns for a in apart]))
    assert found.observed == normalizer.merge([a.observed for a in apart if a.observed])


def test_a_failed_episode_of_the_centre_is_named_by_its_number():
    spec = run_spec("ToyWalk-v0", environment={"kwargs": {"trouble": "raise", "every": 2}})
    job = EvaluationJob("centre", version=3, first=10, count=8)
    found = lanes_of(spec, 3).evaluate(job, reference.theta(spec))
    cursed = [
        episode
        for episode in range(10, 18)
        if noise.episode_seed(7, 3 * 65536 + episode, noise.Domain.CENTRE) % 2 == 0
    ]
    assert [episode for episode, _ in found.failed] == cursed and 0 < len(cursed) < 8
    assert np.isnan(found.returns).sum() == len(cursed)


def test_the_centre_acts_without_noise_unless_the_spec_says_so():
    sections = {"hidden": [4], "action_noise": "fixed", "action_deviation": 0.5}
    centre = EvaluationJob("centre", 2, 0, 6)
    found = []
    for policy in (
        sections,
        {**sections, "action_noise": "none"},
        sections | {"centre_noise": True},
    ):
        spec = run_spec("ToyMiser-v0", policy=policy)
        found.append(lanes_of(spec, 3).evaluate(centre, reference.theta(spec)).returns.tolist())
    quiet, none, noisy = found
    assert quiet == none != noisy


def test_the_centre_plays_fresh_episodes_of_its_version_and_observes_nothing():
    spec = run_spec("CartPole-v1", normalizer={"enabled": True})
    theta, view = reference.theta(spec), reference.normalization(spec)
    job = EvaluationJob("centre", version=9, first=4, count=5)
    found = lanes_of(spec, 2).evaluate(job, theta, view)
    for place in range(5):
        seed = noise.episode_seed(7, 9 * 65536 + 4 + place, noise.Domain.CENTRE)
        total, length, _ = reference.play(spec, theta, seed, view)
        assert (found.returns[place], found.lengths[place]) == (total, length)
    assert found.observed is None and found.returns.shape == (5,)


def test_episode_seeds_follow_the_spec():
    job = members(5, 2, episodes=3, version=8)

    def seeds(seeding: str, fixed_versions: int = 0, each: int = 2) -> Any:
        environment = {"seeding": seeding, "fixed_versions": fixed_versions}
        asked = replace(job, per_direction=each)
        spec = run_spec("CartPole-v1", environment=environment)
        return blocks.member_seeds(spec, asked).tolist()

    def named(*indices: int) -> list[int]:
        return [noise.episode_seed(7, index) for index in indices]

    base = 5 * 65536
    first, second = named(base, base + 1, base + 2), named(base + 65536, base + 65537, base + 65538)
    assert seeds("pair") == [first, first, second, second]
    assert seeds("pair", each=1) == seeds("member", each=1) == [first, second]
    own = [named(*(d * 65536 + 32768 + episode for episode in range(3))) for d in (5, 6)]
    assert seeds("member") == [first, own[0], second, own[1]]
    base = 2**63 + 8 * 65536
    assert seeds("version") == [named(base, base + 1, base + 2)] * 4
    assert seeds("fixed") == [named(0, 1, 2)] * 4
    assert seeds("pair", fixed_versions=9) == seeds("fixed")
    assert seeds("pair", fixed_versions=8) == seeds("pair")


def test_members_with_seeds_of_their_own_play_them():
    spec = run_spec("CartPole-v1", environment={"seeding": "member", "episodes": 2})
    theta, job = reference.theta(spec), members(3, 2, episodes=2)
    found = lanes_of(spec, 3).evaluate(job, theta)
    seeds = iter(blocks.member_seeds(spec, job).tolist())
    for place, direction in enumerate((3, 4)):
        for column, sign in enumerate((1, -1)):
            member = noise.member("rademacher", 7, direction, sign, theta, job.sigma)
            played = [reference.play(spec, member, seed, None)[0] for seed in next(seeds)]
            assert found.returns[place, column] == sum(played) / 2


def test_a_jobs_own_cap_cuts_its_episodes_wherever_they_are_played():
    spec = run_spec("CartPole-v1", environment={"max_steps": 40}, normalizer={"enabled": True})
    theta, view = reference.theta(spec), reference.normalization(spec)
    lanes, job = lanes_of(spec, 3), replace(members(0, 6, 2), cap=12)
    beside = lanes.start(members(0, 6), theta, view)
    found = lanes.evaluate(job, theta, view)
    returns, lengths = reference.returns(spec, job, theta, view)
    np.testing.assert_array_equal(found.returns, returns)
    np.testing.assert_array_equal(found.lengths, lengths)
    assert lengths.max() == 2 * 12 > lengths.min()
    assert found.observed is not None and found.observed.count == lengths.sum()
    whole = beside.take()
    assert whole is not None and whole.lengths.max() > 12
    longer = lanes.evaluate(replace(members(0, 6), cap=41), theta, view)
    assert_same(longer, lanes.evaluate(members(0, 6), theta, view))


@pytest.mark.parametrize("most", [1, 3])
def test_episodes_are_cut_at_the_limit(most):
    spec = run_spec("ToyLadder-v0", environment={"max_steps": most})
    found = lanes_of(spec, 3).evaluate(members(0, 4), reference.theta(spec))
    assert (found.lengths == most).all()


def test_a_pulse_that_raises_ends_the_job_and_leaves_the_lanes_usable():
    spec = run_spec("CartPole-v1")
    theta, played = reference.theta(spec), lanes_of(spec, 3)
    expected = played.evaluate(members(0, 5), theta)
    ticks = iter(range(4))

    def pulse(take: Any) -> None:
        if next(ticks, None) is None:
            raise KeyError("enough")

    with pytest.raises(KeyError):
        played.evaluate(members(7, 9), theta, None, pulse)
    assert_same(played.evaluate(members(0, 5), theta), expected)


def test_an_instance_that_failed_is_closed_and_replaced():
    spec = run_spec("ToyWalk-v0", environment={"kwargs": {"trouble": "raise", "every": 1}})
    made: list[Any] = []
    closed: list[Any] = []
    inner = environments.maker(spec.environment, [TOYS])

    class Counting:
        limit = inner.limit

        def make(self) -> Any:
            made.append(inner.make())
            made[-1].close = lambda: (closed.append(1), 1 / 0)
            return made[-1]

    played = Lanes(spec, Counting(), 2)
    found = played.evaluate(members(0, 3, episodes=40), reference.theta(spec))
    assert len(found.failed) == 3 and len(closed) >= 3
    assert 3 < len(made) < 12  # no episode is started once its direction has failed
    with contextlib.closing(played):
        pass
    assert len(closed) == len(made)
