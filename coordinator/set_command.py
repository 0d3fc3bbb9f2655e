"""The command `shoal set`: what may change while a run goes on, and what holds now."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coordinator.history.cli import AsJson, RunDir, this_command

if TYPE_CHECKING:
    from coordinator.history.past import Past
    from coordinator.history.settings import Setting

COLUMNS = ("setting", "now", "from version", "run spec", "asked for")
EXAMPLE = "shoal set runs/cartpole-1a2b3c4d stop.target=480 strategy.population=512"


def register(app: typer.Typer) -> None:
    """Add `set` to the `shoal` command."""
    app.command(name="set", epilog=f"Example: {EXAMPLE}")(set_)


def set_(
    run_dir: RunDir,
    assignments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIELD=VALUE]...", help="Such as optimizer.learning_rate=0.02."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change settings while a run goes on; without any, show what holds and since which version.

    The next update carries the change, so that every peer knows it and the history stays one that
    can be replayed. The run spec stays as it was.
    """
    from coordinator import wanted
    from coordinator.directory import is_led
    from coordinator.history.past import opened
    from coordinator.history.settings import settings
    from coordinator.host import refuse_ended
    from protocol.amendments import amend

    path = run_dir / wanted.WANTED
    with opened(run_dir) as past:
        held, found = settings(past)
        asked = wanted.read(path)
        if not assignments:
            _show(past, found, asked, as_json)
            return
        refuse_ended(past.log, run_dir)
        changes = _read(assignments)
        amend(past.spec, held, 0, {**asked, **changes})
    wanted.add(path, changes)
    led = is_led(run_dir)
    if as_json:
        print(json.dumps({"asked_for": changes, "led_now": led}))
    else:
        _say(run_dir, found, changes, led)


def _read(assignments: list[str]) -> dict[str, float]:
    """The values of `section.field=value` texts. Raises `ShoalError`."""
    from protocol.spec import SpecError, settings

    changes: dict[str, float] = {}
    for assignment in assignments:
        try:
            nested = settings([assignment])
        except SpecError:
            raise SpecError(
                f"{assignment[:80]!r} is not of the form section.field=value, for example "
                "stop.target=480"
            ) from None
        field, value = _flat(nested)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SpecError(
                f"{field} is {str(value)[:60]!r}: must be a number, such as {field}=0.5"
            )
        changes[field] = _number(field, value)
    return changes


def _flat(nested: dict[str, Any]) -> tuple[str, Any]:
    """The path, and the value, of tables in each other that have one field each."""
    keys: list[str] = []
    value: Any = nested
    while isinstance(value, dict) and len(value) == 1:
        ((key, value),) = value.items()
        keys.append(key)
    return ".".join(keys), value


def _number(field: str, value: int | float) -> float:
    """The value as updates carry it. Raises `SpecError` where they can't."""
    from protocol.spec import SpecError

    try:
        carried = float(value)
    except OverflowError:
        carried = float("inf")
    if carried != value and not math.isnan(carried):
        raise SpecError(
            f"{field} is {str(value)[:40]}: updates carry 64-bit floating-point numbers, and none "
            "is exactly that; give a rounder one"
        )
    return carried


def _say(run_dir: Path, found: list[Setting], changes: dict[str, float], led: bool) -> None:
    from protocol.amendments import shown

    before = {setting.field: setting.value for setting in found}
    for field, value in changes.items():
        old = shown(field, before[field])
        print(
            f"{field}: {old} -> {shown(field, value)}"
            if before[field] != value
            else f"{field} is {old} already"
        )
    if led:
        print(
            "a host has the run open here: while it leads, it heeds this within seconds, and the "
            f"next update carries it; see since when it holds: {this_command()} set {run_dir}"
        )
    else:
        print(
            "nobody has the run open here now: it waits until somebody leads it "
            f"({this_command()} host --resume {run_dir})"
        )


def _show(past: Past, found: list[Setting], asked: dict[str, float], as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                {
                    "version": past.version,
                    "settings": [asdict(setting) for setting in found],
                    "asked_for": asked,
                }
            )
        )
        return
    print(f"{past.run} at version {past.version:,}")
    rows = [COLUMNS, *(_row(setting, past, asked) for setting in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip())


def _row(setting: Setting, past: Past, asked: dict[str, float]) -> tuple[str, ...]:
    from protocol.amendments import shown

    field = setting.field
    since = f"before {past.base}" if setting.since is None else f"{setting.since}"
    wanted = shown(field, asked[field]) if field in asked else ""
    return field, shown(field, setting.value), since, shown(field, setting.spec), wanted
