"""The page of results: a table for each heading, every seed's result, and a plot of each row."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from scripts.tables.rows import ROWS, Row
from scripts.tables.running import Book, Result

HEAD = """# Results

Written by `python -m scripts.reproduce_tables`; each seed is a real run of `shoal demo` with one
worker over MQTT, coordinator, broker and worker together on one core. "Centre" is the unperturbed
policy of the last version, not the best, over fresh episodes; "members" is the mean return of the
perturbed population of the last update. No seed is left out. Settings were chosen on other seeds
than these. CPU time is that of all processes, start-up included; how busy the machine was stands
beside it, and whatever else it did makes seconds longer.
"""


def write(book: Book, page: Path) -> None:
    """Write the page of all results in the book, and its plots beside it."""
    parts = [HEAD]
    for table, rows in groupby(ROWS, key=lambda row: row.table):
        parts.append(f"## {table}\n")
        for row in rows:
            results = book.results(row)
            parts.append(_section(row, results))
            if results:
                picture = book.directory / f"{row.name}.svg"
                _plot(row, results, picture)
                parts.append(f"![{row.name}]({picture.relative_to(page.parent)})\n")
    page.write_text("\n".join(parts))


def _section(row: Row, results: Sequence[Result]) -> str:
    lines = [f"### {row.name}\n", f"`{_settings(row)}`\n"]
    if row.claim:
        lines.append(f"Elsewhere: {row.claim}.\n")
    if row.must:
        lines.append(f"It must reach: {row.must}.\n")
    missing = len(row.seeds) - len(results)
    if missing:
        lines.append(f"{missing} of {len(row.seeds)} seeds are not run yet.\n")
    if results:
        lines += [_summary(row, results), "", *_rows(row, results), ""]
    return "\n".join(lines)


def _summary(row: Row, results: Sequence[Result]) -> str:
    centres = [result.centre for result in results]
    words = [f"Median centre {statistics.median(centres):.1f}, worst {min(centres):.1f}"]
    words.append(f"median members {statistics.median(r.members for r in results):.1f}")
    if row.target is not None:
        reached = sum(result.reached for result in results)
        words.append(f"{row.target:g} reached by {reached} of {len(results)}")
    words.append(f"median {statistics.median(r.seconds for r in results):.1f} s")
    return ", ".join(words) + "."


def _rows(row: Row, results: Sequence[Result]) -> list[str]:
    target = " reached |" if row.target is not None else ""
    lines = [
        f"| seed | centre | deviation | members |{target} updates | episodes | steps | s "
        "| CPU s | load |",
        "|---|---|---|---|" + ("---|" if target else "") + "---|---|---|---|---|---|",
    ]
    for r in results:
        met = f" {'yes' if r.reached else 'no'} |" if row.target is not None else ""
        lines.append(
            f"| {r.seed} | {r.centre:.1f} | {r.deviation:.1f} | {r.members:.1f} |{met} {r.updates} "
            f"| {r.episodes:,} | {r.steps:,} | {r.seconds:.1f} | {r.cpu_seconds:.1f} | {r.load} |"
        )
    return lines


def _settings(row: Row) -> str:
    ends = {
        "updates": row.updates,
        "episodes": row.episodes,
        "target": row.target,
        "judged every": row.judged_every,
        "judged over": row.judged,
    }
    told = [
        f"{table}.{name} = {value!r}"
        for table, values in row.settings.items()
        for name, value in values.items()
    ]
    told += [f"{name} {value}" for name, value in ends.items() if value is not None]
    return f"{row.environment}: " + ", ".join(told)


def _plot(row: Row, results: Sequence[Result], path: Path) -> None:
    """Mean return of the members against episodes, a line for each seed."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "shoal"  # the same results give the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.0, 3.0), layout="constrained")
    for result in results:
        episodes, returns = zip(*result.curve, strict=True)
        axes.plot(episodes, returns, linewidth=0.8, label=str(result.seed))
    axes.set_xlabel("episodes of members")
    axes.set_ylabel("mean return of the members")
    axes.set_title(row.name)
    axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
