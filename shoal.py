"""The front door: one `shoal` command, made of the host's and the worker's."""

from __future__ import annotations

import sys

import typer

import coordinator.cli
import worker.bench_command
import worker.cli
import worker.identity_command
import worker.play_command
from protocol.command import run

app = typer.Typer(
    help="Train policies with Evolution Strategies on machines that nobody controls.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
coordinator.cli.register(app)
worker.cli.register(app)
worker.bench_command.register(app)
worker.play_command.register(app)
worker.identity_command.register(app)


def main() -> None:
    """Run the command; a user's mistake is one line and an exit code, never a traceback."""
    sys.exit(run(app))


if __name__ == "__main__":
    main()
