"""The commands `shoal pool`: who works for a run, and what a person wants done about it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from coordinator.orders import OfWorker

WORKER = re.compile(r"[a-z2-7]{16}")
RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Where the run is kept.")]
Worker = Annotated[
    str, typer.Argument(metavar="WORKER", help="Its name in the host's lines, or how that begins.")
]
COLUMNS = (
    *("worker", "standing", "results", "confirmed", "audits", "alike", "unlike"),
    *("rank", "difference", "size", "drifts", "reason"),
)
RESIDUALS = ("rank", "difference", "size")
"""Sums over batches of what is 0 on average and deviates by 1 of an honest worker."""
SUSPECTED = ("banned", "quarantined")


def register(app: typer.Typer) -> None:
    """Add `pool` to the `shoal` command."""
    pool = typer.Typer(
        help="Show, check, ban and trust the workers of a run.", no_args_is_help=True
    )
    pool.command(epilog="Example: shoal pool workers runs/cartpole-1a2b3c4d")(workers)
    pool.command(epilog="Example: shoal pool audit runs/cartpole-1a2b3c4d abcd")(audit)
    pool.command(
        epilog="Example: shoal pool ban runs/cartpole-1a2b3c4d abcd --reason 'returns are made up'"
    )(ban)
    pool.command(epilog="Example: shoal pool unban runs/cartpole-1a2b3c4d abcd")(unban)
    pool.command(epilog="Example: shoal pool trust runs/cartpole-1a2b3c4d abcd")(trust)
    app.add_typer(pool, name="pool")


def workers(
    run_dir: RunDir,
    as_json: Annotated[bool, typer.Option("--json", help="Say it in JSON, on stdout.")] = False,
) -> None:
    """Show what the host knows of the workers of a run, as it last kept it."""
    told = _known(run_dir)
    print(json.dumps(told) if as_json else _table(told))


def audit(run_dir: RunDir, worker: Worker) -> None:
    """Have the next tasks of a worker evaluated by others too."""
    from coordinator.pool.events import Audit

    _order(run_dir, worker, Audit)


def ban(
    run_dir: RunDir,
    worker: Worker,
    reason: Annotated[str, typer.Option(help="What the worker is told.")] = "by the host's word",
) -> None:
    """Give a worker no tasks any more, and take out what it has in the open batch."""
    from coordinator.pool.events import Ban

    _order(run_dir, worker, lambda name: Ban(name, reason))


def unban(run_dir: RunDir, worker: Worker) -> None:
    """Let a worker begin anew that was banned or quarantined."""
    from coordinator.pool.events import Unban

    _order(run_dir, worker, Unban)


def trust(run_dir: RunDir, worker: Worker) -> None:
    """Take a worker's word against all others', as that of a machine of your own."""
    from coordinator.pool.events import Rely

    _order(run_dir, worker, Rely)


def _order(run_dir: Path, worker: str, make: Any) -> None:
    from coordinator import orders
    from coordinator.directory import ORDERS

    known = [line["worker"] for line in _known(run_dir)]
    order: OfWorker = make(_named(worker, known))
    orders.give(run_dir / ORDERS, order)
    print(f"{order.worker}: whoever leads the run does it within a few seconds, or once led again")


def _named(worker: str, known: list[str]) -> str:
    """The worker whose name is that, or begins with it. Raises `ShoalError`."""
    from protocol.errors import ShoalError

    meant = [name for name in known if name.startswith(worker)] if worker else []
    if len(meant) == 1:
        return meant[0]
    if WORKER.fullmatch(worker):
        return worker
    problem = f"{len(meant)} workers begin with that" if meant else "no such worker is known"
    raise ShoalError(
        f"worker {worker[:40]!r}: {problem}; give the 16 letters and digits that the host's lines "
        "have before the /"
    )


def _known(run_dir: Path) -> list[dict[str, Any]]:
    """What the log tells of each worker, those of bad standing first. Raises `LogError`."""
    from coordinator.log import LogReader
    from coordinator.remembering import read

    with LogReader(run_dir / "log.sqlite") as log:
        kept = read(log)
    trusted = set(kept.trusted)
    found = [_line(worker, record, worker in trusted) for worker, record in kept.workers.items()]
    order = (*SUSPECTED, "new", "established")
    return sorted(found, key=lambda line: (order.index(line["standing"]), line["worker"]))


def _line(worker: str, record: dict[str, Any], trusted: bool) -> dict[str, Any]:
    """What is known of a worker; its residuals in deviations over all that it returned."""
    from coordinator.trust import Trust

    known = Trust(0.0, Random())
    known.remember({worker: record})
    found = known.record(worker)
    many = math.sqrt(max(1, found.batches))
    told = {name: round(getattr(found, name) / many, 2) for name in RESIDUALS}
    return {"worker": worker, **asdict(found), **told, "used": found.used, "trusted": trusted}


def _table(told: list[dict[str, Any]]) -> str:
    if not told:
        return (
            "nothing is known of any worker: none returned anything that was compared yet. Who is "
            "here is told by the host's screen and by its dashboard"
        )
    rows = [list(COLUMNS)]
    for line in told:
        rows.append([_cell(line, column) for column in COLUMNS])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _cell(line: dict[str, Any], column: str) -> str:
    if column == "standing" and line["trusted"]:
        return "trusted"
    if column == "reason" and line["standing"] in SUSPECTED and line["used"]:
        return f"{line['reason']}; {line['used']}"
    return str(line[column])
