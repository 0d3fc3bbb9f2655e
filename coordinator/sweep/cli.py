"""The commands `shoal sweep`: train a sweep, go on with it, look at it, take the best of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from coordinator.leading_options import AllowModule, Priority, Quiet
from protocol.panels import in_panels

if TYPE_CHECKING:
    from coordinator.sweep.sweep import Sweep

File = Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="What is varied, and how.")]
Dir = Annotated[Path, typer.Argument(metavar="DIR", help="Where the sweep is kept.")]
Parallel = Annotated[
    int, typer.Option(min=1, max=16, help="Runs that are led at a time; all workers serve all.")
]
Broker = Annotated[
    str | None,
    typer.Option(
        help="auto, embedded, mosquitto, or the URL of a broker; by default auto, of a sweep that "
        "goes on as last time."
    ),
]
Bind = Annotated[
    str | None, typer.Option(help="Address that our broker listens on; by default 127.0.0.1.")
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port of our broker, by default 1883, or 8883 with TLS, of a sweep that goes on as "
        "last time; 0 takes a free one.",
    ),
]
Advertise = Annotated[
    str | None, typer.Option(help="Our broker's address in the join line; by default found out.")
]
Tls = Annotated[
    bool | None,
    typer.Option(
        "--tls/--no-tls",
        help="Whether our broker encrypts; by default where --bind lets other machines in.",
        show_default=False,
    ),
]
Proxy = Annotated[
    str | None, typer.Option(help="Go to a broker that is not ours through this proxy.")
]
Workers = Annotated[
    str,
    typer.Option(
        "--local-workers",
        metavar="N|auto",
        help="Workers of this machine, one core each, that end with the sweep; auto: all cores "
        "but one.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="End with the table in JSON, on stdout.")]


class _Sweeps(TyperGroup):
    """Takes `shoal sweep FILE` for `shoal sweep run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What else begins with no command of ours begins a sweep."""
        if args and args[0] not in (*self.commands, "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add `sweep` to the `shoal` command."""
    sweep = typer.Typer(
        cls=_Sweeps,
        help="Train a spec with many settings over one pool, and compare them; SWEEP.toml alone "
        "is short for run SWEEP.toml.",
        no_args_is_help=True,
    )
    one = "sweeps/cartpole"
    sorted_ = in_panels({"The broker": "broker bind port advertise tls proxy"})
    example = "Example: shoal sweep run cartpole.toml --local-workers auto"
    sweep.command(epilog=example, cls=sorted_)(run)
    example = f"Example: shoal sweep resume {one} --local-workers auto"
    sweep.command(epilog=example, cls=sorted_)(resume)
    sweep.command(epilog=f"Example: shoal sweep status {one} --csv > table.csv")(status)
    sweep.command(epilog=f"Example: shoal sweep best {one} --out best.toml")(best)
    sweep.command(epilog=f"Example: shoal sweep plot {one} --out pictures --format svg")(plot)
    app.add_typer(sweep, name="sweep", epilog="Example: shoal sweep cartpole.toml")


def run(
    file: File,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Where the sweep is kept; by default sweeps/<its name>."),
    ] = None,
    parallel: Parallel = 2,
    priority: Priority = 1.0,
    broker: Broker = None,
    bind: Bind = None,
    port: Port = None,
    advertise: Advertise = None,
    tls: Tls = None,
    proxy: Proxy = None,
    local_workers: Workers = "0",
    allow_module: AllowModule = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train all points of a sweep, with all seeds, over one pool; Ctrl-C pauses it."""
    from coordinator.sweep import file as files
    from coordinator.sweep.sweep import Sweep
    from coordinator.watching import open_console
    from protocol.errors import ShoalError

    asked = _asked(parallel, priority, local_workers, allow_module, proxy)
    console = open_console(True, not quiet)
    where = directory
    if where is None:
        where = Path("sweeps") / (files.parse(files.load(file), file).name or "sweep")
    with Sweep.begin(file, where, asked.modules, console.say) as sweep:
        choice = _choice(sweep, broker, bind, port, advertise, tls)
        try:
            _lead(sweep, _with(asked, choice), console, as_json)
        except ShoalError:
            sweep.discard()
            raise


def resume(
    directory: Dir,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Let runs that failed, or that somebody stopped, go on or begin again."
        ),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="SWEEP.toml", help="The sweep file, with more points or seeds than before."
        ),
    ] = None,
    parallel: Parallel = 2,
    priority: Priority = 1.0,
    broker: Broker = None,
    bind: Bind = None,
    port: Port = None,
    advertise: Advertise = None,
    tls: Tls = None,
    proxy: Proxy = None,
    local_workers: Workers = "0",
    allow_module: AllowModule = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a sweep that was paused, or whose host was killed."""
    from coordinator.sweep.store import Store
    from coordinator.sweep.sweep import Sweep
    from coordinator.watching import open_console

    asked = _asked(parallel, priority, local_workers, allow_module, proxy)
    console = open_console(True, not quiet)
    with Sweep(Store.open(directory), asked.modules) as sweep:
        if file is not None:
            sweep.grow(file, console.say)
        if again:
            console.say(f"{sweep.try_again()} runs that failed or were stopped are tried again")
        choice = _choice(sweep, broker, bind, port, advertise, tls)
        _lead(sweep, _with(asked, choice), console, as_json)


def status(
    directory: Dir,
    as_json: AsJson = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Say it in CSV, on stdout: a line for each run.")
    ] = False,
) -> None:
    """Show how far a sweep is, and what its points are worth, the best first."""
    from coordinator.sweep import report
    from coordinator.sweep.telling import progress
    from protocol.errors import ShoalError

    if as_json and as_csv:
        raise ShoalError("--json and --csv: give one of them")
    with _looked_at(directory) as sweep:
        sweep.look_at_runs()
        rows = sweep.rows()
        if as_json:
            print(json.dumps(_told(sweep)))
        elif as_csv:
            print(report.to_csv(rows), end="")
        else:
            print(progress(sweep.tried, sweep.verdicts()))
            print(report.table(rows, sweep.aim))


def best(
    directory: Dir,
    out: Annotated[
        Path | None, typer.Option(help="File to write it to, a .toml; by default stdout.")
    ] = None,
    point: Annotated[
        str | None, typer.Option(help="Another point than the best, by its name in the table.")
    ] = None,
) -> None:
    """Write the spec of the best point as a run file, which shoal host takes."""
    from coordinator.sweep.best import spec_of
    from protocol.errors import ShoalError

    if out is not None and out.suffix != ".toml":
        raise ShoalError(f"--out {out} ends in {out.suffix or 'nothing'}: end it in .toml")
    with _looked_at(directory) as sweep:
        text = spec_of(sweep, point)
    if out is None:
        print(text, end="")
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ShoalError(
            f"--out {out} can't be written ({error.strerror or error}): name a file in a folder "
            "that you may write to"
        ) from None
    print(
        f"run file in {out}, with the budget of the sweep; "
        f"train it for longer: shoal host {out} --updates N"
    )


def plot(
    directory: Dir,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pictures; by default DIR/plots.")
    ] = None,
    ending: Annotated[str, typer.Option("--format", help="png, svg or pdf.")] = "png",
) -> None:
    """Draw parallel coordinates of all factors, and a picture of each."""
    from coordinator.sweep.pictures import ENDINGS, draw
    from protocol.errors import ShoalError

    if ending not in ENDINGS:
        raise ShoalError(f"--format {ending[:40]!r}: must be one of {', '.join(ENDINGS)}")
    with _looked_at(directory) as sweep:
        for path in draw(sweep.rows(), sweep.aim, out or directory / "plots", ending):
            print(path)


def _looked_at(directory: Path) -> Sweep:
    from coordinator.sweep.store import Store
    from coordinator.sweep.sweep import Sweep

    return Sweep(Store.read(directory))


def _asked(
    parallel: int, priority: float, workers: str, allow: list[str] | None, proxy: str | None
) -> Any:
    """What holds of a sweep that begins and of one that goes on."""
    from coordinator.directory import BrokerChoice
    from coordinator.local import wanted
    from coordinator.sweep.runner import Asked
    from protocol import registry
    from protocol.cores import usable_cores
    from protocol.installed import granted

    modules = granted(allow)
    registry.allow(modules)
    ours = wanted(workers, usable_cores())
    return Asked(BrokerChoice(), proxy, parallel, priority, ours, modules)


def _with(asked: Any, choice: Any) -> Any:
    from dataclasses import replace

    return replace(asked, choice=choice)


def _choice(
    sweep: Sweep,
    broker: str | None,
    bind: str | None,
    port: int | None,
    advertise: str | None,
    tls: bool | None,
) -> Any:
    """The broker of last time, or any, with what is asked for now."""
    from dataclasses import replace

    given = {"broker": broker, "bind": bind, "port": port, "advertise": advertise, "tls": tls}
    said: Any = {name: value for name, value in given.items() if value is not None}
    return replace(sweep.remembered(), **said)


def _lead(sweep: Sweep, asked: Any, console: Any, as_json: bool) -> None:
    """Lead it to its end, or until it is paused; then tell how it stands."""
    import asyncio

    from coordinator.sweep import report
    from coordinator.sweep.runner import Runner
    from coordinator.sweep.telling import progress

    done = sweep.over or asyncio.run(Runner(sweep, asked, console.say, console.event).run())
    console.say(progress(sweep.tried, sweep.verdicts()))
    where = sweep.directory
    if done:
        from coordinator.sweep.written import write

        for line in write(sweep):
            console.say(line)
    else:
        console.say(f"go on with it: shoal sweep resume {where}")
    if as_json:
        print(json.dumps(_told(sweep)))
    else:
        print(report.table(sweep.rows(), sweep.aim))


def _told(sweep: Sweep) -> dict[str, Any]:
    """The sweep for programs."""
    from coordinator.sweep.written import told

    return told(sweep)
