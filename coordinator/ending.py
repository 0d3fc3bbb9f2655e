"""Leads a run to its end from the command line, and tells how it ended."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator.history.cli import this_command

if TYPE_CHECKING:
    from coordinator.host import Run
    from coordinator.progress import Outcome
    from coordinator.watching import Watching

STARTED = time.monotonic()


def lead_to_the_end(
    run: Run, console: Watching, leading: Coroutine[Any, Any, Outcome], as_json: bool
) -> None:
    """Lead the run, and tell how it ended; a run that never began leaves nothing behind."""
    try:
        outcome = asyncio.run(leading)
    except BaseException:
        console.clear()
        run.directory.discard()
        raise
    run.directory.close()
    where = run.directory.path
    tell_the_end(console, where, outcome, f"host --resume {where}", as_json)


def tell_the_end(
    console: Watching, where: Path, outcome: Outcome, again: str, as_json: bool
) -> None:
    """Tell how a run ended; `again` is the command that goes on with one that has not."""
    from coordinator.host import summary, verdict

    console.close(outcome.progress)
    console.say(verdict(outcome))
    if outcome.state != "finished":
        console.say(f"go on with it: {this_command()} {again}")
    console.say(f"kept in {where}; watch it: {this_command()} play {where}")
    if as_json:
        print(json.dumps(summary(outcome, time.monotonic() - STARTED)))
