from __future__ import annotations

import time
from datetime import datetime

import msgspec
import pytest

from protocol.kept_json import DamagedJson, read_json
from worker.control import Request
from worker.governor import Course, Governor
from worker.permission import Readings, Terms
from worker.schedule import parse
from worker.spans import Until
from worker.view import View
from worker.wishes import NOTHING, Wishes, finished_before

UNIX = 1_800_000_000.0
NOON = datetime(2026, 11, 30, 12)


class Volunteer:
    """A governor, and the clocks that it is asked at."""

    def __init__(self, wishes: Wishes = NOTHING, **terms: object) -> None:
        self.governor = Governor(Terms(**terms), wishes, 0.0)  # type: ignore[arg-type]
        self.now = 0.0

    def says(self, word: str, seconds: float | None = None) -> None:
        request = Request(word, seconds)  # type: ignore[arg-type]
        self.governor.wishes = self.governor.told(request, UNIX + self.now)

    def sees(self, after: float = 0.5, **view: object) -> Course:
        self.now += after
        shown = View(**view)  # type: ignore[arg-type]
        return self.governor.look(Readings(), shown, UNIX + self.now, NOON, self.now)


def test_a_pause_holds_until_resumed() -> None:
    volunteer = Volunteer()
    assert volunteer.sees() == Course()
    volunteer.says("pause")
    assert volunteer.sees(1e6) == Course(paused="paused by you")
    volunteer.says("resume")
    assert volunteer.sees() == Course()


def test_a_pause_for_a_time_ends_by_itself() -> None:
    volunteer = Volunteer()
    volunteer.says("pause", 7200.0)
    until = time.strftime("%H:%M", time.localtime(UNIX + 7200.0))
    assert volunteer.sees(7199.0) == Course(paused=f"paused by you until {until}")
    assert volunteer.sees(1.0) == Course()
    assert volunteer.governor.wishes == NOTHING


def test_the_volunteer_is_named_before_any_other_reason() -> None:
    volunteer = Volunteer(schedule=parse("22:00-07:00"))
    assert volunteer.sees().paused == "paused: outside 22:00-07:00"
    volunteer.says("pause")
    assert volunteer.sees().paused == "paused by you"
    volunteer.says("resume")
    assert volunteer.sees().paused == "paused: outside 22:00-07:00"


def test_who_is_told_to_finish_leaves_and_stays_told() -> None:
    volunteer = Volunteer()
    volunteer.says("finish")
    assert volunteer.sees() == Course(leave="told to finish")
    kept = volunteer.governor.wishes
    assert Volunteer(kept).sees() == Course(leave="told to finish")
    volunteer.says("resume")
    assert volunteer.governor.wishes == NOTHING


@pytest.mark.parametrize("word", ["status", "leave", "policy"])
def test_other_words_leave_a_pause_as_it_is(word: str) -> None:
    volunteer = Volunteer()
    volunteer.says("pause")
    volunteer.says(word)
    assert volunteer.sees() == Course(paused="paused by you")


def test_it_leaves_at_the_time_that_was_set() -> None:
    volunteer = Volunteer(until=Until("18:30", at=UNIX + 100.0))
    assert volunteer.sees(99.0) == Course()
    assert volunteer.sees(1.0) == Course(leave="--until 18:30 is reached")
    assert Volunteer(until=Until("2h", after=7200.0)).sees(7200.0).leave == "--until 2h is reached"


def test_it_leaves_after_so_many_tasks() -> None:
    volunteer = Volunteer(most_tasks=3)
    assert volunteer.sees(done=2) == Course()
    assert volunteer.sees(done=3) == Course(leave="--max-tasks 3 is reached")


def passes(volunteer: Volunteer, seconds: float, **view: object) -> Course:
    """What holds after so long, looked at every 0.5 s."""
    course = Course()
    for _ in range(round(2 * seconds)):
        course = volunteer.sees(0.5, **view)
    return course


def test_it_leaves_when_idle_for_long_which_no_pause_is() -> None:
    volunteer = Volunteer(exit_when_idle=60.0)
    assert passes(volunteer, 100.0, starting=True) == Course()
    assert passes(volunteer, 59.5) == Course()
    assert passes(volunteer, 0.5, running=1) == Course()
    assert passes(volunteer, 59.5) == Course()
    volunteer.says("pause")
    assert passes(volunteer, 1000.0).leave == ""
    volunteer.says("resume")
    assert passes(volunteer, 59.5) == Course()
    assert passes(volunteer, 0.5) == Course(leave="idle for 1 min (--exit-when-idle)")


def test_a_broker_that_never_answers_is_idle_too() -> None:
    volunteer = Volunteer(exit_when_idle=60.0)
    assert passes(volunteer, 60.0).leave


def test_a_machine_that_slept_was_not_idle() -> None:
    volunteer = Volunteer(exit_when_idle=60.0)
    assert volunteer.sees(30_000.0) == Course()
    assert passes(volunteer, 54.5) == Course()
    assert passes(volunteer, 0.5).leave


# What is kept.


@pytest.mark.parametrize(
    "wishes", [NOTHING.pause(None, UNIX), NOTHING.pause(60.0, UNIX), NOTHING.finish(UNIX)]
)
def test_words_are_kept_as_they_were(wishes: Wishes) -> None:
    assert read_json(msgspec.json.encode(wishes), Wishes) == wishes


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"paused": 1}', '{"since": -1}', '{"until": 1e300}', '{"more": true}']
)
def test_what_is_no_wish_is_damaged(text: str) -> None:
    with pytest.raises(DamagedJson):
        read_json(text, Wishes)


def test_a_worker_that_starts_says_what_holds_from_before() -> None:
    paused = NOTHING.pause(None, UNIX)
    clock = time.strftime("%H:%M", time.localtime(UNIX))
    assert paused.kept_pause(UNIX + 60.0) == (
        f"paused by you, since {clock}: `shoal worker resume` goes on"
    )
    date = time.strftime("%Y-%m-%d %H:%M", time.localtime(UNIX))
    assert f"since {date}" in paused.kept_pause(UNIX + 1e6)
    assert NOTHING.kept_pause(UNIX) == NOTHING.finish(UNIX).kept_pause(UNIX) == ""
    assert NOTHING.pause(60.0, UNIX).kept_pause(UNIX + 61.0) == "", "it is over"
    assert finished_before(NOTHING.finish(UNIX), "worker", UNIX) == (
        f"told to finish at {clock}: begins again after `shoal worker resume --name worker`"
    )
