"""The front door: one `shoal` command, made of the host's and the worker's."""

from __future__ import annotations

import sys
from typing import Any

import typer

import coordinator.cli
import coordinator.history.cli
import worker.bench_command
import worker.cli
import worker.export_command
import worker.identity_command
import worker.play_command
import worker.pools_command
import worker.worker_command
from protocol.command import run

app = typer.Typer(
    help="Train policies with Evolution Strategies on machines that nobody controls.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
coordinator.cli.register(app)
worker.cli.register(app)
worker.bench_command.register(app)
worker.play_command.register(app, coordinator.history.cli.rebuilt)
worker.export_command.register(app)
worker.pools_command.register(app)
worker.identity_command.register(app)
worker.worker_command.register(app)


def main() -> None:
    """Run the command; a user's mistake is one line and an exit code, never a traceback."""
    sys.exit(run(app))


def __getattr__(name: str) -> Any:
    """`load_policy`, which commands have no need to wait for."""
    if name == "load_policy":
        from worker.acting import load_policy

        return load_policy
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")


if __name__ == "__main__":
    main()
