"""A broker that drops what a worker says, which is told within seconds."""

from __future__ import annotations

from protocol import topics
from tests.worker.test_session import WORKER, Desk, host_of


def test_what_a_session_must_write_to_is_tried_before_the_hello_until_it_was_heard() -> None:
    desk = Desk(host_of())
    desk.connected()
    desk.hears_epoch()
    desk.ready()
    assert [topics.parse(topic).kind for topic in desk.tried] == ["results", "status"]  # type: ignore[union-attr]
    desk.is_welcomed(heard=("status",))
    desk.tried.clear()
    desk.pass_time(1.5)
    assert [topics.parse(topic).kind for topic in desk.tried] == ["results"]  # type: ignore[union-attr]
    desk.is_welcomed(heard=("status", "results"))
    desk.tried.clear()
    desk.pass_time(5.0)
    desk.obey(desk.session.disconnected(desk.now))
    desk.connected()
    desk.pass_time(5.0)
    assert len(desk.hellos()) > 0
    assert (desk.tried, desk.warnings, desk.left) == ([], "", None)


def test_a_broker_that_drops_results_is_left_with_the_topic_and_a_remedy() -> None:
    desk = Desk(host_of())
    desk.connected()
    desk.hears_epoch()
    desk.ready()
    began = desk.now
    while desk.left is None and desk.now < began + 10.0:
        desk.is_welcomed(heard=("status",))
        desk.pass_time(1.2)
    assert desk.left is not None
    assert desk.left.code == 5
    assert topics.results(desk.host.run, WORKER.worker, "aaaabb") in desk.left.text
    assert "ask the broker's owner" in desk.left.text
    assert "/status/" not in desk.left.text
    assert desk.now - began < 8.0


def test_a_host_that_does_not_look_is_believed() -> None:
    desk = Desk(host_of())
    desk.welcomed()
    desk.pass_time(8.0)
    assert desk.left is None and len(desk.tried) == 2


def test_hellos_without_an_answer_name_both_ways() -> None:
    desk = Desk(host_of())
    desk.connected()
    desk.hears_epoch()
    desk.ready()
    desk.pass_time(30.0)
    assert desk.warnings.count("answered none of 3 hellos") == 1
    run, worker, session = desk.host.run, WORKER.worker, "aaaabb"
    assert topics.request(run, worker, session) in desk.warnings
    assert topics.inbox(run, worker, session) in desk.warnings
