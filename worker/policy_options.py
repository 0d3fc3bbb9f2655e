"""What commands that take a trained policy ask for in the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunDirectory = Annotated[
    Path,
    typer.Argument(
        metavar="RUN_DIR",
        help="The directory of a run; or a file in it that `shoal replay --save` wrote.",
    ),
]
Best = Annotated[
    bool,
    typer.Option(
        "--best", help="The version whose centre was judged best, not the latest or returned."
    ),
]
AllowModule = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-module",
        help="Module that may register environments or hold the policy; repeatable.",
    ),
]


def folder_of(run_dir: Path) -> Path:
    """The directory of the run, where a file in it is named too."""
    return run_dir.parent if run_dir.suffix == ".safetensors" else run_dir
