"""A dashboard beside a run, where one is wanted."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.dashboard.options import Choice

if TYPE_CHECKING:
    from coordinator.hosting import Listeners

Beside = Callable[["Listeners", str], "Listeners"]
"""Makes listeners tell a dashboard, too; the line that volunteers join with goes with them."""


@contextlib.asynccontextmanager
async def opened(
    choice: Choice | None,
    run: str,
    run_dir: Path,
    allowed: Sequence[str],
    say: Callable[[str], None],
) -> AsyncIterator[Beside]:
    """The dashboard that is wanted, if any, for as long as the context lasts.

    `allowed` modules may hold what it shows playing; `say` gets lines for people. Raises
    `ShoalError` where its address can't be had.
    """
    if choice is None:
        yield lambda listeners, join: listeners
        return
    # What an installation without dashboards lacks.
    from coordinator.dashboard.guard import is_loopback
    from coordinator.dashboard.shell import Dashboard

    async with Dashboard(choice, run, run_dir, allowed) as dashboard:
        say(f"dashboard at {dashboard.url}")
        if choice.token is not None and not is_loopback(choice.bind):
            say("the dashboard's token crosses the network in the clear: put TLS before it")
        yield dashboard.beside
