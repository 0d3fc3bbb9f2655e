"""How a run stands, as somebody finds it who does not lead it: in lines, and for programs; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from coordinator.pool.confidence import margin
from protocol import amendments
from protocol.figures import shown, span

State = Literal["running", "paused", "stopped", "ended", "interrupted", "silent", "not begun"]
"""`paused`: it waits, for its host or by its word; `stopped`: workers left, and it can be resumed;
`interrupted`: its host was killed; `silent`: announced, but nobody is heard to lead it."""


@dataclass(frozen=True, slots=True)
class Report:
    """What is known of a run; None: that is not."""

    run: str
    state: State
    why: str = ""
    """what whoever leads or led it says about that"""
    environment: str = ""
    process: int | None = None
    """that has its directory here"""
    epoch: int | None = None
    led_by: str | None = None
    """fingerprint of the key"""
    version: int = 0
    target: float | None = None
    centre: float | None = None
    """mean return of the unperturbed policy, at its last evaluation"""
    centre_deviation: float | None = None
    centre_version: int | None = None
    centre_episodes: int | None = None
    members_mean: float | None = None
    """mean return of the members of the last update"""
    population: int | None = None
    workers: int | None = None
    """whose returns counted in the last update"""
    as_begun: tuple[str, ...] = ()
    """fields of the run spec, of those above, that are told as the run began with them: whoever
    only listens does not know whether an update has set them otherwise"""
    learning_rate: float | None = None
    updates_per_minute: float | None = None
    update_age: float | None = None
    """seconds since the last update"""
    seconds: float | None = None
    """for which it has been led"""
    bytes: int | None = None
    """that its directory takes"""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def state_of(noted: object, ended: object, process: int | None) -> State:
    """The state of a run by what its log has noted, and by the process that has its directory."""
    if isinstance(ended, str):
        return "ended"
    if process is not None:
        return "running"
    if noted == "paused" or noted == "stopped":
        return "paused" if noted == "paused" else "stopped"
    return "interrupted"


def pace(updates: Sequence[tuple[int, float]]) -> float | None:
    """Updates a minute, of some by (version, seconds for which the run had been led), in order;
    None where they don't tell."""
    if len(updates) < 2:
        return None
    (first, began), (last, ended) = updates[0], updates[-1]
    return 60.0 * (last - first) / (ended - began) if ended > began else None


def lines(report: Report, silence: str) -> list[str]:
    """For people, a fact a line; `silence`: what it means that no update came."""
    state = report.state + (f": {report.why}" if report.why else "")
    if report.process is not None:
        state += f" (process {report.process})"
    found = [("run", report.run), ("state", state)]
    if report.environment:
        found.append(("environment", report.environment))
    if report.epoch is not None:
        by = f", led by {report.led_by}" if report.led_by else ""
        found.append(("epoch", f"{report.epoch}{by}"))
    found += [("version", f"{report.version:,}"), ("centre", _centre(report))]
    if report.target is not None:
        found.append(("target", shown(report.target) + _since(report, amendments.TARGET)))
    if report.members_mean is not None:
        found.append(("members", f"mean return {shown(report.members_mean)}"))
    if report.population is not None:
        words = f"{report.population:,} members an update"
        found.append(("population", words + _since(report, amendments.POPULATION)))
    if report.workers is not None:
        found.append(("workers", f"{report.workers:,} in the last update"))
    if report.learning_rate is not None:
        found.append(("learning rate", f"{report.learning_rate:.3g}"))
    if report.updates_per_minute is not None:
        found.append(("speed", f"{report.updates_per_minute:,.1f} updates/min"))
    age = silence if report.update_age is None else f"{span(report.update_age)} ago"
    found.append(("last update", age))
    if report.seconds is not None:
        found.append(("led for", span(report.seconds)))
    if report.bytes is not None:
        found.append(("on disk", size_of(report.bytes)))
    return [f"{name:<14}{words}" for name, words in found]


def _since(report: Report, field: str) -> str:
    """What to say of a setting that may have been changed since the run began."""
    return " as the run began; shoal set may have changed it" if field in report.as_begun else ""


def line(report: Report) -> str:
    """The same in one line."""
    parts = [f"{report.run} {report.state}", f"version {report.version:,}"]
    parts.append(f"centre {_centre(report)}")
    if report.updates_per_minute is not None:
        parts.append(f"{report.updates_per_minute:,.1f} updates/min")
    if report.workers is not None:
        parts.append(f"{report.workers:,} {'worker' if report.workers == 1 else 'workers'}")
    if report.update_age is not None:
        parts.append(f"last update {span(report.update_age)} ago")
    return "  ".join(parts)


def table(reports: Sequence[tuple[Report, str]]) -> str:
    """A line for each run, and what goes on with it."""
    rows = [["run", "state", "version", "centre", "target", "last update", "on disk", "go on with"]]
    for report, command in reports:
        process = "" if report.process is None else f" ({report.process})"
        rows.append(
            [
                report.run,
                report.state + process,
                f"{report.version:,}",
                "-" if report.centre is None else shown(report.centre),
                "-" if report.target is None else shown(report.target),
                "-" if report.update_age is None else f"{span(report.update_age)} ago",
                "-" if report.bytes is None else size_of(report.bytes),
                command or report.why,
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def size_of(size: int) -> str:
    """Bytes in the unit that suits."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} B"


def _centre(report: Report) -> str:
    if report.centre is None:
        return "not evaluated yet"
    words = shown(report.centre)
    episodes, deviation = report.centre_episodes or 0, report.centre_deviation
    if episodes > 1 and deviation is not None:
        words += f" +- {shown(margin(deviation, episodes))}"
    return f"{words} (version {report.centre_version}, {episodes} episodes)"
