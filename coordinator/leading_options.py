"""The options of commands that lead a run, whatever the run is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.errors import ShoalError


def _some(priority: float) -> float:
    if priority != priority:  # no range of the command line keeps this out
        raise ShoalError("--priority nan: must be a number from 0.01 to 100")
    return priority


Priority = Annotated[
    float,
    typer.Option(
        min=0.01,
        max=100.0,
        callback=_some,
        help="How much of workers that serve several runs this one asks for: with 2 twice as "
        "much as a run of the same volunteer that says nothing.",
    ),
]
AllowModule = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-module",
        help="Module that may register environments, hold the policy, add a strategy or an "
        "optimizer; repeatable.",
    ),
]
RunDir = Annotated[Path | None, typer.Option(help="Where the run is kept; by default runs/<run>.")]
AsJson = Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")]
Plain = Annotated[
    bool,
    typer.Option("--plain", help="Plain lines, though the terminal could show the whole screen."),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", help="Leave out the lines about workers and tasks, not the progress."),
]
