"""The screen as a function: it never exceeds its terminal, whatever strangers call themselves."""

from __future__ import annotations

import math
import random
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from coordinator.screen.frame import Scene, frame, places
from coordinator.screen.history import MOST_POINTS, History, Rates, Thread
from coordinator.screen.keys import Mode
from coordinator.screen.text import fit, harmless, items, row
from tests.coordinator.screen.scenes import history, overview, worker

HOSTILE = st.text(max_size=60) | st.sampled_from(
    [
        "\x1b[2J\x1b]0;owned\x07",
        "‮evil",
        "メ" * 40,
        "e" + "́" * 50,
        "👩‍👩‍👧‍👦" * 9,
        "\r\n\t",
        "a\x00b",
    ]
)
SIZES = st.tuples(st.integers(1, 260), st.integers(1, 90))
MODES = st.sampled_from([Mode(), Mode(asks=True), Mode(helps=True)])


def shown(lines: list[Text]) -> str:
    return "\n".join(line.plain for line in lines)


@settings(max_examples=300, deadline=None)
@given(
    size=SIZES,
    names=st.lists(HOSTILE, max_size=30),
    words=HOSTILE,
    mode=MODES,
    plain=st.booleans(),
    led=st.booleans(),
    versions=st.integers(0, 80),
)
def test_a_frame_is_exactly_as_large_as_its_terminal(
    size: tuple[int, int],
    names: list[str],
    words: str,
    mode: Mode,
    plain: bool,
    led: bool,
    versions: int,
) -> None:
    width, height = size
    views = tuple(
        worker(number, name=name, device=name, trouble=words, speed=10.0 ** (number % 12))
        for number, name in enumerate(names)
    )
    drawn = history(versions)
    drawn.tell(words)
    picture = overview(0, workers=views, quiet=words, environment=words)
    scene = Scene(
        picture if led else None,
        drawn,
        10.0,
        join=f"shoal join {words}",
        follows=words,
        local=3,
        mode=mode,
        note=words,
    )
    lines = frame(scene, width, height, plain)
    assert len(lines) == height
    for line in lines:
        assert cell_len(line.plain) == width
        assert line.plain.isprintable()
        assert not plain or line.plain.isascii()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (200, 60)])
def test_what_a_person_wants_to_know_is_on_the_screen(width: int, height: int) -> None:
    text = shown(frame(Scene(overview(), history(), 9.0, "shoal join X"), width, height, False))
    for words in ("cartpole-v1-1a2b3c4d", "running 12 min", "version 120", "402.6 ± 63.0"):
        assert words in text
    for words in ("310.4", "245 episodes/s", "25,181 steps/s", "39.0 bytes/episode"):
        assert words in text
    for words in ("55% of 128 settled, 40 out, 17 free", "12 workers at work", "shoal join X"):
        assert words in text
    for words in ("calm-otter", "cpu x7", "trusted", "waiting", "joined", "q quit", "⣿"):
        assert words in text


def test_as_many_workers_as_fit_are_shown_and_the_others_counted() -> None:
    for count in (0, 1, 3, 12, 13, 14, 50, 10_000):
        text = shown(frame(Scene(overview(count), history(), 9.0), 100, 30, True))
        here = sum(f"{worker(n).worker[:6]} " in text for n in range(min(count, 60)))
        more = f"+{count - here:,} more" if here < count else "more"
        assert (more in text) == (here < count), text
        assert here >= min(count, 3)


def test_the_fastest_come_first_and_trouble_where_there_is_room() -> None:
    text = shown(frame(Scene(overview(4), history(), 9.0), 140, 40, False))
    assert text.index("calm-otter") < text.index("lab-17") < text.index("spot-a81f")
    assert "lease of task 12" in text


def test_why_nothing_happens_goes_before_how_it_goes() -> None:
    quiet = overview(quiet="no worker is here: give the join line to somebody")
    busy = overview(busy="the broker answers after 1.2 s", quiet="no worker is here")
    assert "waiting: no worker is here" in shown(frame(Scene(quiet, history(), 9.0), 80, 24, True))
    assert "busy: the broker answers" in shown(frame(Scene(busy, history(), 9.0), 80, 24, True))
    paused = frame(Scene(overview(paused=True), history(), 9.0), 80, 24, True)
    assert "paused 12 min" in paused[0].plain


def test_a_small_terminal_keeps_what_matters() -> None:
    lines = frame(Scene(overview(), history(), 9.0, "shoal join X"), 30, 4, True)
    assert lines[0].plain.startswith("cartpole-v1-1a2b3c4d")
    assert lines[-1].plain.startswith("p pause")


def test_the_join_line_is_never_cut() -> None:
    join = "shoal join mqtts://a-long-name.example:8883/" + "x" * 80
    text = shown(frame(Scene(overview(), history(), 9.0, join), 80, 24, True))
    rows = [line.rstrip() for line in text.split("\n")]
    first = next(number for number, line in enumerate(rows) if "shoal join" in line)
    pasted = "echo " + "\n".join(rows[first : first + 2])
    told = subprocess.run(["sh"], input=pasted, capture_output=True, text=True, check=True)
    assert told.stdout == f"{join}\n", "what a shell makes of the lines, copied as they are"


def test_an_event_that_is_too_long_goes_on_below() -> None:
    said = history()
    said.tell("w" * 30 + " " + "joined and " * 12)
    text = shown(frame(Scene(overview(), said, 9.0), 80, 40, True))
    assert " ".join(text.split()).count("joined and") == 12


def test_nothing_of_an_event_in_wide_characters_is_cut() -> None:
    said = history()
    said.tell("机器 加入 " * 20)
    text = shown(frame(Scene(overview(), said, 9.0), 80, 40, False))
    assert text.count("机器") == text.count("加入") == 20


def test_all_lines_go_to_what_is_there() -> None:
    for height in range(1, 90):
        for workers in (0, 1, 5, 1000):
            share = places(height, workers)
            assert share.chart + share.workers + share.events <= height
            assert min(share.chart, share.workers, share.events) >= 0


@given(size=SIZES, parts=st.lists(HOSTILE, max_size=5), right=st.booleans())
def test_lines_have_the_cells_that_they_should(
    size: tuple[int, int], parts: list[str], right: bool
) -> None:
    width = size[0]
    clean = [harmless(part) for part in parts]
    for part in clean:
        assert cell_len(fit(part, width, right)) == width
    assert cell_len(row(width, *((part, "bold") for part in clean)).plain) == width
    assert cell_len(items(width, *([(part, "")] for part in clean)).plain) == width


@settings(deadline=None)
@given(
    points=st.lists(st.floats(-1e150, 1e150), max_size=40),
    size=SIZES,
    target=st.none() | st.floats(-1e150, 1e150),
    plain=st.booleans(),
)
def test_any_returns_have_a_curve(
    points: list[float], size: tuple[int, int], target: float | None, plain: bool
) -> None:
    drawn = History()
    for version, mean in enumerate(points):
        drawn.measure({"kind": "update", "version": version, "mean_return": mean})
    lines = frame(Scene(overview(target=target), drawn, 1.0), *size, plain)
    assert all(cell_len(line.plain) == size[0] for line in lines)


def test_a_rising_curve_rises() -> None:
    drawn = History()
    for version in range(200):
        drawn.measure({"kind": "update", "version": version, "mean_return": float(version)})
    lines = [
        line.plain for line in frame(Scene(overview(1, target=None), drawn, 1.0), 80, 40, True)
    ]
    heights = {}
    for number, line in enumerate(lines[6:30]):
        if "|" in line:
            for column, mark in enumerate(line):
                if mark == ".":
                    heights.setdefault(column, number)
    found = [heights[column] for column in sorted(heights) if column > 10]
    assert len(found) > 60 and found == sorted(found, reverse=True)


def test_a_long_run_has_a_curve_of_bounded_size_with_the_same_ends() -> None:
    thread = Thread()
    for version in range(50_000):
        thread.add(version, float(version))
    assert len(thread.points) < MOST_POINTS
    xs = [x for x, _ in thread.points]
    assert xs == sorted(xs) and xs[0] < 100 and xs[-1] > 49_900
    assert all(math.isclose(x, y, abs_tol=100.0) for x, y in thread.points)
    thread.add(10.0, -5.0)
    assert all(x <= 10.0 for x, _ in thread.points), "the run went back"


def test_what_is_no_figure_is_no_point() -> None:
    drawn = History()
    for line in ({}, {"kind": "update"}, {"kind": "update", "version": "1", "mean_return": 2.0}):
        drawn.measure(line)
    drawn.measure({"kind": "update", "version": 1, "mean_return": None})
    drawn.measure({"kind": "update", "version": 2, "mean_return": math.nan, "learning_rate": "x"})
    assert not drawn.members.points and drawn.figure("learning_rate") is None


def test_rates_are_of_what_counted_of_late_and_fall_once_nothing_comes() -> None:
    rates, numbers = Rates(), random.Random(1)
    assert rates.at(0.0) == (0.0, 0.0)
    now = 0.0
    for _ in range(40):
        now += 1.0
        rates.count(now, int(10 * now), int(300 * now))
        rates.count(now + numbers.random() / 2, int(10 * now), int(300 * now))
        if now > 2.0:
            episodes, steps = rates.at(now + 0.5)
            assert episodes == pytest.approx(10.0) and steps == pytest.approx(300.0)
    later = [rates.at(now + seconds)[0] for seconds in (3.0, 30.0, 300.0)]
    assert later == sorted(later, reverse=True) and later[-1] < 1.0
    rates.count(now + 301.0, 5, 5)
    assert rates.at(now + 301.0) == (0.0, 0.0), "the run went back"
