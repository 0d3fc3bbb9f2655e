"""Pictures of a sweep: all factors as parallel coordinates, and one for each factor."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator.sweep.file import Metric, SweepError
from coordinator.sweep.measures import Aim, summary
from coordinator.sweep.points import text
from coordinator.sweep.report import Row, factors

ENDINGS = ("png", "svg", "pdf")
FARTHEST = 20.0
"""Of numbers above 0: how many times the lowest the highest is, before the axis is logarithmic."""
MOST_MARKS = 8
"""Of the values of a factor that more than one point has: up to so many are each written."""
APART, ALL_APART = 0.02, 0.12
"""Of the width of a picture: how far points are drawn apart that have the same value, and all of
these at most."""
WORDS: Mapping[Metric, str] = {
    "final": "mean return of the centre at the end",
    "best": "mean return of the centre at its best",
    "updates-to-target": "updates until the target was reached",
    "episodes-to-target": "episodes until the target was reached",
}
NEEDS = "a picture needs matplotlib: install it with pip install 'shoal[plot]'"


@dataclass(frozen=True, slots=True)
class Axis:
    """Where the values of a factor lie, and what is written there.

    Attributes:
        places: of each row, in their order.
        marks: place and text of each value to be written; none where the numbers say it themselves.
        log: whether it is logarithmic.
    """

    places: tuple[float, ...]
    marks: tuple[tuple[float, str], ...] = ()
    log: bool = False


def axis_of(name: str, rows: Sequence[Row]) -> Axis:
    """The axis of a factor: numbers where they are, all else one after the other; pure."""
    values = [row.settings.get(name) for row in rows]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        numbers = tuple(float(value) for value in values if value is not None)
        low, high = min(numbers), max(numbers)
        return Axis(numbers, log=low > 0 and high / low >= FARTHEST)
    texts = ["-" if value is None else text(value) for value in values]
    order = {one: place for place, one in enumerate(dict.fromkeys(sorted(texts)))}
    marks = tuple((float(place), one) for one, place in order.items())
    return Axis(tuple(float(order[one]) for one in texts), marks)


def dodged(axis: Axis) -> list[float]:
    """Where points are drawn, those of the same value beside one another; pure."""
    same = Counter(axis.places)
    scaled = {place: math.log(place) if axis.log else place for place in same}
    width = max(scaled.values()) - min(scaled.values()) or 1.0
    seen: Counter[float] = Counter()
    places = []
    for place in axis.places:
        apart = min(APART, ALL_APART / same[place]) * width
        aside = (seen[place] - (same[place] - 1) / 2) * apart
        seen[place] += 1
        places.append(math.exp(scaled[place] + aside) if axis.log else place + aside)
    return places


def bounds(rows: Sequence[Row]) -> tuple[float, float]:
    """What of the metric is shown: all runs, with some room; pure. The interval of two seeds that
    differ is 13 times as wide as they lie apart, and would leave nothing to be seen."""
    values = [value for row in rows for value in row.values if value is not None]
    low, high = min(values), max(values)
    room = 0.15 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def draw(rows: Sequence[Row], aim: Aim, folder: Path, ending: str) -> list[Path]:
    """Write the pictures: their files. Raises `SweepError` where that can't be."""
    judged = [row for row in rows if row.summary.count]
    if not judged:
        raise SweepError("no point has come to anything yet: wait, and draw it then")
    try:
        import matplotlib as mpl
    except ImportError:
        raise SweepError(NEEDS) from None
    mpl.use("Agg")
    from matplotlib import pyplot

    names = factors(judged)
    figures = {"parallel": _parallel(pyplot, names, judged, aim)}
    for name in names:
        figures[f"factor-{name}"] = _factor(pyplot, name, judged, aim)
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in figures.items():
            written.append(folder / f"{name}.{ending}")
            figure.savefig(written[-1], dpi=150)
    except OSError as error:
        raise SweepError(
            f"{folder} can't be written ({error.strerror or error}): give --out, a folder that "
            "you may write to"
        ) from None
    finally:
        for figure in figures.values():
            pyplot.close(figure)
    return written


def _parallel(pyplot: Any, names: Sequence[str], rows: Sequence[Row], aim: Aim) -> Any:
    """A line for each point over the axes of all factors and of the metric, in its colour."""
    axes_of = [axis_of(name, rows) for name in names]
    axes_of.append(Axis(tuple(row.summary.mean for row in rows)))
    heads = [*names, WORDS[aim.metric].replace(" of the centre", "")]
    figure, axes = pyplot.subplots(figsize=(2.0 + 1.6 * len(heads), 4.5), layout="constrained")
    colours = pyplot.get_cmap("viridis")
    worth = _shares(axes_of[-1])
    lines = zip(*(_shares(axis) for axis in axes_of), strict=True)
    for place, line in sorted(zip(worth, lines, strict=True), reverse=aim.less_is_better):
        good = 1.0 - place if aim.less_is_better else place
        axes.plot(range(len(heads)), line, color=colours(good), alpha=0.8, linewidth=1.2)
    for column, axis in enumerate(axes_of):
        axes.axvline(column, color="black", linewidth=0.6)
        marks = axis.marks or [(end, f"{end:.4g}") for end in (min(axis.places), max(axis.places))]
        for mark, words in dict(marks).items():
            share = _shares(Axis((*axis.places, mark), log=axis.log))[-1]
            axes.annotate(words, (column, share), xytext=(4, 2), textcoords="offset points")
    axes.set_title("a line is a point of the sweep; the brighter, the better", fontsize="medium")
    axes.set_xticks(range(len(heads)), heads, rotation=15, ha="right")
    axes.set_yticks([])
    axes.set_xlim(-0.1, len(heads) - 0.5)
    return figure


def _factor(pyplot: Any, name: str, rows: Sequence[Row], aim: Aim) -> Any:
    """Each point and its runs over the values of a factor, and the means of points that have the
    same one."""
    axis = axis_of(name, rows)
    places = dodged(axis)
    figure, axes = pyplot.subplots(figsize=(6.0, 4.0), layout="constrained")
    means = [row.summary.mean for row in rows]
    halves = [row.summary.half if math.isfinite(row.summary.half) else 0.0 for row in rows]
    label = "point, 95 % interval over seeds"
    axes.errorbar(places, means, yerr=halves, fmt="o", alpha=0.6, capsize=2, label=label)
    runs = [
        (at, v) for at, row in zip(places, rows, strict=True) for v in row.values if v is not None
    ]
    axes.scatter(*zip(*runs, strict=True), marker="_", color="black", zorder=3, label="one run")
    levels: dict[float, list[float]] = {}
    for place, mean in zip(axis.places, means, strict=True):
        levels.setdefault(place, []).append(mean)
    if len(levels) < len(rows):
        line = [(place, summary(levels[place]).mean) for place in sorted(levels)]
        axes.plot(*zip(*line, strict=True), marker="D", color="C1", label="mean of these points")
    if axis.marks:
        axes.set_xticks(*zip(*axis.marks, strict=True))
    elif axis.log:
        axes.set_xscale("log")
    if not axis.marks and len(levels) <= min(MOST_MARKS, len(rows) - 1):
        axes.set_xticks(list(levels), [f"{level:g}" for level in levels])
        axes.set_xticks([], minor=True)
    axes.set_xlabel(name)
    axes.set_ylabel(WORDS[aim.metric])
    axes.set_ylim(*bounds(rows))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=3, fontsize="small")
    return figure


def _shares(axis: Axis) -> list[float]:
    """Where places lie between the lowest, 0, and the highest, 1; in the middle where all are
    one."""
    scaled = [math.log(place) if axis.log else place for place in axis.places]
    low, high = min(scaled), max(scaled)
    return [0.5 if high == low else (place - low) / (high - low) for place in scaled]
