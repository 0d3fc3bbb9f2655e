"""The command `shoal worker config`: what `shoal join` would take, from where, and the file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, cast

import typer

from protocol.errors import ShoalError
from worker.configuration import Option, Value, changed, judged, named, options_of, parsed, written
from worker.configured import file_of, judge_environment, keep, load, source_of, text_of
from worker.join_options import CHECKS, Home

EPILOG = (
    "Examples: shoal worker config; shoal worker config --init; shoal worker config set cores auto"
)
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Another configuration than worker.toml in --home.", show_default=False
    ),
]


def register(commands: typer.Typer) -> None:
    """Add `config` to the `shoal worker` commands."""
    config = typer.Typer(
        help="Show and change what `shoal join` takes from its configuration.",
        invoke_without_command=True,
        epilog=EPILOG,
    )
    config.callback(epilog=EPILOG)(show)
    config.command(name="set", epilog="Example: shoal worker config set cpu-share 50%")(set_)
    commands.add_typer(config, name="config")


def show(
    ctx: typer.Context,
    home: Home = None,
    config: Config = None,
    init: Annotated[
        bool,
        typer.Option("--init", help="Write a file that has every option, with what would hold."),
    ] = False,
    path: Annotated[bool, typer.Option("--path", help="Print where the file lies.")] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print every option, its value, and who says it.")
    ] = False,
) -> None:
    """Print what holds for `shoal join` on this machine, and where each value comes from."""
    if ctx.invoked_subcommand is not None:
        ctx.obj = home, config
        return
    file = _file(home, config)
    if path:
        print(file)
    elif init:
        if file.exists():
            raise ShoalError(f"{file} exists: change it, or move it away first")
        keep(file, written(_options(), {}))
        print(f"{file} has every option")
    elif config is not None and not file.exists():
        raise ShoalError(f"--config {file}: no such file; make it with --init, or name another")
    else:
        _print(file)


def set_(
    ctx: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="An option, such as cores.")],
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="[VALUE]",
            help="What it is from now on; a token is asked for where it is left out, so that "
            "nobody sees it.",
        ),
    ] = None,
    home: Home = None,
    config: Config = None,
) -> None:
    """Say one option in the configuration; all else there stays as it is."""
    before_set = ctx.obj  # flags may stand before `set`, too
    home = home if source_of(ctx, "home") == "flag" else before_set[0]
    file, options = _file(home, config or before_set[1]), _options()
    option = named(key, options)
    if value is None:
        value = _asked(option)
    judged_value = judged(option, parsed(option, value), CHECKS, str(file))
    load(file, options, CHECKS)  # what is wrong there is told first
    text = text_of(file)
    keep(file, changed(text or written(options, {}), option, judged_value))
    print(f"{option.key} = {shown(option, judged_value)}  ({file})")


def _asked(option: Option) -> str:
    """What is typed unseen. Raises ShoalError where it need not be unseen, or nobody is there."""
    if not option.secret or not sys.stdin.isatty():
        raise ShoalError(f"{option.key}: give its value, which must be {option.rule}")
    from getpass import getpass

    try:
        return getpass(f"{option.key} (it is not shown): ").strip()
    except EOFError:
        raise KeyboardInterrupt from None


def settled(
    options: tuple[Option, ...], environment: dict[str, str], file: dict[str, Value]
) -> dict[str, tuple[Value | None, str]]:
    """Of each option its value, and who says it."""
    found: dict[str, tuple[Value | None, str]] = {}
    for option in options:
        if text := environment.get(option.variable):
            found[option.name] = (cast(Value, parsed(option, text)), option.variable)
        elif option.name in file:
            found[option.name] = (file[option.name], "file")
        else:
            found[option.name] = (option.default, "default")
    return found


def shown(option: Option, value: Value | None) -> str:
    """A value as people may see it: no token, no password."""
    if value is None or value == "":
        return "-"
    if option.secret:
        return "***"
    if option.name == "url":
        from protocol.address import parse_address

        return str(parse_address(str(value)))
    if option.name == "proxy" and "@" in str(value):
        scheme, _, rest = str(value).partition("://")
        return f"{scheme}://***@{rest.rpartition('@')[2]}"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, list) else str(value)


def _file(home: Path | None, config: Path | None) -> Path:
    if config is not None:
        return config
    return file_of(None, home, {} if home is not None else os.environ)


def _print(file: Path) -> None:
    options = _options()
    judge_environment(options, CHECKS, os.environ)
    there = load(file, options, CHECKS)
    print(f"{file}{'' if file.exists() else '  (does not exist)'}")
    found = settled(options, dict(os.environ), there)
    wide = max(len(option.key) for option in options)
    for option in options:
        value, source = found[option.name]
        print(f"{option.key:{wide}}  {shown(option, value):24}  {source}")


def _options() -> tuple[Option, ...]:
    from worker.cli import join

    return options_of(join)
