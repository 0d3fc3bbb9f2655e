"""`python -m worker URL`: what `shoal join URL` does, without loading the host's side."""

from __future__ import annotations

import sys

import typer

from protocol.command import run
from worker.cli import register


def main() -> None:
    """Run the command."""
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    register(app)
    sys.exit(run(app))


if __name__ == "__main__":
    main()
