"""Compiled lanes give what any other lanes give: the same returns in any lane, number and order."""

import copy

import numpy as np
import pytest

from tests.worker import reference
from tests.worker.compiled.toys import LIMIT, drift_spec
from worker.compiled.environment import functional
from worker.compiled.lanes import CompiledLanes
from worker.compiled.program import Programs
from worker.compiled.stepping import Stepped
from worker.evaluation.jobs import EvaluationJob, join, split
from worker.evaluation.lanes import Lanes

JOB = EvaluationJob("members", 0, 3, 24, 2, 0.3)
SPEC = drift_spec(normalizer={"enabled": True})


class SteppedMaker:
    """Makes instances that share what is compiled of them."""

    limit = LIMIT

    def __init__(self, found):
        self._one = Stepped(found)

    def make(self):
        return copy.copy(self._one)


@pytest.fixture(scope="module")
def programs():
    return Programs(SPEC, functional(SPEC.environment.id, {}))


@pytest.fixture(scope="module")
def theta():
    return reference.theta(SPEC)


@pytest.fixture(scope="module")
def view():
    return reference.normalization(SPEC)


@pytest.fixture(scope="module")
def expected(programs, theta, view):
    """What our own kernels give, where the environment is stepped."""
    lanes = Lanes(SPEC, SteppedMaker(programs.functional), 4)
    return lanes.evaluate(JOB, theta, view)


def lanes_of(programs, count):
    return CompiledLanes(SPEC, programs.functional, count, limit=LIMIT, programs=programs)


def assert_same(a, b):
    np.testing.assert_array_equal(a.returns, b.returns)
    np.testing.assert_array_equal(a.lengths, b.lengths)
    assert (a.first, a.observed, a.failed) == (b.first, b.observed, b.failed)


@pytest.mark.parametrize("count", [16, 64])
def test_they_give_what_lanes_of_our_kernels_give(programs, theta, view, expected, count):
    lanes = lanes_of(programs, count)
    assert_same(lanes.evaluate(JOB, theta, view), expected)
    assert_same(lanes.evaluate(JOB, theta, view), expected)  # whatever they played before
    assert len(set(expected.lengths.ravel().tolist())) > 5


def test_they_were_narrowed_and_widened_meanwhile(programs, theta, view):
    lanes, seen = lanes_of(programs, 64), set()
    playing = lanes.start(JOB, theta, view)
    while not playing.over:
        lanes.step()
        seen.add(lanes.count)
    assert seen == {16, 64}


def test_no_cut_of_a_job_changes_a_return(programs, theta, view, expected):
    lanes = lanes_of(programs, 64)
    pieces = [lanes.evaluate(piece, theta, view) for piece in split(JOB, 5)]
    assert_same(join(pieces), expected)


def test_jobs_of_two_versions_are_played_side_by_side(programs, theta, view, expected):
    lanes = lanes_of(programs, 64)
    other = reference.theta(SPEC, 1)
    first, second = lanes.start(JOB, theta, view), lanes.start(JOB, other, None)
    beside = 0
    while not second.over:
        lanes.step()
        beside += len(lanes._blocks) == 2
    assert beside and first.over
    assert_same(first.take(), expected)
    assert_same(second.take(), lanes_of(programs, 16).evaluate(JOB, other, None))


def test_a_cap_cuts_the_members_alone(programs, theta, view, expected):
    capped = EvaluationJob("members", 0, 3, 24, 2, 0.3, cap=7)
    lengths = lanes_of(programs, 16).evaluate(capped, theta, view).lengths
    assert lengths.max() == 14 < expected.lengths.max()


def test_a_job_that_is_stopped_leaves_its_lanes_to_others(programs, theta, view, expected):
    lanes = lanes_of(programs, 16)
    stopped = lanes.start(EvaluationJob("members", 0, 90, 24, 2, 0.3), theta, view)
    lanes.step()
    taken = stopped.take()
    lanes.stop(stopped)
    assert not lanes.busy
    assert_same(lanes.evaluate(JOB, theta, view), expected)
    whole = lanes.evaluate(EvaluationJob("members", 0, 90, 24, 2, 0.3), theta, view)
    if taken is not None:
        np.testing.assert_array_equal(taken.returns, whole.returns[: len(taken.returns)])


def test_the_centre_plays_episodes_of_its_own(programs, theta, view):
    job = EvaluationJob("centre", 4, 5, 20)
    ours = lanes_of(programs, 16).evaluate(job, theta, view)
    theirs = Lanes(SPEC, SteppedMaker(programs.functional), 4).evaluate(job, theta, view)
    assert_same(ours, theirs)
    assert ours.observed is None


def test_members_are_those_of_the_noise_bit_for_bit(programs, theta):
    from protocol import noise

    lanes = lanes_of(programs, 16)
    lanes.start(EvaluationJob("members", 0, 40, 4, 1, 0.3), theta)
    lanes._fill()
    lanes._begin()
    order, played = programs.order, np.asarray(lanes._lanes.parameters)
    for row in range(8):
        sign = 1 if row % 2 == 0 else -1
        kind, seed = SPEC.strategy.noise, SPEC.seed
        member = noise.member(kind, seed, 40 + row // 2, sign, theta, 0.3)
        np.testing.assert_array_equal(played[row], member[order])
