"""`python -m worker URL`: what `shoal join URL` does, without loading the host's side."""

from __future__ import annotations

import sys

import typer

from protocol.errors import ShoalError
from worker.cli import register


def main() -> None:
    """Run the command; a user's mistake is one line and an exit code, never a traceback."""
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    register(app)
    try:
        app()
    except ShoalError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
