from typing import Any

from worker.leaving import HAND_BACK_WITHIN, WAIT_FOR_ANSWERS, Leaving


def last_words(leaving: Leaving, now: float, **changes: Any) -> str:
    what: dict[str, Any] = {"welcomed": True, "held": 0, "unanswered": 0, "done": 3}
    return leaving.last_words(now, **{**what, **changes})


def test_nobody_leaves_who_does_not_want_to() -> None:
    assert last_words(Leaving(), 1e6) == ""


def test_who_finishes_waits_for_the_tasks_and_a_while_for_the_answers() -> None:
    leaving = Leaving()
    leaving.finish()
    assert last_words(leaving, 100.0, held=1) == ""
    assert last_words(leaving, 200.0, unanswered=2) == ""
    assert last_words(leaving, 199.9 + WAIT_FOR_ANSWERS, unanswered=2) == ""
    late = last_words(leaving, 200.0 + WAIT_FOR_ANSWERS, unanswered=2)
    assert late == "left; no answer to 2 results within 5 s"
    assert last_words(leaving, 201.0) == "left; every result is answered for"
    assert last_words(leaving, 201.0, done=0) == "left"


def test_who_hands_back_waits_a_moment_for_the_tasks_and_for_no_answer() -> None:
    leaving = Leaving()
    leaving.finish()
    leaving.hand_back(2, 100.0)
    handed_back = "handed 2 tasks back and left"
    assert last_words(leaving, 99.9 + HAND_BACK_WITHIN, held=1) == ""
    assert last_words(leaving, 100.0 + HAND_BACK_WITHIN, held=1) == handed_back
    assert last_words(leaving, 100.1, unanswered=1) == handed_back
    assert last_words(leaving, 100.1, held=1, welcomed=False) == handed_back, "nobody hears it"
