import time
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.normalizer import ObservationSums, initial_state
from protocol.spec import RunSpec
from tests.worker.reference import TOYS, run_spec
from worker.evaluation import environments, pipe
from worker.evaluation import probe as probe_module
from worker.evaluation.jobs import (
    EnvironmentUnavailable,
    Evaluation,
    EvaluationJob,
    Normalization,
    join,
    split,
)
from worker.evaluation.lanes import Lanes
from worker.policies import calls


def probed(spec: RunSpec) -> Any:
    return probe_module.probe(spec, environments.maker(spec.environment, [TOYS]), lambda take: None)


@given(
    kind=st.sampled_from(["members", "centre"]),
    first=st.integers(0, 10**9),
    count=st.integers(1, 200),
    parts=st.integers(1, 300),
)
def test_parts_are_consecutive_even_and_whole(kind, first, count, parts):
    job = EvaluationJob(kind, 4, first, count, 3, 0.5)
    pieces = split(job, parts)
    assert len(pieces) == min(parts, count)
    assert pieces[0].first == first
    for piece, following in pairwise(pieces):
        assert piece.first + piece.count == following.first
    assert sum(piece.count for piece in pieces) == count
    sizes = {piece.count for piece in pieces}
    assert max(sizes) - min(sizes) <= 1
    assert all((p.kind, p.version, p.episodes, p.sigma) == (kind, 4, 3, 0.5) for p in pieces)


def test_parts_are_joined_in_order_and_exactly():
    first = Evaluation(
        7, np.array([[1.0, 2.0]]), np.array([[3, 4]]), ObservationSums(7, (5,), (9,))
    )
    second = Evaluation(
        8,
        np.array([[np.nan, np.nan]]),
        np.array([[0, 0]]),
        ObservationSums(0, (0,), (0,)),
        ((8, "bad"),),
    )
    joined = join([first, second])
    assert (joined.first, joined.end) == (7, 9)
    with pytest.raises(ValueError, match="do not join"):
        join([second, first])
    np.testing.assert_array_equal(joined.returns, [[1.0, 2.0], [np.nan, np.nan]])
    assert joined.lengths.tolist() == [[3, 4], [0, 0]]
    assert joined.observed == first.observed
    assert joined.failed == ((8, "bad"),)


def test_nothing_is_left_to_compile_for_the_first_task():
    """A worker is ready when it has tried itself out: whoever has a small share of a core would
    else hold its first task, unfinished, for as long as the compiler takes."""

    def compiled() -> set[Any]:
        kernels = {kinds[0] for kinds in calls._entries}
        return {(kernel, signature) for kernel in kernels for signature in kernel.signatures}

    spec = run_spec("CartPole-v1", normalizer={"enabled": True})
    found = probed(spec)
    before = compiled()
    normalization = Normalization.of(initial_state(spec.environment.observation.size, 2))
    lanes = Lanes(spec, found.maker, found.lanes)
    try:
        evaluation = lanes.evaluate(
            EvaluationJob("members", 0, 0, 4, sigma=0.1),
            np.zeros(spec.size, np.float32),
            Normalization.from_bytes(normalization.to_bytes()),
            lambda take: None,
        )
    finally:
        lanes.close()
    assert np.isfinite(evaluation.returns).all() and evaluation.observed
    assert compiled() == before


def test_normalization_survives_the_way_to_another_process():
    state = initial_state(3, 2)
    there = Normalization.from_bytes(Normalization.of(state).to_bytes())
    np.testing.assert_array_equal(there.inverse_deviation, np.ones(3, np.float32))
    np.testing.assert_array_equal(there.scale, state.measure()[1])
    assert (there.mean.dtype, there.shift.dtype) == (np.float32, np.float64)


def test_the_numeric_class_is_that_of_the_trajectories():
    found = probed(run_spec("CartPole-v1"))
    assert len(found.numeric_class) == 16 and not found.fresh and found.speed > 0
    assert probed(run_spec("CartPole-v1")).numeric_class == found.numeric_class
    assert found.together and found.lanes > 0, "its lanes step as one"
    others = [
        run_spec("CartPole-v1", environment={"kwargs": {"sutton_barto_reward": True}}),
        run_spec("CartPole-v1", seed=8),
        run_spec("CartPole-v1", policy={"kind": "linear"}),
    ]
    assert len({found.numeric_class, *(probed(spec).numeric_class for spec in others)}) == 4


def test_an_environment_that_wears_out_is_found_and_made_anew():
    found = probed(run_spec("ToyWorn-v0"))
    assert found.fresh and len(found.numeric_class) == 16
    assert not found.together and found.lanes > 0
    assert not probed(run_spec("ToyWalk-v0")).fresh


def test_an_environment_that_never_repeats_itself_shares_no_class():
    found = probed(run_spec("ToyDice-v0"))
    assert found.numeric_class == b"" and not found.fresh


def test_an_environment_in_which_nothing_succeeds_is_unavailable():
    spec = run_spec("ToyWalk-v0", environment={"kwargs": {"trouble": "raise", "every": 1}})
    with pytest.raises(EnvironmentUnavailable, match=r"every trial episode.*broken leg"):
        probed(spec)


def test_steps_are_slower_on_a_busy_machine_and_cost_no_more(monkeypatch):
    """On one that gives us a thousandth of the time."""
    clock = SimpleNamespace(
        perf_counter=lambda: 1000 * time.process_time(), process_time=time.process_time
    )
    monkeypatch.setattr(probe_module, "time", clock)
    found = probed(run_spec("CartPole-v1"))
    assert found.step_seconds < 0.1 / found.speed


def test_the_probe_takes_few_steps(monkeypatch):
    """The speed is measured for a while, on a clock in which every look takes a third of it."""
    looks = count()
    clock = SimpleNamespace(
        perf_counter=lambda: next(looks) * probe_module.SPEED_SECONDS / 3,
        process_time=time.process_time,
    )
    monkeypatch.setattr(probe_module, "time", clock)
    steps = 0

    class Counting(environments.Maker):
        def make(self):
            made = super().make()
            take = made.step

            def step(action):
                nonlocal steps
                steps += 1
                return take(action)

            made.step = step
            return made

    spec = run_spec("CartPole-v1")
    known = environments.maker(spec.environment)
    counting = Counting(known.environment, known.registration, known.limit)
    probe_module.probe(spec, counting, lambda take: None)
    played = 2 * probe_module.DIRECTIONS * probe_module.STEPS
    assert 0 < steps <= (2 + 1 + 3) * played


@pytest.mark.parametrize(
    "message",
    [
        pipe.Ready(12.5, b"c" * 16, "a remark", 256, True),
        pipe.Evaluated(3, 9, b"r", b"l", b"", ((5, "why"),)),
        pipe.Unread(7),
        pipe.Failed(4, "reason"),
        pipe.Alive(),
    ],
)
def test_replies_survive_their_frame(message):
    frame = pipe.frame(message)
    assert pipe.length(frame[: pipe.HEADER], 1000) == len(frame) - pipe.HEADER
    assert pipe.reply(frame[pipe.HEADER :]) == message


@pytest.mark.parametrize("body", [b"", b"\x90", b"\x91\x63", b"\x92\x02\xc0", b"\xc1" * 9])
def test_what_is_no_reply_is_refused(body):
    with pytest.raises(pipe.WireError):
        pipe.reply(body)


def test_a_frame_over_the_limit_is_refused():
    with pytest.raises(pipe.WireError, match="4,294,967,295 bytes"):
        pipe.length(b"\xff\xff\xff\xff", 1 << 20)


def test_a_probe_of_composite_spaces_finds_the_same_class_each_time():
    drawn, chosen = (
        run_spec("ToyGarden-v0", policy={"hidden": [3], "choice": choice})
        for choice in ("sample", "argmax")
    )
    classes = [probed(spec).numeric_class for spec in (drawn, drawn, chosen)]
    assert classes[0] and classes[0] == classes[1] != classes[2]
