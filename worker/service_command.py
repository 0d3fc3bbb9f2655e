"""The command `shoal worker service`: a systemd unit for this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from worker.configured import file_of
from worker.home import configuration_file, home_of
from worker.join_options import Config, Home
from worker.service import Service, quoted, system_unit, user_unit


def register(commands: typer.Typer) -> None:
    """Add `service` to the `shoal worker` commands."""
    commands.command(
        name="service",
        epilog="Example: shoal worker service --user > ~/.config/systemd/user/shoal-worker.service",
    )(service)


def service(
    user: Annotated[
        bool, typer.Option("--user", help="A unit of this user, which needs no administrator.")
    ] = False,
    home: Home = None,
    config: Config = None,
) -> None:
    """Print a systemd unit that keeps a worker running here, confined to what it needs.

    It begins with how to install it. It takes the configuration of this machine where there is
    one, and begins again after a failure, but not where a person has to look first.
    """
    file = file_of(config, home, os.environ).absolute()
    known = file.exists()
    arguments = "" if known else "--cores auto"
    if user and file != configuration_file(home_of(home)).absolute():
        arguments = f"--config {quoted(str(file))}"
    made = Service(
        command=_command(),
        arguments=arguments,
        home=str(home.absolute()) if home is not None else "",
        configuration=str(file) if known else "",
    )
    print(user_unit(made) if user else system_unit(made), end="")


def _command() -> str:
    """How this `shoal` was started, from anywhere."""
    started = Path(sys.argv[0])
    if started.name == "shoal" and started.exists():
        return quoted(str(started.absolute()))
    return f"{quoted(sys.executable)} -m shoal"
