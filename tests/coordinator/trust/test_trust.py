"""Who is believed, who is audited, and what survives a restart."""

from __future__ import annotations

import itertools
import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.trust import Trust
from coordinator.trust import trust as rules
from coordinator.trust.dispute import LEAD
from coordinator.trust.trust import AMENDS, DOUBTFUL, PART, PROBATION


def trust(share: float = 0.04, seed: int = 1, **how: object) -> Trust:
    return Trust(share, Random(seed), **how)  # type: ignore[arg-type]


def confirm(believing: Trust, worker: str = "a", others: int = 3) -> bool:
    """One of so many others, in turn, got the same."""
    number = believing.record(worker).audits % others
    return believing.confirmed(worker, f"other{number}", others)


def establish(believing: Trust, worker: str = "a") -> None:
    while not confirm(believing, worker):
        pass


def test_a_newcomer_is_believed_once_its_first_tasks_are_confirmed() -> None:
    made = trust()
    assert made.standing("a") == "new"
    assert [confirm(made) for _ in range(PROBATION)] == [False] * (PROBATION - 1) + [True]
    assert made.is_believed("a") and not made.is_believed("b")
    assert not confirm(made), "it is established once"


def test_few_who_confirm_each_other_establish_nobody() -> None:
    made = trust()
    assert not any(made.confirmed("a", f"b{k % 3}", 7) for k in range(20 * PROBATION))
    assert made.confirmed("a", "c", 7), "four of seven"
    large = trust()
    assert not any(large.confirmed("a", f"b{k % (LEAD - 1)}", 1000) for k in range(200))
    assert large.confirmed("a", "c", 1000), "as many more than speak against it"
    for other in "de":
        made.contradicted("b", other)
    assert not any(made.confirmed("b", f"c{k % (LEAD + 1)}", 1000) for k in range(200))


def test_what_another_class_contradicts_confirms_nothing() -> None:
    made = trust()
    for _ in range(5 * PROBATION):
        confirm(made)
        made.contradicted("a", "other")
    assert made.standing("a") == "new"


def test_the_trusted_are_always_believed_and_never_audited() -> None:
    made = trust(share=1.0, trusted=["t"])
    assert made.is_believed("t")
    assert all(made.audited("t", 8, False) is None for _ in range(50))
    assert not any(made.compared("t", f"o{k}", 0, 100) for k in range(50))


@given(
    share=st.sampled_from([0.01, 0.04, 0.2]),
    largest=st.integers(1, 200),
    whole=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=30, deadline=None)
def test_audits_cost_their_share_however_large_tasks_are(
    share: float, largest: int, whole: bool, seed: int
) -> None:
    made, draw = trust(share, seed), Random(seed)
    sizes = [draw.randint(1, largest) for _ in range(300)]
    spent = 0
    for size in sizes:
        part = made.audited("a", size, whole)
        if part is not None:
            first, count = part
            assert 0 <= first < first + count <= size
            assert count == (size if whole else -(-size // PART))
            spent += count
    each = largest if whole else -(-largest // PART)
    expected = share * sum(sizes)
    assert abs(spent - expected) <= 5.0 * (expected * each) ** 0.5 + 2 * each


def test_no_two_stretches_pass_without_an_audit_and_none_is_known_before() -> None:
    made, places = trust(0.04), []
    for task in range(2000):
        if made.audited("a", 8, False) is not None:
            places.append(task)
    stretch = round(2 / (0.04 * 8))  # tasks: an audit is of 2 of their 8 directions
    gaps = [after - before for before, after in itertools.pairwise(places)]
    assert max(gaps) < 2 * stretch + 2
    assert len(set(gaps)) > stretch // 2, "a gap tells when the next one comes"
    again = trust(0.04, seed=2)
    others = [task for task in range(2000) if again.audited("a", 8, False) is not None]
    assert others != places


def test_who_was_in_a_dispute_that_stayed_open_is_audited_at_once() -> None:
    made = trust(1e-9)
    assert made.audited("a", 8, False) is None
    made.doubt("a")
    assert [made.audited("a", 8, False) is not None for _ in range(DOUBTFUL + 1)] == [
        *[True] * DOUBTFUL,
        False,
    ]


def test_the_first_offence_quarantines_and_the_second_one_bans() -> None:
    made = trust()
    establish(made)
    assert made.convict("a", "it lied") == "quarantined"
    assert (made.standing("a"), made.is_believed("a")) == ("quarantined", False)
    assert [confirm(made) for _ in range(AMENDS)][-2:] == [False, True]
    assert made.convict("a", "again") == "banned"
    assert made.banned == {"a": "again"}
    made.unban("a")
    assert (made.standing("a"), dict(made.banned)) == ("new", {})


def test_statistics_find_who_points_the_other_way_and_nobody_else() -> None:
    def found_after(likely: float, pairs: int, seed: int) -> int | None:
        made, draw = trust(), Random(seed)
        for number in range(pairs):
            alike = draw.random() < likely
            if made.compared("a", f"o{number % 5}", alike, not alike):
                return number
        return None

    assert all((found_after(0.0, 40, seed) or 99) < 40 for seed in range(5))
    assert all((found_after(0.1, 200, seed) or 999) < 200 for seed in range(20))
    for honest in (0.5, 0.6, 0.9):  # whose episodes say nothing, or as much as honest ones do
        assert all(found_after(honest, 2000, seed) is None for seed in range(10))


def test_good_conduct_of_the_past_hides_nothing() -> None:
    made = trust()
    made.compared("a", "b", 100_000, 0)
    assert not any(made.compared("a", f"o{k % 2}", 0, 1) for k in range(100)), "of two"
    assert any(made.compared("a", f"o{k % 3}", 0, 1) for k in range(40))


@given(
    events=st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["confirm", "convict", "ban", "unban"])),
        max_size=60,
    )
)
@settings(max_examples=50, deadline=None)
def test_what_is_known_survives_in_plain_values(events: list[tuple[str, str]]) -> None:
    made = trust()
    for worker, what in events:
        match what:
            case "confirm":
                confirm(made, worker)
            case "convict":
                made.convict(worker, "it lied")
            case "ban":
                made.ban(worker, "by hand")
            case "unban":
                made.unban(worker)
    again = trust()
    again.remember(json.loads(json.dumps(made.known())))
    assert again.known() == made.known()
    assert again.banned == made.banned
    assert all(again.standing(worker) == made.standing(worker) for worker in "abcd")


def test_so_many_workers_are_remembered_and_who_offended_goes_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "MOST_KNOWN", 3)
    made = trust()
    made.convict("bad", "it lied")
    for number in range(10):
        confirm(made, f"w{number}")
    assert set(made.records) == {"bad", "w8", "w9"}


def test_who_is_believed_is_remembered_whoever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST_KNOWN", 4)
    made = trust()
    for worker in "ab":
        made.record(worker).standing = "established"
    made.ban("bad", "by hand")
    for number in range(10):
        made.record(f"w{number}")
    assert set(made.records) == {"a", "b", "bad", "w9"}
    made.record("w9").standing = "established"
    made.record("c")
    assert set(made.records) == {"b", "bad", "w9", "c"}, "where nobody is new, the oldest"
