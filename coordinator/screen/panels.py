"""The parts of the screen, each so many lines of exactly so many cells; pure."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from coordinator.pool.confidence import margin
from coordinator.screen.history import History
from coordinator.screen.text import between, fit, harmless, items, row
from protocol.figures import shown, span

if TYPE_CHECKING:
    from coordinator.overview import BatchView, CentreView, Overview, WorkerView

STANDINGS = {"trusted": "green", "new": "yellow", "quarantined": "red", "banned": "red"}
STATES = {"working": "green", "resting": "yellow", "paused": "dim"}
HELP = (
    "p      pause: running tasks end, no new ones are given out; again: go on",
    "+ -    one more, or one less, worker of this machine",
    "q      quit: asks whether the run is stopped, or waits to be resumed",
    "?      this help; any other key closes it",
    "Ctrl-C stops the run at once, as q q does",
)
ASKS = "quit: q stops the run, p leaves it to be resumed, any other key goes on"


def header(overview: Overview, width: int, plain: bool) -> Text:
    """Which run it is, and how it stands."""
    state = "paused" if overview.paused and overview.state == "running" else overview.state
    colour = "green" if state == "running" else "yellow"
    about = f"  {harmless(overview.environment, plain)}  {overview.parameters:,} parameters"
    return between(
        width,
        [(overview.run, "bold"), (about, "")],
        [(state, f"bold {colour}"), (f" {span(overview.seconds)}", "")],
    )


def progress(overview: Overview, width: int, plain: bool) -> Text:
    """How far it is, and how good."""
    mean = "-" if overview.mean is None else shown(overview.mean)
    target = [] if overview.target is None else [("target ", ""), (shown(overview.target), "green")]
    return items(
        width,
        [(f"version {overview.version:,}", "bold")],
        [("centre ", ""), (_centre(overview.centre, plain), "bold cyan")],
        [("members ", ""), (mean, "bold yellow")],
        target,
        [(f"epoch {overview.epoch}", "")],
        [(f"{overview.population:,} members an update", "")],
    )


def speed(overview: Overview, history: History, now: float, width: int) -> Text:
    """How fast it goes, and what it costs."""
    episodes, steps = history.rates.at(now)
    each = overview.wire_bytes / overview.episodes if overview.episodes else 0.0
    said = [f"{episodes:,.0f} episodes/s", f"{steps:,.0f} steps/s", f"{each:,.1f} bytes/episode"]
    took, rate = history.figure("update_seconds"), history.figure("learning_rate")
    if took is not None:
        said.append(f"{took:.2g} s an update")
    if rate is not None:
        said.append(f"learning rate {rate:.3g}")
    said.append(f"{overview.episodes:,} episodes")
    return items(width, *([(words, "")] for words in said))


def batch(view: BatchView, updating: bool, width: int, plain: bool) -> Text:
    """How far the open batch is, as a bar: what is settled, what is out, what is free."""
    size = max(1, view.directions)
    words = (
        f" {view.settled / size:.0%} of {view.directions:,} settled, {view.leased:,} out, "
        f"{view.free:,} free"
    )
    if view.early:
        words += f", {view.early:,} of the next begun"
    if updating:
        words += ", update being made"
    name = f"batch {view.index:,} "
    cells = max(8, min(40, width - len(name) - len(words)))
    done = cells * view.settled // size
    out = min(cells - done, -(-cells * view.leased // size))
    marks = ("#", "=", ".") if plain else ("█", "▒", "·")
    return row(
        width,
        (name, ""),
        (marks[0] * done, "green"),
        (marks[1] * out, "yellow"),
        (marks[2] * (cells - done - out), "dim"),
        (words, ""),
    )


def why(overview: Overview, width: int, plain: bool) -> Text:
    """Why nothing happens, or why it goes slowly."""
    if overview.busy:
        return row(width, (f"busy: {harmless(overview.busy, plain)}", "bold red"))
    if overview.quiet:
        return row(width, (f"waiting: {harmless(overview.quiet, plain)}", "bold yellow"))
    said = f"{_count(len(overview.workers), 'worker')} at work"
    if overview.audited:
        said += f", {overview.audited:,} directions evaluated twice to check"
    return row(width, (said, "green"))


def workers(views: Sequence[WorkerView], width: int, height: int, plain: bool) -> list[Text]:
    """The fastest, as many as fit, below their columns' names."""
    if height < 2:
        return []
    columns = _columns(width)
    names = [(fit(title, cells, right) + " ", "dim") for title, _, cells, right in columns]
    lines = [row(width, *names)]
    many = len(views) > height - 1
    for view in views[: height - 2 if many else height - 1]:
        parts = []
        for _, field, cells, right in columns:
            style = {"standing": STANDINGS, "state": STATES}.get(field, {}).get(
                str(getattr(view, field, "")), ""
            )
            parts.append((fit(_cell(view, field, plain), cells, right) + " ", style))
        lines.append(row(width, *parts))
    if many:
        lines.append(row(width, (f"+{len(views) - (height - 2):,} more", "dim")))
    return lines + [row(width)] * (height - len(lines))


def events(history: History, width: int, height: int, plain: bool) -> list[Text]:
    """The last lines, the newest at the bottom; who is too long goes on below."""
    last = list(history.events)[-height:] if height > 0 else []
    parts = [part for line in last for part in _wrapped(harmless(line, plain), width)]
    lines = [row(width, (part, "")) for part in parts[-height:]] if height > 0 else []
    return lines + [row(width)] * (height - len(lines))


def _wrapped(line: str, width: int) -> list[str]:
    """The harmless line in rows of at most so many cells, of which some characters take two."""
    widened = "".join(character + "\0" * (cell_len(character) - 1) for character in line)
    rows = wrap(widened, max(20, width), subsequent_indent="    ")
    return [part.replace("\0", "") for part in rows]


def title(words: str, width: int, plain: bool) -> Text:
    """A line that begins a part."""
    rule = ("-" if plain else "─") * max(0, width - len(words) - 1)
    return row(width, (f"{words} {rule}", "dim"))


def _columns(width: int) -> list[tuple[str, str, int, bool]]:
    """(title, field, cells, at the right end) of each; what is wide grows with the screen."""
    room = max(0, width - 80)
    name, device = 17 + min(11, room // 2), 9 + min(11, room // 3)
    columns = [
        ("worker", "name", name, False),
        ("device", "device", device, False),
        ("steps/s", "speed", 8, True),
        ("share", "share", 5, True),
        ("out", "tasks", 3, True),
        ("results", "results", 7, True),
        ("standing", "standing", 11, False),
        ("state", "state", 8, False),
    ]
    rest = width - sum(cells + 1 for _, _, cells, _ in columns)
    if rest >= 24:
        columns.append(("last trouble", "trouble", rest - 1, False))
    return columns


def _cell(view: WorkerView, field: str, plain: bool) -> str:
    if field == "name":
        return f"{view.worker[:6]} {harmless(view.name, plain)}"
    if field == "speed":
        return f"{view.speed:,.0f}" if view.speed < 1e7 else f"{view.speed / 1e6:,.0f}M"
    if field == "share":
        return f"{view.share:.0%}"
    if field in ("device", "trouble"):
        return harmless(getattr(view, field), plain)
    value = getattr(view, field)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _centre(centre: CentreView | None, plain: bool) -> str:
    if centre is None:
        return "-"
    words = shown(centre.mean)
    if centre.episodes > 1:
        sign = "+-" if plain else "±"
        words += f" {sign} {shown(margin(centre.deviation, centre.episodes))}"
    return f"{words} (v{centre.version:,}, {_count(centre.episodes, 'episode')})"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
