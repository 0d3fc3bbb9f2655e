"""A picture of a simulated run; needs matplotlib, which nothing else here does."""

from __future__ import annotations

import itertools
from pathlib import Path

from protocol.errors import ShoalError
from scripts.simulation.report import Report
from scripts.simulation.scenario import Stage


def draw(stage: Stage, report: Report, file: Path) -> None:
    """What of the capacity was used, how much was stale, and when batches closed, over time.

    Raises `ShoalError` where that can't be drawn or written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ShoalError(
            "--plot needs matplotlib, which is not installed: pip install 'shoal[plot]'"
        ) from None
    figure = Figure(figsize=(9.0, 8.0), layout="constrained")
    FigureCanvasAgg(figure)
    used, stale, closes = figure.subplots(3, 1, sharex=True)
    closed, readings = stage.ledger.closed, stage.gauge.readings
    ends = [update.time for update in closed[1:]]
    spans = [(a.capacity, b.capacity) for a, b in itertools.pairwise(readings)]
    busy = [b.busy - a.busy for a, b in itertools.pairwise(readings)]
    steps = [update.steps for update in closed[1:]]
    possible = [end - begin for begin, end in spans]
    used.step(ends, [s / p for s, p in zip(steps, possible, strict=True)], label="used in updates")
    used.step(ends, [b / p for b, p in zip(busy, possible, strict=True)], label="busy", alpha=0.5)
    used.axhline(report.efficiency, ls="--", label=f"efficiency {report.efficiency:.1%}")
    for name, efficiency, style in (
        ("waiting for all, equal parts", report.wait_for_all_efficiency, ":"),
        ("parts by declared speed", report.static_split_efficiency, "-."),
    ):
        if efficiency is not None:
            used.axhline(efficiency, ls=style, color="grey", label=f"{name} {efficiency:.1%}")
    used.set_ylabel("share of the capacity")
    used.set_ylim(0.0, None)
    used.legend(fontsize="small")
    stale.step(ends, [1.0 - u.ages[0] / max(1, u.members) for u in closed[1:]], color="C3")
    stale.set_ylabel("stale share of members")
    stale.set_ylim(0.0, 1.0)
    closes.step(ends, [b.time - a.time for a, b in itertools.pairwise(closed)], label="whole batch")
    closes.step(ends, [u.tail for u in closed[1:]], label="after all of it was leased")
    closes.set_ylabel("seconds")
    closes.set_ylim(0.0, None)
    closes.legend(fontsize="small")
    closes.set_xlabel("simulated seconds")
    scenario = stage.scenario
    used.set_title(f"{scenario.population.size:,} workers, {scenario.preset}, seed {scenario.seed}")
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise ShoalError(f"--plot {file} can't be written: {error}") from None
