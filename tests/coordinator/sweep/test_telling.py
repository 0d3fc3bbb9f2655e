"""What a person sees of a sweep: that a worker comes to one more run is no news."""

from __future__ import annotations

from coordinator.sweep.telling import Once

ONE, OTHER = "lgz34x7arf4ibbaw", "pwyocxlixe5x4thz"


def test_that_a_worker_has_come_is_told_once() -> None:
    told: list[str] = []
    once = Once(told.append)
    news = [
        f"{ONE} is trusted",
        f"{ONE}/zrzlfi (calm-otter, cpu x1): joined",
        f"{OTHER}/uakq6s (lab: joined, cpu x1): joined",
        f"{ONE}/zrzlfi (calm-otter, cpu x1): gone: its connection broke",
    ]
    for line in news:
        once(line)
    assert told == news
    once(f"{ONE} is trusted")
    once(f"{ONE}/v4ywcu (calm-otter, cpu x1): joined")
    assert told == news
    once(news[-1])
    assert told == [*news, news[-1]], "whatever else happens to it is told each time"


def test_that_nobody_is_here_is_told_once_until_somebody_comes() -> None:
    told: list[str] = []
    once = Once(told.append)
    nobody, joined = (
        "waiting: no worker is here: give it",
        f"{ONE}/zrzlfi (calm-otter, cpu x1): joined",
    )
    for line in (nobody, nobody, joined, nobody, joined, nobody, nobody):
        once(line)
    assert told == [nobody, joined, nobody, nobody]
