"""What a volunteer is told of its clock beside the host's, by whom no run goes."""

from __future__ import annotations

import pytest

from tests.worker.test_session import Desk, host_of
from worker import preflight


@pytest.mark.parametrize(
    ("ahead", "words", "warns"),
    [
        (0.0, "agrees with the host's", False),
        (-2.9, "agrees with the host's", False),
        (-42.0, "is 42 s behind the host's, which is no matter", False),
        (301.0, "ahead of the host's: the run does not mind, but --schedule, --until", True),
        (-86_400.0, "is 1 d behind the host's: the run does not mind", True),
        (-(2.0**40), "behind the host's", True),
        (1.7e9, "ahead of the host's", True),
    ],
)
def test_clocks_are_compared_in_words(ahead: float, words: str, warns: bool) -> None:
    text, warning = preflight.clock(ahead)
    assert words in text and warning is warns


def test_the_hosts_clock_is_told_once_where_it_is_said_and_changes_nothing() -> None:
    sent = []
    for clock in (0, 1, 1_800_000_000, 2**40):
        desk = Desk(host_of())
        desk.welcomed(clock=clock)
        desk.begins_anew()
        desk.is_told(desk.host.task())
        assert desk.compared == ([clock] if clock else [])
        assert len(desk.jobs) == 1
        sent.append([one.topic for one in desk.sent])
    assert all(one == sent[0] for one in sent)


@pytest.mark.parametrize("wrong", [-1, 2**40 + 1, 1.5, "now"])
def test_a_clock_of_another_form_makes_no_welcome(wrong: object) -> None:
    desk = Desk(host_of())
    desk.welcomed(clock=wrong)
    assert not desk.session.settled and not desk.compared
