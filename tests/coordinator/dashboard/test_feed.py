"""What pages are told: whoever begins at any moment ends up with the same picture."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from coordinator.dashboard.feed import REELS, Feed
from coordinator.dashboard.history import History
from coordinator.dashboard.published import Aliases
from coordinator.overview import ContributionView
from tests.coordinator.dashboard.pictures import HOSTILE, picture, update_line, worker

ABOUT = {"run": "test-12345678", "role": "leading"}


class Page:
    """What a page keeps of what it is told, as `store.js` does."""

    def __init__(self, whole: dict[str, Any]) -> None:
        self.rows = {tuple(row[:2]): row for row in whole["workers"]}
        self.items = {name: list(whole[name]["items"]) for name in REELS}
        self.next = {name: whole[name]["next"] for name in REELS}
        self.summary = whole["summary"]

    def take(self, told: dict[str, Any]) -> None:
        for row in told["gone"]:
            self.rows.pop(tuple(row), None)
        self.rows |= {tuple(row[:2]): row for row in told["workers"]}
        for name in REELS:
            if name in told:
                first, items = told[name]["first"], told[name]["items"]
                self.items[name] += items[max(0, self.next[name] - first) :]
                self.next[name] = first + len(items)
        self.summary = told["summary"]


def sent(told: dict[str, Any]) -> dict[str, Any]:
    """As it comes out at the other end."""
    return msgspec.json.decode(msgspec.json.encode(told), type=dict[str, Any])


CROWDS = st.lists(st.lists(st.integers(0, 12), unique=True, max_size=12), min_size=1, max_size=8)


@given(crowds=CROWDS, begin=st.integers(0, 7), late=st.booleans())
def test_a_page_that_comes_at_any_time_has_the_whole_picture_in_the_end(
    crowds: list[list[int]], begin: int, late: bool
) -> None:
    history = History()
    feed = Feed(history, Aliases(b"k" * 16))
    page: Page | None = None
    for moment, crowd in enumerate(crowds):
        history.metrics(update_line(moment + 1))
        history.event(float(moment), f"event {moment}")
        if late and moment == begin:  # between two pictures
            page = Page(sent(feed.whole()))
        views = [worker(number, speed=float(moment // 2)) for number in crowd]
        told = sent(feed.news(picture(*views, version=moment), ABOUT))
        if page is not None:
            page.take(told)
        elif moment == begin:
            page = Page(sent(feed.whole()))
            page.take(told)  # it was on its way already
    whole = Page(sent(feed.whole()))
    if page is not None:
        assert page.rows == whole.rows and page.summary == whole.summary
        assert page.items == whole.items and page.next == whole.next


def test_who_did_not_change_is_no_news() -> None:
    feed = Feed(History(), Aliases(b"k" * 16))
    views = [worker(number) for number in range(1000)]
    assert len(feed.news(picture(*views), ABOUT)["workers"]) == 1000
    views[7] = dataclasses.replace(views[7], state="waiting")
    told = feed.news(picture(*views[1:]), ABOUT)
    assert [row[6] for row in told["workers"]] == ["waiting"] and len(told["gone"]) == 1


def test_no_key_of_who_keeps_to_itself_is_told() -> None:
    history, aliases = History(), Aliases(b"k" * 16)
    feed = Feed(history, aliases)
    hidden = worker(3, name="", device="", trouble=f"{worker(3).worker} lost a task")
    work = ContributionView(hidden.worker, "", "", 64, 100)
    history.event(1.0, f"{hidden.worker}/aaaaaa (private): joined")
    feed.news(picture(hidden, worker(4), contributions=(work,), quiet=hidden.worker), ABOUT)
    whole = msgspec.json.encode(feed.whole()).decode()
    assert hidden.worker not in whole and worker(4).worker in whole
    alias = aliases.shown(hidden.worker, "", "")
    assert whole.count(alias) == 5 and aliases.worker(alias) == hidden.worker


def test_whom_only_lines_tell_of_may_keep_to_itself_too() -> None:
    aliases = Aliases(b"k" * 16)
    hidden, open_one = worker(3).worker, worker(4).worker
    for line in (f"{hidden}/abcdef (private) is not let in: no", f"{open_one}/abcdef (ann, cpu)"):
        aliases.learn(line)
    told = aliases.hide(f"{hidden}/abcdef: a result of {open_one} is refused")
    assert hidden not in told and open_one in told
    assert aliases.shown(hidden, "", "") in told


def test_hostile_words_go_out_as_they_are_and_as_valid_json() -> None:
    feed = Feed(History(), Aliases(b"k" * 16))
    views = [worker(number, name=name, device=name) for number, name in enumerate(HOSTILE)]
    feed.news(picture(*views), ABOUT)
    assert [row[2] for row in sent(feed.whole())["workers"]] == list(HOSTILE)
