"""The whole screen of a moment: exactly as many lines, of as many cells, as the terminal has; pure.

Each part has its place, and what does not fit goes, the least important first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.text import Text

from coordinator.screen import panels
from coordinator.screen.chart import Curve, chart
from coordinator.screen.history import History
from coordinator.screen.keys import Mode
from coordinator.screen.text import between, harmless, row

if TYPE_CHECKING:
    from coordinator.overview import Overview

KEYS = "p pause  + - workers here  q quit  ? help"


@dataclass(frozen=True)
class Scene:
    """All that a screen shows.

    Attributes:
        overview: of the run, None where we don't lead it.
        follows: how far we follow it then.
        local: workers of this machine.
        note: a word on what the last key did.
    """

    overview: Overview | None
    history: History
    now: float
    join: str = ""
    follows: str = ""
    local: int = 0
    mode: Mode = field(default_factory=Mode)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Places:
    """Lines of each part that grows and shrinks; a part with some has a title above it."""

    chart: int
    workers: int
    events: int


def places(height: int, workers: int) -> Places:
    """How so many lines are shared, with so many workers here."""
    if height < 3:
        return Places(0, 0, max(0, height))
    if height < 12:
        return Places(0, max(0, height - 5), min(3, height - 2))
    table = min(workers + 1, max(4, (height - 3) * 2 // 5))
    events = max(3, min(12, (height - 3 - table) // 3))
    return Places(height - 3 - table - events, table, events)


def frame(scene: Scene, width: int, height: int, plain: bool) -> list[Text]:
    """The lines; `plain`: in ASCII."""
    foot = _foot(scene, width, plain)
    head = _head(scene, width, plain)
    if height < 12:
        foot = foot[-1:]
    if height <= len(foot) + 1:
        return (foot + head)[:height]
    head = head[: height - len(foot)]
    body = _body(scene, width, height - len(head) - len(foot), plain)
    return head + body + foot


def _head(scene: Scene, width: int, plain: bool) -> list[Text]:
    overview = scene.overview
    if overview is None:
        return [row(width, (harmless(scene.follows, plain) or "starting", "bold"))]
    return [
        panels.header(overview, width, plain),
        panels.progress(overview, width, plain),
        panels.speed(overview, scene.history, scene.now, width),
        panels.batch(overview.batch, overview.updating, width, plain),
        panels.why(overview, width, plain),
    ]


def _body(scene: Scene, width: int, height: int, plain: bool) -> list[Text]:
    overview, history = scene.overview, scene.history
    if scene.mode.helps:
        return _filled([(f"  {line}", "") for line in ("", *panels.HELP)], width, height)
    views = () if overview is None else overview.workers
    shares = Places(0, 0, height) if overview is None else places(height, len(views))
    lines: list[Text] = []
    if shares.chart > 0:
        target = None if overview is None else overview.target
        lines.append(_legend(history, target is not None, width, plain))
        curves = [
            Curve(history.members.points, "yellow", "."),
            Curve(history.centre.points, "bold cyan", "o"),
        ]
        lines += chart(curves, target, width, shares.chart, plain)
    if shares.workers > 1:
        lines.append(panels.title("workers", width, plain))
        lines += panels.workers(views, width, shares.workers, plain)
    left = height - len(lines)
    if left > 1:
        lines.append(panels.title("events", width, plain))
        lines += panels.events(history, width, left - 1, plain)
    return lines + [row(width)] * (height - len(lines))


def _filled(parts: list[tuple[str, str]], width: int, height: int) -> list[Text]:
    lines = [row(width, part) for part in parts[:height]]
    return lines + [row(width)] * (height - len(lines))


def _legend(history: History, aims: bool, width: int, plain: bool) -> Text:
    centre, members = ("o ", ". ") if plain else ("⣿ ", "⣿ ")
    points = history.members.points or history.centre.points
    span = f"versions {points[0][0]:,.0f} to {points[-1][0]:,.0f}" if points else ""
    left = [
        ("mean return  ", "dim"),
        (f"{centre}centre  ", "bold cyan"),
        (f"{members}members  ", "yellow"),
        ("- target" if aims else "", "green"),
    ]
    return between(width, left, [(span, "dim")])


def _foot(scene: Scene, width: int, plain: bool) -> list[Text]:
    lines = [row(width, (part, "")) for part in _wrapped(harmless(scene.join, plain), width)]
    if scene.mode.asks:
        return [*lines, row(width, (panels.ASKS, "bold reverse"))]
    here = [(f"{scene.local} here", "dim")] if scene.overview is not None else []
    keys = KEYS if scene.overview is not None else "q quit"
    left = [(f"{keys}  ", "reverse"), (f" {harmless(scene.note, plain)}", "yellow")]
    return [*lines, between(width, left, here)]


def _wrapped(line: str, width: int) -> list[str]:
    """The line that volunteers type, whole: a shell that is given several of these in one goes on
    where a backslash ends one."""
    if len(line) <= width:
        return [line] if line else []
    part = max(20, width - 1)
    parts = [line[first : first + part] for first in range(0, len(line), part)]
    return [*(f"{one}\\" for one in parts[:-1]), parts[-1]]
