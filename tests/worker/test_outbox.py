from random import Random

from hypothesis import given
from hypothesis import strategies as st

from protocol.messages import Part, Result, ResultName
from worker import outbox
from worker.outbox import RESEND_AFTER, Outbox


def result(name: ResultName, returns: bytes = b"\x00\x01\x02", reason: str = "") -> Result:
    task, part = (name, None) if isinstance(name, int) else (name[0], Part(name[1], 3))
    failed = ((0, reason),) if reason else ()
    lengths = b"\x00\x01\x02"
    return Result(
        task, "members", 0, 0, 1, 1, b"t" * 16, returns, lengths, failed=failed, part=part
    )


def names(results: list[Result]) -> list[ResultName]:
    return [each.name for each in results]


def test_a_result_is_due_until_it_is_sent_and_again_without_an_answer():
    box = Outbox(Random(1))
    box.add(result(1), 100.0)
    assert names(box.due(100.0)) == [1]
    assert names(box.due(500.0)) == [1]  # nobody took it: still due
    box.sent(1, 500.0)
    assert box.due(500.0 + RESEND_AFTER - 0.01) == []
    assert names(box.due(500.0 + 1.25 * RESEND_AFTER)) == [1]


def test_an_answer_ends_it_once():
    box = Outbox(Random(1))
    box.add(result(1), 0.0)
    box.add(result(2), 0.0)
    assert box.acknowledge((1, 99)) == 1
    assert box.acknowledge((1,)) == 0
    assert names(box.due(0.0)) == [2]
    assert len(box) == 1


def test_after_a_welcome_everything_is_due_and_counts_anew():
    box = Outbox(Random(1))
    for task in (1, 2):
        box.add(result(task), 0.0)
        box.sent(task, 0.0)
    assert box.due(1.0) == []
    assert box.most_sent == 1
    box.make_due(1.0)
    assert names(box.due(1.0)) == [1, 2]
    assert box.most_sent == 0


def test_sent_after_the_answer_changes_nothing():
    box = Outbox(Random(1))
    box.add(result(1), 0.0)
    box.acknowledge((1,))
    box.sent(1, 1.0)
    assert len(box) == 0
    assert box.due(100.0) == []


def test_the_oldest_are_let_go_when_there_is_no_room(monkeypatch):
    monkeypatch.setattr(outbox, "MOST_BYTES", 5_000)
    box = Outbox(Random(1))
    for task in range(4):
        box.add(result(task, b"\x05" + bytes(1600)), 0.0)
    assert names(box.due(0.0)) == [2, 3]
    assert box.let_go == 2
    box.add(result(9, b"\x05" + bytes(9_000)), 0.0)  # the only one is kept, whatever its size
    assert names(box.due(0.0)) == [9]
    box.add(result(9), 0.0)
    assert box.acknowledge((9,)) == 1
    assert box.let_go == 4, "neither what is replaced nor what is answered for"


def test_room_is_counted_for_each_part_with_what_it_tells_of_failures(monkeypatch):
    monkeypatch.setattr(outbox, "MOST_BYTES", 4_000)
    box = Outbox(Random(1))
    for before in range(3):
        box.add(result((1, before), b"\x05" + bytes(800), "x" * 200), 0.0)
    assert names(box.due(0.0)) == [(1, 1), (1, 2)]
    box.add(result((1, 2)), 0.0)  # in place of the same
    box.add(result((1, 3), b"\x05" + bytes(800)), 0.0)
    assert names(box.due(0.0)) == [(1, 1), (1, 2), (1, 3)]


def test_parts_are_answered_for_one_by_one():
    box = Outbox(Random(1))
    for name in (1, (1, 0), (1, 2), (2, 0)):
        box.add(result(name), 0.0)
    assert box.acknowledge([(1, 2), (2, 1), 2]) == 1
    assert names(box.results) == [1, (1, 0), (2, 0)]
    box.sent((1, 0), 0.0)
    assert names(box.due(1.0)) == [1, (2, 0)]
    assert box.most_sent == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "acknowledge", "sent", "due"]),
            st.integers(0, 2) | st.tuples(st.integers(0, 2), st.integers(0, 2)),
            st.floats(0.0, 30.0),
        )
    )
)
def test_exactly_the_unanswered_are_kept(steps):
    box, now = Outbox(Random(1)), 0.0
    expected: set[ResultName] = set()
    for what, name, wait in steps:
        now += wait
        if what == "add":
            box.add(result(name), now)
            expected.add(name)
        elif what == "acknowledge":
            assert box.acknowledge((name,)) == (name in expected)
            expected.discard(name)
        elif what == "sent":
            box.sent(name, now)
        else:
            assert set(names(box.due(now))) <= expected
        assert len(box) == len(expected)
    assert set(names(box.due(now + 2 * RESEND_AFTER))) == expected
