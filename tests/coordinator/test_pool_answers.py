"""What workers are told of their results, and when."""

from __future__ import annotations

from coordinator.pool.events import (
    Heard,
    KeepResult,
    Kept,
    Left,
    SendAcknowledge,
    SendTask,
    StopAsked,
)
from coordinator.pool.roster import MOST_TASKS
from tests.coordinator.driver import CENTRE, A, B, Driver, answers, of, straggling, tasks
from tests.coordinator.simulation import spec

# Acknowledgements.


def test_an_acknowledgement_rides_on_the_next_task() -> None:
    driver = Driver(spec(64))
    (task,) = driver.join(A)
    (second,) = tasks(driver.finish(task))
    said = driver.finish(second)
    assert tasks(said)[0].acknowledged == (task.task,)
    assert not of(said, SendAcknowledge)


def test_an_acknowledgement_goes_alone_when_no_task_comes() -> None:
    driver = Driver(spec(2))
    (task,) = driver.join(A)
    said = driver.finish(task)
    assert not tasks(said)
    assert not answers(driver.tick(1.0))
    assert answers(driver.tick(1.1)) == [((task.task,), "accepted")]


def test_who_takes_no_more_is_answered_at_once() -> None:
    driver = Driver(spec(16))
    (task,) = driver.join(A)
    driver.send(Heard(A, credit=0))
    assert answers(driver.finish(task)) == [((task.task,), "accepted")]


def test_everybody_is_told_at_the_end() -> None:
    driver = Driver(spec(2))
    (task,) = driver.join(A)
    driver.finish(task)
    assert answers(driver.send(StopAsked("enough"))) == [((task.task,), "accepted")]


def test_a_session_that_is_gone_is_answered_at_once() -> None:
    driver = Driver(spec(16))
    (task,) = driver.join(A)
    driver.send(Left(A, "lost"))
    assert ((task.task,), "accepted") in answers(driver.finish(task))


# Keeping results.


def test_a_result_is_acknowledged_once_it_is_kept() -> None:
    driver = Driver(spec(64))
    driver.keeps = False
    (task,) = driver.join(A)
    said = driver.finish(task)
    (keep,) = of(said, KeepResult)
    assert keep.arrived.task == task.task
    assert not [t for t in tasks(said + driver.tick(5.0)) if t.acknowledged]
    assert not of(driver.said, SendAcknowledge)
    driver.send(Kept(((A, task.task),)))
    assert answers(driver.tick(2.1)) == [((task.task,), "accepted")]


def test_a_result_is_needed_until_the_update_that_uses_it_is_made() -> None:
    driver, late, _ = straggling(stale_share=1.0)
    assert driver.pool.updating
    keeps = {keep.arrived.first: keep.until for keep in of(driver.said, KeepResult)}
    assert {until for first, until in keeps.items() if first < 16} == {0}
    assert {until for first, until in keeps.items() if first >= 16} == {1}
    (keep,) = of(driver.finish(late), KeepResult)
    assert keep.until == 1  # it missed update 0


def test_a_result_of_the_centre_is_needed_until_its_version_is_judged() -> None:
    driver = Driver(spec(16, centre=CENTRE), version=7)
    said = driver.finish(SendTask(A, 1, "centre", 7, 0, 2))
    assert [keep.until for keep in of(said, KeepResult)] == [7]


def test_who_was_second_keeps_its_result_until_the_first_is_kept() -> None:
    driver = Driver(spec(64))
    driver.keeps = False
    (task,) = driver.join(A)
    driver.finish(task)
    assert not answers(driver.finish(task))
    copy = SendTask(B, 900, "members", 0, task.first, 1)
    assert not answers(driver.finish(copy))
    apart = SendTask(B, 901, "members", 0, task.first + task.count, 1)
    assert of(driver.finish(apart), KeepResult)
    said = driver.send(Kept(((A, task.task),)))
    assert answers(said) == [((task.task,), "duplicate"), ((900,), "duplicate")]
    assert answers(driver.finish(copy)) == [((900,), "duplicate")]


def test_who_was_second_to_two_results_waits_for_both() -> None:
    driver = Driver(spec(64))
    driver.keeps = False
    for task, first in ((1, 0), (2, 4)):
        driver.finish(SendTask(A, task, "members", 0, first, 4))
    assert not answers(driver.finish(SendTask(B, 3, "members", 0, 2, 4)))
    assert answers(driver.send(Kept(((A, 1),)))) == [((1,), "accepted")]
    assert answers(driver.send(Kept(((A, 2),)))) == [((2,), "accepted"), ((3,), "duplicate")]


def test_who_has_too_much_that_is_not_kept_gets_no_more_until_it_is() -> None:
    driver = Driver(spec(65_536))
    driver.measured(A, credit=8)
    driver.keeps = False
    unkept = []
    while held := [t for t in tasks(driver.said) if t.task in driver.pool.leases]:
        unkept.append((A, held[0].task))
        driver.finish(held[0])
        assert len(unkept) + len(driver.pool.leases) <= MOST_TASKS
    assert len(unkept) == MOST_TASKS
    assert driver.pool.quiet_because().startswith("64 results wait for the disk")
    driver.send(Kept(tuple(unkept[:3])))
    driver.tick(0.1)
    assert len(driver.pool.leases) == 3
    assert driver.pool.progress[0] < 32_768


def test_what_is_kept_after_its_session_left_or_the_run_ended_is_answered_at_once() -> None:
    driver = Driver(spec(64))
    driver.keeps = False
    (first,) = driver.join(A)
    (second,) = tasks(driver.finish(first))
    driver.send(Left(A, "lost"))
    assert answers(driver.send(Kept(((A, first.task),)))) == [((first.task,), "accepted")]
    driver.join(A)
    driver.finish(second)
    assert not answers(driver.send(StopAsked("enough")))
    assert answers(driver.send(Kept(((A, second.task),)))) == [((second.task,), "accepted")]
