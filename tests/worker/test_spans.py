from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ShoalError
from worker.spans import seconds_of, until

EVENING = datetime(2026, 11, 30, 18, 0, 0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("90", 90),
        ("45m", 2700),
        ("45 min", 2700),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1d 2h", 93600),
        ("0.5h", 1800),
        ("7.25", 7.25),
    ],
)
def test_spans(text: str, seconds: float) -> None:
    assert seconds_of(text, "--for") == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "-1h", "2 hours", "1y", "9" * 9, "inf", "1h2", "h"]
)
def test_what_is_no_span_is_one_line_with_the_form(text: str) -> None:
    with pytest.raises(ShoalError, match=r"--for .*: must be a time of up to a year such as 90s"):
        seconds_of(text, "--for")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("18:30", EVENING + timedelta(minutes=30)),
        ("18:00", EVENING + timedelta(days=1)),
        ("7:15", EVENING + timedelta(hours=13, minutes=15)),
        ("2026-12-24", datetime(2026, 12, 24)),
        ("2026-12-24T20:15", datetime(2026, 12, 24, 20, 15)),
        ("2026-12-24 20:15:30", datetime(2026, 12, 24, 20, 15, 30)),
        ("2026-12-24T20:15Z", datetime.fromtimestamp(1_798_143_300)),
    ],
)
def test_a_moment_is_the_next_one_on_the_wall(text: str, moment: datetime) -> None:
    found = until(text, "--until", EVENING)
    assert found.at == moment.timestamp() and found.after is None
    assert not found.over(moment.timestamp() - 1.0, 1e9)
    assert found.over(moment.timestamp(), 0.0)


def test_a_span_counts_from_the_start_whatever_the_clock_is_set_to() -> None:
    found = until("2h", "--until", EVENING)
    assert not found.over(1e12, 7199.0)
    assert found.over(0.0, 7200.0)


@pytest.mark.parametrize("text", ["", "25:00", "18:60", "2026-13-01", "tomorrow", "18", "0h", "²h"])
def test_what_is_no_moment_is_one_line_with_the_forms(text: str) -> None:
    with pytest.raises(ShoalError, match=r"--until .*: must be a time such as 18:30, a date"):
        until(text, "--until", EVENING)


def test_the_past_is_refused() -> None:
    with pytest.raises(ShoalError, match="lies in the past: give a moment to come"):
        until("2026-11-30T17:59", "--until", EVENING)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (lambda: seconds_of(text, "-"), lambda: until(text, "-", EVENING)):
        try:
            read()
        except ShoalError as error:
            assert "\n" not in str(error)
