"""The flags of `shoal join` that say when the machine may work, and when the worker leaves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.errors import ShoalError
from worker import schedule as hours
from worker import spans
from worker.configuration import Check

if TYPE_CHECKING:
    from worker.permission import Terms

IdleOnly = Annotated[
    bool,
    typer.Option(
        "--idle-only",
        help="Pause while somebody uses this machine: programs of others at work, or keys typed at "
        "a terminal.",
    ),
]
Hours = Annotated[
    str,
    typer.Option(
        "--schedule",
        metavar="WINDOWS",
        help="Work in these hours of the machine's own clock only: '22:00-07:00', or "
        "'mon-fri 22:00-07:00, sat,sun'.",
        show_default=False,
    ),
]
PauseOnBattery = Annotated[
    bool, typer.Option("--pause-on-battery", help="Pause while this machine runs on its battery.")
]
MaxTemperature = Annotated[
    float | None,
    typer.Option(
        min=30.0,
        max=120.0,
        metavar="CELSIUS",
        help="Pause where a processor is hotter; by default 5 degrees below what the platform "
        "calls critical, where it says so.",
        show_default=False,
    ),
]
Memory = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        help="Memory that the whole worker may take, its evaluation processes included: 4GiB, "
        "800MB. They are replaced as they grow beyond their part of it; it pauses where that does "
        "not suffice.",
        show_default=False,
    ),
]
LeaveAt = Annotated[
    str,
    typer.Option(
        "--until",
        metavar="TIME",
        help="Leave at 18:30, on 2027-01-31, at 2027-01-31T18:30, or after 2h; the tasks at hand "
        "are finished.",
        show_default=False,
    ),
]
MaxTasks = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Leave after so many tasks.", show_default=False),
]
ExitWhenIdle = Annotated[
    str,
    typer.Option(
        metavar="SECONDS",
        help="Leave after so long without a task, pauses not counted: 60, or 5m.",
        show_default=False,
    ),
]


def terms(
    *,
    idle_only: bool,
    schedule: str,
    pause_on_battery: bool,
    max_temperature: float | None,
    memory: str,
    until: str,
    max_tasks: int | None,
    exit_when_idle: str,
    children: int,
) -> Terms:
    """What these flags say, for so many evaluation processes. Raises `ShoalError`."""
    from worker.permission import Terms

    return Terms(
        idle_only=idle_only,
        schedule=_hours(schedule),
        pause_on_battery=pause_on_battery,
        max_temperature=max_temperature,
        memory=memory_of_all(memory, children) if memory.strip() else None,
        until=_until(until),
        most_tasks=max_tasks,
        exit_when_idle=_patience(exit_when_idle),
    )


def memory_of_all(text: str, children: int) -> int:
    """What `--memory` says, in bytes. Raises `ShoalError` where that is too little to work with."""
    from worker.amounts import bytes_in
    from worker.evaluation.memory import shown
    from worker.permission import least_memory

    size, least = bytes_in(text), least_memory(children)
    if size < least:
        raise ShoalError(
            f"--memory {text[:40]!r}: must be at least {shown(least)}, which a worker with "
            f"{children} evaluation process{'es' * (children != 1)} takes that does nothing yet: "
            "give more, such as 2GiB, or fewer --cores"
        )
    return size


def _hours(text: str) -> hours.Schedule | None:
    return hours.parse(text) if text.strip() else None


def _until(text: str) -> spans.Until | None:
    return spans.until(text, "--until", datetime.now()) if text.strip() else None


def _patience(text: str) -> float | None:
    return spans.seconds_of(text, "--exit-when-idle") if text.strip() else None


CHECKS: Mapping[str, Check] = {
    "schedule": _hours,
    "until": _until,
    "exit_when_idle": _patience,
    "memory": lambda text: memory_of_all(text, 1) if text.strip() else None,
}
"""What else a value must be, by the names of options."""
