"""The command `shoal worker doctor`: finds what keeps this machine from taking part."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.cores import usable_cores
from protocol.errors import ShoalError
from worker.amounts import cores_granted
from worker.config_command import settled
from worker.configuration import Option, Value, beside, options_of
from worker.configured import file_of, judge_environment, load
from worker.findings import Finding, healthy, lines, plain
from worker.home import home_of
from worker.join_options import CHECKS, Config, Home

if TYPE_CHECKING:
    from worker.settings import Settings


def register(commands: typer.Typer) -> None:
    """Add `doctor` to the `shoal worker` commands."""
    commands.command(
        name="doctor",
        epilog="Example: shoal worker doctor mqtt://host:1883. Exit codes: 0 nothing is in the "
        "way, 1 something is, 2 wrong use.",
    )(doctor)


def doctor(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="[URL]",
            help="Of the run; by default what the environment or the configuration says. Without "
            "any, this machine alone is looked at.",
        ),
    ] = None,
    home: Home = None,
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Find what keeps this machine from taking part in a run, and say what to do.

    Where a run is named it takes part for a moment, without a task: the host sees a worker come
    and go.
    """
    findings = asyncio.run(_look(url, home, config, show=not as_json))
    if as_json:
        print(json.dumps(plain(findings)))
    raise typer.Exit(0 if healthy(findings) else 1)


async def _look(
    url: str | None, home: Path | None, config: Path | None, *, show: bool
) -> list[Finding]:
    findings = []
    async for found in _all(url, home, config):
        findings.append(found)
        if show:
            print(lines([found])[0], flush=True)
    return findings


async def _all(url: str | None, home: Path | None, config: Path | None) -> AsyncIterator[Finding]:
    from worker import machine_checks as machine

    values: dict[str, Value | None] = {}
    try:
        file = file_of(config, home, os.environ)
        said = load(file, _options(), CHECKS)
        values = _values(beside(said, url))
        yield machine.configuration(file, len(said), secret="invite" in said or "@" in str(said))
    except ShoalError as error:
        yield Finding("configuration", "fail", str(error))
    found, identity = machine.home(home_of(home))
    yield found
    writable = found.state == "ok"
    yield machine.open_files(machine.files_allowed())
    cores = cores_granted(str(values.get("cores") or "1"), usable_cores())
    yield machine.memory(machine.memory_free(), cores)
    yield machine.scratch()
    yield machine.clock(time.time(), Path(__file__).stat().st_mtime)
    yield machine.packages()
    found = await machine.processes()
    yield found
    where = url or values.get("url")
    if not where or not writable or found.state == "fail":
        return
    try:
        settings = _settings(str(where), values)
    except ShoalError as error:
        yield Finding("address", "fail", str(error))
        return
    from worker.way_checks import way

    async for found in way(settings, identity):
        yield found


def _settings(url: str, values: dict[str, Value | None]) -> Settings:
    """What `shoal join` would take part with, as far as a moment without tasks needs it."""
    from protocol import registry
    from protocol.installed import granted
    from protocol.surroundings import address_from_here
    from worker.settings import Settings

    proxy, invite = values.get("proxy"), values.get("invite")
    modules = values.get("allow_module")
    allowed = granted(modules if isinstance(modules, list) else None)
    registry.allow(allowed)
    address = address_from_here(
        url, str(proxy) if proxy else None, invite=str(invite) if invite else None
    )
    name, private = str(values.get("name") or ""), bool(values.get("private"))
    return Settings(address, name=name, allowed=allowed, lanes=1, private=private)


def _values(said: dict[str, Value]) -> dict[str, Value | None]:
    options = _options()
    judge_environment(options, CHECKS, os.environ)
    found = settled(options, dict(os.environ), said)
    return {name: value for name, (value, _) in found.items()}


def _options() -> tuple[Option, ...]:
    from worker.cli import join

    return options_of(join)
