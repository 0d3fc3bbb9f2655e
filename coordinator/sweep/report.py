"""The table of a sweep: what each point was worth, the best first; for people, programs; pure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.sweep.judging import Verdict
from coordinator.sweep.measures import Aim, Summary, so_far, summary, worth
from coordinator.sweep.planning import State, Trained, Tried
from coordinator.sweep.points import Settings, text
from protocol.figures import shown

_ORDER: Mapping[State, int] = {"finished": 0, "running": 1, "pending": 2, "stopped": 3, "failed": 4}
LONGEST_WHY = 70


@dataclass(frozen=True, slots=True)
class Row:
    """A point.

    Attributes:
        values: of its seeds, in their order; None where a run has not come to one. Of a point that
            was stopped early what they were worth then.
        summary: of the values that there are.
        updates: that one of its runs made at most.
    """

    number: int
    point: str
    label: str
    settings: Settings
    state: State
    why: str
    seeds: tuple[int, ...]
    values: tuple[float | None, ...]
    summary: Summary
    updates: int

    def to_json(self) -> dict[str, Any]:
        """For programs; None for what is not a number."""
        return {
            "point": self.point,
            "settings": dict(self.settings),
            "state": self.state,
            "why": self.why,
            "seeds": list(self.seeds),
            "values": list(self.values),
            "count": self.summary.count,
            "mean": _finite(self.summary.mean),
            "low": _finite(self.summary.low),
            "high": _finite(self.summary.high),
            "updates": self.updates,
        }


def rows(tried: Sequence[Tried], verdicts: Sequence[Verdict], aim: Aim) -> list[Row]:
    """A row for each point, the best first: those that are over before those that are not, then
    those that were stopped, of which those are better that came farther.

    Of a metric that counts what a target took, whoever reached it with more seeds is better.
    """
    made = [_row(each, verdict, aim) for each, verdict in zip(tried, verdicts, strict=True)]

    def place(row: Row) -> tuple[float, ...]:
        mean = row.summary.mean
        worst_last = math.inf if math.isnan(mean) else mean if aim.less_is_better else -mean
        reached = -row.summary.count if aim.less_is_better else 0
        farther = -row.updates if row.state == "stopped" else 0
        return _ORDER[row.state], farther, reached, worst_last, row.number

    return sorted(made, key=place)


def _row(tried: Tried, verdict: Verdict, aim: Aim) -> Row:
    until = None if verdict.stopped is None else tried.rungs[verdict.stopped]
    values = tuple(_value(run, until, aim) for run in tried.runs)
    made = [run.curve[-1].version for run in tried.runs if run.curve]
    return Row(
        number=tried.number,
        point=tried.point.name,
        label=tried.point.label,
        settings=tried.point.settings,
        state=tried.state(verdict),
        why=tried.why(verdict),
        seeds=tuple(run.seed for run in tried.runs),
        values=values,
        summary=summary([value for value in values if value is not None]),
        updates=max(made, default=0) if until is None else until,
    )


def _value(run: Trained, until: int | None, aim: Aim) -> float | None:
    if until is None:
        return worth(run.curve, aim) if run.state == "finished" else None
    if aim.less_is_better or run.state == "failed":
        return None
    return so_far(run.curve, until, aim, run.state == "finished")


def factors(rows: Sequence[Row]) -> list[str]:
    """Names of the fields that differ between points, or that only some have; in order."""
    names = sorted({name for row in rows for name in row.settings})
    return [
        name for name in names if len({text(row.settings.get(name)) for row in rows}) > 1
    ] or names


def table(rows: Sequence[Row], aim: Aim) -> str:
    """For people."""
    varied = factors(rows)
    heads = ["point", *varied, aim.metric, "95 % interval", "seeds", "updates", "state"]
    cells = [heads]
    for row in rows:
        state = row.state + (f": {row.why[:LONGEST_WHY]}" if row.why else "")
        settings = [text(row.settings[name]) if name in row.settings else "-" for name in varied]
        found = row.summary
        mean = shown(found.mean) if found.count else "-"
        between = f"{shown(found.low)} to {shown(found.high)}" if math.isfinite(found.half) else "-"
        seeds = f"{found.count} of {len(row.seeds)}"
        cells.append([row.point, *settings, mean, between, seeds, f"{row.updates:,}", state])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def to_csv(rows: Sequence[Row]) -> str:
    """For programs: a line for each run, with its point's mean and interval; in all digits."""
    names = sorted({name for row in rows for name in row.settings})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["rank", "point", "state", "why", *names, "seed", "value", "mean", "low", "high", "updates"]
    )
    for rank, row in enumerate(rows, 1):
        settings = [text(row.settings[name]) if name in row.settings else "" for name in names]
        found = row.summary
        whole = [_digits(value) for value in (found.mean, found.low, found.high)]
        for seed, value in zip(row.seeds, row.values, strict=True):
            own = [str(seed), "" if value is None else repr(value)]
            head = [str(rank), row.point, row.state, row.why]
            writer.writerow([*head, *settings, *own, *whole, str(row.updates)])
    return out.getvalue()


def _digits(value: float) -> str:
    return repr(value) if math.isfinite(value) else ""


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
