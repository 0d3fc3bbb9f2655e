"""The options of commands that lead a run, whatever the run is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
