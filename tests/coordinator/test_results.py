"""What a result must be to count, one broken rule at a time."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.pool.events import SessionId
from coordinator.results import judge
from coordinator.versions import Versions
from protocol import normalizer, replay
from protocol.identity import lease_token
from protocol.messages import MAX_TASK_DIRECTIONS, Part, Result, Task, decode, encode
from protocol.packing import WireError, pack_integers, pack_reals
from protocol.spec import LONGEST_EPISODE, RunSpec
from tests.coordinator.runs import spec_of
from tests.coordinator.scripted import evaluate

RUN = "test-00000000"
SECRET = b"s" * 32
ID = SessionId("a" * 16, "b" * 6)
SPEC = spec_of(normalizer={"enabled": True})
PLAIN = spec_of(environment={"max_steps": 20})


def token(result: Result, worker: str = ID.worker, secret: bytes = SECRET, run: str = RUN) -> bytes:
    return lease_token(
        secret,
        run,
        result.task,
        worker,
        result.version,
        result.first,
        result.count,
        result.episodes,
        result.kind,
    )


def honest(spec: RunSpec = SPEC, kind: str = "members", **changes: object) -> Result:
    """A result of four directions, or centre episodes, altered and then leased to us as it is."""
    task = Task(9, kind, 0, b"d" * 16, 4, 4, 1, b"t" * 16)  # type: ignore[arg-type]
    result = evaluate(spec, replay.initial_state(spec), task)
    result = msgspec.structs.replace(result, **changes)
    return msgspec.structs.replace(result, token=token(result))


def accepted(result: Result, spec: RunSpec = SPEC) -> None:
    judge(spec, RUN, SECRET, ID, result)


def refused(result: Result, reason: str, spec: RunSpec = SPEC) -> None:
    with pytest.raises(WireError, match=reason):
        judge(spec, RUN, SECRET, ID, result)


def test_honest_result_is_what_the_pool_gets() -> None:
    result = honest()
    arrived = judge(SPEC, RUN, SECRET, ID, result)
    assert (arrived.session, arrived.task, arrived.kind) == (ID, 9, "members")
    assert (arrived.version, arrived.first, arrived.count) == (0, 4, 4)
    assert arrived.returns.shape == arrived.lengths.shape == (4, 2)
    assert arrived.observed == result.observed
    centre = judge(SPEC, RUN, SECRET, ID, honest(kind="centre"))
    assert centre.returns.shape == (4,) and centre.observed == b""


@pytest.mark.parametrize(
    ("field", "value"),
    [("task", 8), ("version", 1), ("first", 0), ("count", 2), ("episodes", 2), ("kind", "centre")],
)
def test_token_covers_what_was_leased(field: str, value: object) -> None:
    refused(msgspec.structs.replace(honest(), **{field: value}), "never had a lease")


@pytest.mark.parametrize(
    "stolen", [{"worker": "c" * 16}, {"secret": b"x" * 32}, {"run": "other-00000000"}], ids=str
)
def test_token_is_for_one_worker_in_one_life_of_one_run(stolen: dict[str, object]) -> None:
    result = honest()
    refused(
        msgspec.structs.replace(result, token=token(result, **stolen)),  # type: ignore[arg-type]
        "never had a lease",
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["members", "centre"])
def test_returns_are_finite(bad: float, kind: str) -> None:
    returns = np.ones(8 if kind == "members" else 4)
    returns[3] = bad
    refused(honest(kind=kind, returns=pack_reals(returns)), "NaN or infinite")


def test_arrays_are_as_long_as_the_task() -> None:
    for count in (0, 3, 7):
        refused(honest(returns=pack_reals(np.ones(count))), "asked for")
        refused(honest(lengths=pack_integers(np.ones(count, np.int64))), "asked for")
    refused(honest(returns=pack_reals(np.ones(9))), "not up to 8")


def test_no_episode_is_longer_than_the_spec_says() -> None:
    def of(length: int) -> Result:
        return honest(PLAIN, lengths=pack_integers(np.array([length] + [1] * 7)))

    accepted(of(20), PLAIN)
    refused(of(21), "more than 20 steps", PLAIN)
    refused(of(0), "at least one step", PLAIN)
    refused(of(-1), "at least one step", PLAIN)


@pytest.mark.parametrize("kind", ["members", "centre"])
def test_no_return_is_beyond_what_the_spec_declares(kind: str) -> None:
    spec = spec_of(environment={"lowest_return": -2.0, "highest_return": 3.0})
    count = 8 if kind == "members" else 4

    def of(value: float, spec: RunSpec = spec) -> Result:
        returns = np.array([value] + [1.0] * (count - 1))
        return honest(spec, kind, returns=pack_reals(returns))

    for value in (-2.0, 3.0):
        accepted(of(value), spec)
    refused(of(np.nextafter(3.0, 4.0)), "above 3, the highest", spec)
    refused(of(np.nextafter(-2.0, -3.0)), "below -2, the lowest", spec)
    refused(of(1e150), "above 3", spec)
    anything = spec_of()
    accepted(of(1e150, anything), anything)


def test_no_episode_is_longer_than_the_counters_bear() -> None:
    spec = spec_of()

    def of(length: int) -> Result:
        return honest(spec, lengths=pack_integers(np.array([length] + [1] * 7)))

    accepted(of(LONGEST_EPISODE), spec)
    refused(of(LONGEST_EPISODE + 1), "more than 10,000,000 steps", spec)


@pytest.mark.parametrize("episodes", [1, 3])
def test_no_members_episode_is_longer_than_the_cap_of_its_version(episodes: int) -> None:
    def of(length: int, kind: str = "members") -> Result:
        count = 8 if kind == "members" else 4
        steps = np.array([length] + [1] * (count - 1)) * episodes
        return honest(PLAIN, kind, lengths=pack_integers(steps), episodes=episodes)

    judge(PLAIN, RUN, SECRET, ID, of(12), cap=12)
    with pytest.raises(WireError, match="more than 12 steps, which cut it at this version"):
        judge(PLAIN, RUN, SECRET, ID, of(13), cap=12)
    judge(PLAIN, RUN, SECRET, ID, of(13))  # where there is none
    if episodes == 1:
        judge(PLAIN, RUN, SECRET, ID, of(20, "centre"), cap=12)  # which is never cut


def test_the_cap_of_a_version_is_known_as_long_as_its_results_may_count() -> None:
    spec = spec_of(environment={"cap": 2.0}, pool={"max_staleness": 1})
    first = replay.initial_state(spec)
    versions = Versions(first, spec.versions_kept)
    assert versions.cap(0) == 0  # nothing has counted yet
    for version in range(1, 20):
        reached = dataclasses.replace(first, version=version, cap=100 + version)
        versions.add(reached, b"d" * 16)
    assert [versions.cap(version) for version in (17, 18, 19)] == [117, 118, 119]
    assert versions.cap(0) == versions.cap(20) == 0
    uncapped = Versions(replay.initial_state(PLAIN), PLAIN.versions_kept)
    assert uncapped.cap(0) == 0


def sums_of(frames: int) -> bytes:
    return normalizer.to_bytes(normalizer.ObservationSums(frames, (0, 0), (0, 0)))


def test_observed_frames_are_those_of_the_episodes() -> None:
    lengths = pack_integers(np.full(8, 5))
    accepted(honest(lengths=lengths, observed=sums_of(40)))
    for frames in (0, 39, 41):
        refused(
            honest(lengths=lengths, observed=sums_of(frames)), f"sums of {frames} frames for 40"
        )
    refused(honest(lengths=lengths, observed=sums_of(40) + b"x"), "do not fit 2 dimensions")


def test_frames_of_what_failed_are_not_observed() -> None:
    returns = np.ones((4, 2))
    returns[1] = np.nan
    lengths = np.full((4, 2), 5)
    failed = ((5, "it broke"),)
    result = honest(returns=pack_reals(returns), lengths=pack_integers(lengths), failed=failed)
    accepted(msgspec.structs.replace(result, observed=sums_of(30)))
    refused(msgspec.structs.replace(result, observed=sums_of(40)), "40 frames for 30 steps")


def test_sums_of_all_that_may_meet_in_an_update_can_be_merged() -> None:
    """However long the episodes claim to be: else one liar could end the run."""
    spec = spec_of(
        strategy={"population": 65_536}, normalizer={"enabled": True}, pool={"max_staleness": 3}
    )
    most = normalizer.MAX_COUNT // (spec.directions * 4)

    def of(frames: int) -> Result:
        lengths = np.array([[frames - 1, 1]] + [[1, 1]] * 3)
        return honest(
            spec, lengths=pack_integers(lengths.ravel()), observed=sums_of(int(lengths.sum()))
        )

    accepted(of(most), spec)
    refused(of(most + 1), f"more than {most:,} frames", spec)
    assert most * spec.directions * 4 <= normalizer.MAX_COUNT


def test_sums_that_nobody_asked_for_are_refused() -> None:
    refused(honest(PLAIN, observed=sums_of(8)), "nobody asked for", PLAIN)
    refused(honest(kind="centre", observed=sums_of(4)), "nobody asked for")


# Parts.


def part_of(first: int, count: int, kind: str = "members", spec: RunSpec = SPEC) -> Result:
    """A part of the lease of `honest`, which is of [4, 8)."""
    task = Task(9, kind, 0, b"d" * 16, first, count, 1, b"t" * 16)  # type: ignore[arg-type]
    result = evaluate(spec, replay.initial_state(spec), task)
    part = Part(first - 4, 8 - first - count)
    return msgspec.structs.replace(result, token=honest(spec, kind).token, part=part)


@pytest.mark.parametrize("kind", ["members", "centre"])
@pytest.mark.parametrize(("first", "count"), [(4, 1), (5, 2), (7, 1), (4, 3), (5, 3), (4, 4)])
def test_a_part_of_a_lease_is_what_the_pool_gets(kind: str, first: int, count: int) -> None:
    result = part_of(first, count, kind)
    arrived = judge(SPEC, RUN, SECRET, ID, result)
    assert (arrived.first, arrived.count, arrived.part) == (first, count, result.part)
    assert (arrived.name, arrived.leased) == ((9, first - 4), (4, 4))
    assert len(arrived.returns) == len(arrived.lengths) == count


def test_frames_of_a_part_are_its_own() -> None:
    refused(msgspec.structs.replace(part_of(5, 2), observed=honest().observed), "frames for")
    refused(msgspec.structs.replace(part_of(5, 2), returns=honest().returns), "is not up to 4")
    refused(msgspec.structs.replace(part_of(5, 2), failed=((4, "x"),)), "not of the task")


FORGED_PARTS = st.builds(Part, st.integers(0, 5), st.integers(0, 5)) | st.builds(
    Part, st.integers(0, MAX_TASK_DIRECTIONS), st.integers(0, MAX_TASK_DIRECTIONS)
)


@settings(max_examples=150, deadline=None)
@given(
    first=st.integers(0, 10) | st.integers(0, 2**47 - 1),
    count=st.integers(1, 6),
    part=st.none() | FORGED_PARTS,
)
def test_no_part_reaches_beyond_the_lease(first: int, count: int, part: Part | None) -> None:
    """Whatever the wire lets through."""
    arrays = {
        "returns": pack_reals(np.ones(2 * count)),
        "lengths": pack_integers(np.ones(2 * count, np.int64)),
    }
    token_of_the_lease = honest(PLAIN).token
    result = Result(9, "members", 0, first, count, 1, token_of_the_lease, **arrays, part=part)
    wired = decode(encode(result))
    assert isinstance(wired, Result)
    before, after = (part.before, part.after) if part else (0, 0)
    if (first - before, before + count + after) == (4, 4):
        arrived = judge(PLAIN, RUN, SECRET, ID, wired)
        assert 4 <= arrived.first < arrived.first + arrived.count <= 8
    else:
        refused(wired, "never had a lease", PLAIN)
