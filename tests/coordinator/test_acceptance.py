"""Candidates are kept where they are better than all that is known of what they came from."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from coordinator.pool.acceptance import Acceptance, Evidence, Standing, standing
from coordinator.pool.events import CentreJudged


def judged(version: int, mean: float, episodes: int = 10) -> CentreJudged:
    return CentreJudged(version, episodes, mean, 1.0, 100, full=False, reached=False)


def begun(needed: bool = True) -> Acceptance:
    return Acceptance(needed, 0, Standing())


def test_a_candidate_waits_for_its_verdict_and_is_kept_where_it_is_better():
    acceptance = begun()
    assert not acceptance.awaits and acceptance.accepted_version == 0
    acceptance.judge(judged(0, 5.0))
    acceptance.reach(1, reverts=False)
    assert acceptance.awaits and not acceptance.rejected and acceptance.accepted_version == 0
    acceptance.judge(judged(1, 5.5))
    assert not acceptance.awaits and not acceptance.rejected
    assert acceptance.accepted_version == 1
    acceptance.reach(2, reverts=False)
    acceptance.judge(judged(2, 5.25))  # better than version 0, not than version 1
    assert acceptance.rejected and acceptance.accepted_version == 1


def test_a_tie_is_no_step_up():
    acceptance = begun()
    acceptance.judge(judged(0, 5.0))
    acceptance.reach(1, reverts=False)
    acceptance.judge(judged(1, 5.0))
    assert acceptance.rejected


def test_what_is_accepted_is_judged_anew_after_each_revert_so_that_luck_wears_off():
    acceptance = begun()
    acceptance.judge(judged(0, 9.0))
    for version in (1, 3, 5):
        acceptance.reach(version, reverts=False)
        acceptance.judge(judged(version, 6.0))
        assert acceptance.rejected and acceptance.accepted_version == version - 1
        acceptance.reach(version + 1, reverts=True)
        assert not acceptance.awaits and acceptance.accepted_version == version + 1
        acceptance.judge(judged(version + 1, 5.0))
    acceptance.reach(7, reverts=False)
    acceptance.judge(judged(7, 6.1))  # above the mean of 9, 5, 5 and 5
    assert not acceptance.rejected


def test_an_evaluation_of_the_accepted_version_may_end_after_the_step():
    acceptance = begun()
    acceptance.reach(1, reverts=False)
    acceptance.judge(judged(0, 5.0))
    assert acceptance.awaits
    acceptance.judge(judged(1, 6.0))
    assert not acceptance.awaits and not acceptance.rejected


def test_what_was_never_judged_is_kept_by_nobody():
    unknown = begun()
    unknown.reach(1, reverts=False)
    unknown.judge(judged(1, 6.0))
    assert unknown.rejected
    failing = begun()
    failing.judge(judged(0, 5.0))
    failing.reach(1, reverts=False)
    failing.give_up()
    assert failing.rejected and not failing.awaits


def test_a_verdict_stands_whatever_is_judged_later():
    acceptance = begun()
    acceptance.judge(judged(0, 5.0))
    acceptance.reach(1, reverts=False)
    acceptance.judge(judged(1, 6.0))
    acceptance.judge(judged(1, -100.0))
    assert not acceptance.rejected and acceptance.accepted_version == 1
    acceptance.reach(2, reverts=False)
    acceptance.judge(judged(2, -40.0))  # the mean of both evaluations of version 1 is -47
    assert not acceptance.rejected


def test_where_no_strategy_needs_it_every_version_is_accepted():
    acceptance = begun(needed=False)
    for version in range(1, 4):
        acceptance.reach(version, reverts=False)
        acceptance.judge(judged(version, -version))
        assert not acceptance.awaits and not acceptance.rejected
        assert acceptance.accepted_version == version


COURSES = st.lists(
    st.tuples(st.booleans(), st.lists(st.floats(-9, 9), max_size=2), st.integers(1, 20)),
    max_size=12,
)


@given(COURSES, st.booleans())
def test_a_log_tells_what_a_coordinator_knew(course, restarted_often):
    """Whatever was kept, reverted, judged late or never: who goes on by the log decides alike."""
    live = begun()
    reverts: list[bool] = []  # of the update that led to version i + 1
    known: dict[int, CentreJudged] = {}

    def again() -> Acceptance:
        version = len(reverts)
        candidate = bool(reverts) and not reverts[-1]
        return Acceptance(True, version, standing(version, candidate, reversed(reverts), known))

    for late, means, episodes in course:
        version = len(reverts)
        candidate = bool(reverts) and not reverts[-1]
        if candidate and late and version - 1 not in known:
            known[version - 1] = judged(version - 1, 0.5, episodes)
            live.judge(known[version - 1])
        if means:
            known[version] = judged(version, means[0], episodes)
            live.judge(known[version])
        elif candidate:
            live.give_up()
        back = again()
        if not known.get(version) and candidate:
            back.give_up()
        assert (back.awaits, back.rejected) == (live.awaits, live.rejected)
        assert math.isclose(back._accepted.mean, live._accepted.mean, abs_tol=1e-9)
        assert back._accepted.episodes == live._accepted.episodes
        if restarted_often:
            live = back
        reverts.append(live.rejected)
        live.reach(version + 1, live.rejected)


def test_evidence_adds_up():
    evidence = Evidence().with_more(judged(0, 2.0, 10)).with_more(judged(2, 5.0, 20))
    assert evidence == Evidence(30, 4.0)
    assert not evidence.beats(Evidence()) and not Evidence().beats(evidence)
