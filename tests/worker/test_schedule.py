import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ShoalError
from worker.schedule import DAYS, parse

MONDAY = datetime(2026, 11, 30)


def at(day: str, clock: str) -> datetime:
    hour, minute = map(int, clock.split(":"))
    return MONDAY + timedelta(days=DAYS.index(day), hours=hour, minutes=minute)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("22:00-07:00", ["mon 22:00", "tue 06:59", "sun 00:00"], ["mon 21:59", "mon 07:00"]),
        ("09:00-17:00", ["wed 09:00", "wed 16:59"], ["wed 17:00", "wed 08:59"]),
        ("18:00-24:00", ["wed 23:59"], ["thu 00:00"]),
        (
            "mon-fri 22:00-07:00, sat,sun",
            ["fri 23:00", "sat 06:00", "sat 12:00", "sun 23:59", "mon 22:00"],
            ["mon 06:00", "mon 12:00", "fri 07:00"],
        ),
        ("sat; mon-fri 22:00-07:00", ["sat 15:00", "fri 22:00"], ["sun 07:00", "fri 15:00"]),
        ("Sat,Sun 10:00 - 12:00", ["sun 11:00"], ["sat 13:00", "mon 11:00"]),
        ("fri-mon", ["fri 00:00", "mon 23:59"], ["tue 00:00", "thu 23:59"]),
        ("monday 08:00-09:00 10:00-11:00", ["mon 08:30", "tue 10:30"], ["tue 08:30"]),
        ("08:00-09:00,20:00-21:00;", ["tue 08:30", "tue 20:30"], ["tue 12:00"]),
    ],
)
def test_windows(text: str, inside: list[str], outside: list[str]) -> None:
    schedule = parse(text)
    assert all(schedule.allows(at(*moment.split())) for moment in inside)
    assert not any(schedule.allows(at(*moment.split())) for moment in outside)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "night",
        "25:00-07:00",
        "22:60-07:00",
        "22:00",
        "07:00-07:00",
        "24:00-07:00",
        "mon-",
        "22-7",
        "mo",
        "24:01-02:00",
        "٢٢:00-07:00",
        "x" * 201,
        "sat sunx",
    ],
)
def test_what_is_no_schedule_is_one_line_with_the_form(text: str) -> None:
    with pytest.raises(ShoalError, match=r"^--schedule") as error:
        parse(text)
    assert "\n" not in str(error.value)


@given(st.text(st.sampled_from("monsatfri0123456789:-,; "), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        schedule = parse(text)
    except ShoalError:
        return
    assert any(
        schedule.allows(MONDAY + timedelta(minutes=15 * i + j)) for i in range(672) for j in (0, 7)
    )


@given(st.integers(0, 2 * 24 * 60), st.sampled_from(["2026-10-24", "2026-03-28"]))
def test_in_a_night_that_changes_the_clocks_the_wall_decides(minute: int, day: str) -> None:
    zone = ZoneInfo("Europe/Berlin")
    moment = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(minutes=minute)
    local = moment.astimezone(zone)
    wanted = local.hour >= 22 or local.hour < 7
    assert parse("22:00-07:00").allows(local) == wanted


def test_a_night_that_changes_the_clocks_has_one_window() -> None:
    zone, schedule = ZoneInfo("Europe/Berlin"), parse("22:00-07:00")
    lengths = []
    for day in ("2026-10-24", "2026-03-28", "2026-06-01"):
        noon = datetime.fromisoformat(f"{day}T10:00").replace(tzinfo=UTC)
        allowed = [
            schedule.allows((noon + timedelta(minutes=minute)).astimezone(zone))
            for minute in range(24 * 60)
        ]
        turns = sum(a != b for a, b in itertools.pairwise(allowed))
        lengths.append((sum(allowed) / 60, turns))
    assert lengths == [(10.0, 2), (8.0, 2), (9.0, 2)]
