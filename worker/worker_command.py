"""The commands `shoal worker`: what a volunteer does with the workers of this machine."""

from __future__ import annotations

import typer

from worker import config_command, control_command, doctor_command, service_command

commands = typer.Typer(
    help="Look after the workers of this machine.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add `worker` to the `shoal` command."""
    control_command.register(commands)
    config_command.register(commands)
    doctor_command.register(commands)
    service_command.register(commands)
    app.add_typer(commands, name="worker")


@commands.callback()
def _group() -> None:
    """Look after the workers of this machine."""
