"""The front door: one `shoal` command, made of the host's and the worker's."""

from __future__ import annotations

import sys
from typing import Annotated, Any

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
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        from protocol.greeting import CLIENT_VERSION
        from protocol.spec import PROTOCOL_VERSION

        print(f"shoal {CLIENT_VERSION}, protocol {PROTOCOL_VERSION}")
        raise typer.Exit


@app.callback(epilog="Example: shoal demo, then shoal play runs/<run>")
def before(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show which Shoal this is."
        ),
    ] = False,
) -> None:
    """Train policies with Evolution Strategies on machines that nobody controls."""


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
