"""The commands `shoal status`, `shoal runs` and `shoal stop`: runs as others see them."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from coordinator.report import Report

WATCH_SECONDS = 2.0
"""Between two looks of `--watch`."""
DEFAULT_RUNS = "runs"
LOOK_SECONDS = 0.2
"""Between two looks whether a run has ended."""

Where = Annotated[
    str,
    typer.Argument(
        metavar="URL|RUN_DIR",
        help="The line that volunteers join with, or the directory where the run is kept.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Say it in JSON, on stdout.")]
Proxy = Annotated[
    str | None,
    typer.Option(help="Go to the broker through http://HOST:PORT or socks5://HOST:PORT."),
]


def register(app: typer.Typer) -> None:
    """Add them to the `shoal` command."""
    app.command(epilog="Example: shoal status runs/cartpole-1a2b3c4d --watch")(status)
    app.command(epilog="Example: shoal runs mqtt://broker:1883")(runs)
    app.command(epilog="Example: shoal stop runs/cartpole-1a2b3c4d --pause")(stop)


def status(
    where: Where,
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Again every 2 s, until the run is over or Ctrl-C.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=0.5, max=3600.0, help="Over a broker: how long to listen, in s.")
    ] = 6.0,
    proxy: Proxy = None,
) -> None:
    """Show how a run stands: from its directory, or from what its host tells over the broker."""
    if "://" in where:
        asyncio.run(_over_broker(where, proxy, seconds, watch, as_json))
        return
    _trust_what_is_here()
    from coordinator.on_disk import look

    directory = Path(where)
    while True:
        report = look(directory, time.time())
        _show(report, watch, as_json, "none yet")
        if not watch or report.state == "ended":
            break
        time.sleep(WATCH_SECONDS)
    _end_watching(watch)


def runs(
    where: Annotated[
        str,
        typer.Argument(metavar="DIR|URL", help="A directory with runs in it, or a broker."),
    ] = DEFAULT_RUNS,
    as_json: AsJson = False,
    proxy: Proxy = None,
) -> None:
    """List the runs in a directory, or those that are led at a broker."""
    if "://" in where:
        _runs_at_broker(where, proxy, as_json)
        return
    _trust_what_is_here()
    from coordinator.on_disk import go_on_with, runs_in
    from coordinator.report import table

    none_yet = where == DEFAULT_RUNS and not Path(where).exists()
    found = [] if none_yet else runs_in(Path(where), time.time())
    if as_json:
        print(json.dumps([{"directory": str(p), **r.to_json()} for p, r in found]))
    elif found:
        print(table([(report, go_on_with(path, report)) for path, report in found]))
    else:
        print(f"no run is in {where}: begin one with shoal host, or name another directory")


def stop(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Where the run is kept.")],
    pause: Annotated[
        bool,
        typer.Option("--pause", help="Only cease to lead it: workers wait until it is resumed."),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1.0, max=86_400.0, help="Seconds that its host has to end.")
    ] = 60.0,
) -> None:
    """Stop a run that is led on this machine, and wait until its host has ended."""
    from coordinator import orders
    from coordinator.directory import ORDERS
    from coordinator.holder import holder
    from coordinator.on_disk import go_on_with, look
    from coordinator.orders import Pause, Stop
    from coordinator.report import line
    from protocol.errors import ShoalError

    _trust_what_is_here()
    look(run_dir, time.time())  # refuses what is no run
    process = holder(run_dir)
    if process is None:
        raise ShoalError(
            f"no process leads the run in {run_dir}: there is nothing to stop; shoal runs "
            f"{run_dir} shows how it stands"
        )
    order = Pause(process) if pause else Stop(process)
    orders.give(run_dir / ORDERS, order)
    deadline = time.monotonic() + timeout
    try:
        while holder(run_dir) == process:
            if time.monotonic() >= deadline:
                raise ShoalError(
                    f"process {process} still has the run in {run_dir} after {timeout:g} s: it may "
                    f"follow somebody else's lead, hang, or need longer (--timeout); "
                    f"kill -{'TERM' if pause else 'INT'} {process} asks it directly"
                )
            time.sleep(LOOK_SECONDS)
    finally:
        # What was not heeded is not to end the run at another time.
        orders.withdraw(run_dir / ORDERS, order)
    report = look(run_dir, time.time())
    print(line(report))
    if command := go_on_with(run_dir, report):
        print(f"go on with it: {command}")


async def _over_broker(
    url: str, proxy: str | None, seconds: float, watch: bool, as_json: bool
) -> None:
    from coordinator.over_broker import reports
    from protocol.surroundings import address_from_here

    silence = f"none in the {seconds:g} s that we listened"
    async for report in reports(address_from_here(url, proxy), seconds, WATCH_SECONDS):
        _show(report, watch, as_json, silence)
        if not watch:
            break
    _end_watching(watch)


def _runs_at_broker(url: str, proxy: str | None, as_json: bool) -> None:
    from coordinator.over_broker import runs_at
    from protocol.address import join_line
    from protocol.figures import printable
    from protocol.identity import fingerprint
    from protocol.surroundings import address_from_here

    address = address_from_here(url, proxy)
    found = []
    for here in asyncio.run(runs_at(address)):
        line = join_line(address.pinned_broker, here.run, fingerprint(here.host_key))
        name = printable(here.environment)
        told = {"run": here.run, "state": here.state, "environment": name, "join": line}
        found.append(told)
    if as_json:
        print(json.dumps(found))
    elif found:
        for told in found:
            print(f"{told['run']}  {told['state']}  {told['environment']}  {told['join']}")
    else:
        print(f"no run is led at {address.broker}")


def _show(report: Report, watch: bool, as_json: bool, silence: str) -> None:
    """Say it, in place where it is to be said again on a terminal."""
    from coordinator.report import line, lines

    if as_json:
        print(json.dumps(report.to_json()), flush=True)
    elif not watch:
        print("\n".join(lines(report, silence)))
    elif sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\x1b[2K{line(report)[:width]}", end="", flush=True)
    else:
        print(f"{time.strftime('%H:%M:%S')} {line(report)}", flush=True)


def _end_watching(watch: bool) -> None:
    if watch and sys.stdout.isatty():
        print()


def _trust_what_is_here() -> None:
    """A run that is kept here may name whatever is installed here."""
    from protocol import registry

    registry.allow([registry.ANY])
