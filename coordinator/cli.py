"""The host's commands: `shoal host` and `shoal demo`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coordinator import (
    invite_command,
    plot_command,
    pool_command,
    presets_command,
    set_command,
    status_command,
)
from coordinator.dashboard import options as dashboards
from coordinator.dashboard.opening import opened
from coordinator.flags import (
    Episodes,
    Hidden,
    Init,
    LearningRate,
    Minimise,
    Name,
    Noise,
    Normalize,
    Objective,
    OptimizerKind,
    Parameters,
    Policy,
    PoolPreset,
    Population,
    PresetName,
    Quorum,
    Seconds,
    Seed,
    Set,
    Shaping,
    Sigma,
    Staleness,
    Steps,
    Strategy,
    Target,
    Updates,
    spec_values,
)
from coordinator.history import cli as history_cli
from coordinator.history.cli import this_command

if TYPE_CHECKING:
    from coordinator.directory import RunDirectory
    from coordinator.host import Run
    from coordinator.progress import Outcome
    from coordinator.watching import Watching

STARTED = time.monotonic()

AllowModule = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-module",
        help="Module that may register environments, hold the policy, add a strategy or an "
        "optimizer; repeatable.",
    ),
]
RunDir = Annotated[Path | None, typer.Option(help="Where the run is kept; by default runs/<run>.")]
AsJson = Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")]
Plain = Annotated[
    bool,
    typer.Option("--plain", help="Plain lines, though the terminal could show the whole screen."),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", help="Leave out the lines about workers and tasks, not the progress."),
]


def register(app: typer.Typer) -> None:
    """Add the host's commands to the `shoal` command."""
    app.command(
        epilog="Example: shoal host CartPole-v1 --bind 0.0.0.0 --pool quorum --population 256",
        name="host",
    )(host)
    app.command(epilog="Example: shoal demo CartPole-v1 --workers 2 --seed 1", name="demo")(demo)
    presets_command.register(app)
    plot_command.register(app)
    invite_command.register(app)
    pool_command.register(app)
    set_command.register(app)
    status_command.register(app)
    history_cli.register(app)


def host(
    source: Annotated[
        str | None, typer.Argument(metavar="ENV|RUN.toml", help="Environment id, or a run file.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN_DIR", help="Go on with the run in this directory."),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="With --resume: lead even where somebody does, who steps aside."
        ),
    ] = False,
    standby: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Follow the run of this join line, and lead it once its leader is gone.",
        ),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(
            min=2.5, max=86400.0, help="Seconds of silence before the first standby steps in."
        ),
    ] = 5.0,
    broker: Annotated[
        str | None,
        typer.Option(
            help="auto, embedded, mosquitto, or the URL of a broker; by default auto, with "
            "--resume as last time."
        ),
    ] = None,
    bind: Annotated[
        str | None,
        typer.Option(help="Address that our broker listens on; by default 127.0.0.1."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of our broker, by default 1883, or 8883 with TLS, with --resume as last "
            "time; 0 takes a free one.",
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(help="Our broker's address in the join line; by default found out."),
    ] = None,
    tls: Annotated[
        bool | None,
        typer.Option(
            "--tls/--no-tls",
            help="Whether our broker encrypts; by default where --bind lets other machines in. "
            "The join line tells its certificate.",
            show_default=False,
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(help="Certificate (PEM, with its chain) to use in the place of our own."),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key (PEM) of --tls-cert.")] = None,
    announce: Annotated[
        bool,
        typer.Option(
            "--announce/--no-announce",
            help="Whether volunteers on the local network find the run by themselves, where --bind "
            "lets other machines in.",
        ),
    ] = True,
    proxy: Annotated[
        str | None,
        typer.Option(
            help="Go to a broker that is not ours through http://HOST:PORT or socks5://HOST:PORT; "
            "without it, through SHOAL_PROXY in the environment.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            help="Key file to sign with; by default a new one per run, with --resume the run's, "
            "with --standby this machine's."
        ),
    ] = None,
    home: Annotated[
        str,
        typer.Option(
            envvar="SHOAL_HOME", help="Where this machine's host.key lies.", show_default=False
        ),
    ] = "",
    delegate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FINGERPRINT",
            help="Key of a standby that may take over; repeatable, the first steps in first.",
        ),
    ] = None,
    admission: Annotated[
        str | None,
        typer.Option(
            help="Whom to let in: open, everybody (the default); invite, whoever has a token of "
            "shoal invite; list, those of --admit. With --resume as last time."
        ),
    ] = None,
    admit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FINGERPRINT",
            help="Key of a worker that --admission list lets in, as shoal identity show prints it "
            "there; repeatable.",
        ),
    ] = None,
    keep_returns: Annotated[
        bool, typer.Option("--keep-returns", help="Keep every accepted result in the log for good.")
    ] = False,
    dashboard: dashboards.Port = None,
    dashboard_bind: dashboards.Bind = None,
    dashboard_token_file: dashboards.TokenFile = None,
    local_workers: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="Workers of this machine, one core each, that end with the host; auto: all cores "
            "but one. Their logs are in the run directory.",
        ),
    ] = "0",
    run_dir: RunDir = None,
    objective: Objective = None,
    parameters: Parameters = None,
    minimise: Minimise = None,
    name: Name = None,
    seed: Seed = None,
    preset: PresetName = None,
    policy: Policy = None,
    hidden: Hidden = None,
    strategy: Strategy = None,
    shaping: Shaping = None,
    population: Population = None,
    sigma: Sigma = None,
    noise: Noise = None,
    optimizer: OptimizerKind = None,
    learning_rate: LearningRate = None,
    normalize: Normalize = None,
    pool: PoolPreset = None,
    quorum: Quorum = None,
    max_staleness: Staleness = None,
    target: Target = None,
    updates: Updates = None,
    episodes: Episodes = None,
    steps: Steps = None,
    seconds: Seconds = None,
    assignments: Set = None,
    init: Init = None,
    allow_module: AllowModule = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    plain: Plain = False,
) -> None:
    """Lead a run: hand out tasks, make the updates, until it ends or Ctrl-C."""
    from coordinator import host as runs
    from coordinator.directory import BrokerChoice
    from coordinator.hosted import Asked, lead_as_asked
    from coordinator.local import usable_cores, wanted
    from coordinator.watching import open_console
    from protocol import registry
    from protocol.errors import ShoalError
    from protocol.identity import digest_of
    from protocol.installed import granted

    flags = spec_values(locals())
    modules = granted(allow_module)
    registry.allow(modules)
    delegates = tuple(map(digest_of, delegate)) if delegate is not None else None
    workers = wanted(local_workers, usable_cores())
    console = open_console(plain, not quiet)
    watched = dashboards.choice(dashboard, dashboard_bind, dashboard_token_file)
    if standby is not None:
        asked: dict[str, Any] = {
            "ENV": source,
            "--resume": resume,
            "--take-over": take_over or None,
            "--broker": broker,
            "--bind": bind,
            "--port": port,
            "--advertise": advertise,
            "--tls": tls,
            "--tls-cert": tls_cert,
            "--admission": admission,
            "--admit": admit,
            "--tls-key": tls_key,
            "--delegate": delegate,
            "--keep-returns": keep_returns or None,
            "--local-workers": workers or None,
            "--set": assignments,
            "--preset": preset,
            "--pool": pool,
            "--init": init,
            **{f"{section} settings": values for section, values in flags.items()},
        }
        _refuse_beside_standby([name for name, value in asked.items() if value is not None])
        _stand_by(standby, run_dir, key, home, patience, proxy, console, as_json, watched, modules)
        return
    if take_over and resume is None:
        raise ShoalError("--take-over goes on with a run: give its directory with --resume")
    if resume is not None:
        _refuse_changes(resume, source, run_dir, preset, pool, flags, assignments, init)
        run = runs.resume(resume, key, delegates, keep_returns)
    elif source is None and objective is None:
        raise ShoalError(
            "what should be trained? Give an environment id or a run file, for example "
            "shoal host CartPole-v1, an --objective, or --resume RUN_DIR"
        )
    else:
        from coordinator.composing import compose

        composed = compose(source, flags, assignments or [], modules, pool, init, preset)
        run = runs.prepare(composed.spec, run_dir, key, delegates, keep_returns, composed.first)
        if composed.told:
            console.say(composed.told)
    _let_in(run.directory, admission, admit)
    known = run.directory.remembered() if run.resumed else BrokerChoice()
    given: dict[str, Any] = {
        "broker": broker,
        "bind": bind,
        "port": port,
        "advertise": advertise,
        "tls": tls,
        "tls_cert": tls_cert and str(tls_cert.absolute()),
        "tls_key": tls_key and str(tls_key.absolute()),
    }
    choice = replace(known, **{name: value for name, value in given.items() if value is not None})
    wishes = Asked(choice, proxy, take_over, patience, announce, watched, workers, modules)
    leading = lead_as_asked(run, wishes, console)
    _lead_to_the_end(run, console, leading, as_json)


def _let_in(directory: RunDirectory, admission: str | None, admit: list[str] | None) -> None:
    """Whom the run takes from now on, as asked for now or last time."""
    from coordinator.admission import changed, keep_settings, read_settings

    try:
        before = read_settings(directory.path)
        after = changed(before, admission, admit)
        if after != before:
            keep_settings(directory.path, after)
    except BaseException:
        directory.discard()
        raise


def _refuse_beside_standby(given: list[str]) -> None:
    """A standby follows a run as it is, over the broker that the run is at."""
    from protocol.errors import ShoalError

    if given:
        raise ShoalError(
            f"--standby follows a run as it is, over its own broker: leave out {', '.join(given)}"
        )


def _stand_by(
    url: str,
    run_dir: Path | None,
    key: Path | None,
    home: str,
    patience: float,
    proxy: str | None,
    console: Watching,
    as_json: bool,
    watched: dashboards.Choice | None,
    modules: tuple[str, ...],
) -> None:
    """Follow somebody's run, and lead it when it is our turn."""
    from coordinator.history.keys import home_key
    from protocol.address import join_line
    from protocol.errors import ShoalError
    from protocol.identity import Identity
    from protocol.surroundings import address_from_here

    address = address_from_here(url, proxy)
    run, root = address.run, address.fingerprint
    if run is None or root is None:
        raise ShoalError(
            f"--standby {address}: give the whole line that volunteers join with, "
            "mqtt://HOST:PORT/RUN#FINGERPRINT; the host prints it"
        )
    key_file = home_key(home) if key is None else key
    identity = Identity.load(key) if key is not None else Identity.load_or_create(key_file)
    where = run_dir if run_dir is not None else Path("runs") / run
    console.say(f"standby {identity.fingerprint} for the run {run}, kept in {where}")

    async def standing() -> Outcome:
        from coordinator.hosting import Listeners, stand_by

        listeners = Listeners(
            on_event=console.event,
            on_update=console.update,
            on_follow=lambda standby: console.follow(standby.version, standby.goal),
            on_ready=lambda: console.ready(join_line(url, run, root)),
            on_metrics=console.measure,
            on_lead=console.lead,
        )
        line = join_line(url, run, root)
        async with opened(watched, run, where, modules, console.say) as beside:
            told = beside(listeners, line)
            return await stand_by(run, root, identity, where, address, told, patience)

    again = f"host --standby {address} --run-dir {where}"
    try:
        outcome = asyncio.run(standing())
    except KeyboardInterrupt:
        console.say(f"no standby any more; go on as one: {this_command()} {again}")
        raise
    finally:
        console.clear()
    if outcome.state == "stopped":  # there is nobody to follow
        again = f"host --resume {where} --broker {address.pinned_broker} --key {key_file}"
    _tell_the_end(console, where, outcome, again, as_json)


def demo(
    source: Annotated[
        str, typer.Argument(metavar="ENV|RUN.toml", help="Environment id, or a run file.")
    ] = "CartPole-v1",
    workers: Annotated[int, typer.Option(min=1, max=256, help="Worker processes.")] = 2,
    broker: Annotated[str, typer.Option(help="embedded or mosquitto.")] = "embedded",
    dashboard: dashboards.Port = None,
    dashboard_bind: dashboards.Bind = None,
    dashboard_token_file: dashboards.TokenFile = None,
    run_dir: RunDir = None,
    name: Name = None,
    seed: Seed = None,
    preset: PresetName = None,
    policy: Policy = None,
    hidden: Hidden = None,
    strategy: Strategy = None,
    shaping: Shaping = None,
    population: Population = None,
    sigma: Sigma = None,
    noise: Noise = None,
    optimizer: OptimizerKind = None,
    learning_rate: LearningRate = None,
    normalize: Normalize = None,
    pool: PoolPreset = None,
    quorum: Quorum = None,
    max_staleness: Staleness = None,
    target: Target = None,
    updates: Updates = None,
    episodes: Episodes = None,
    steps: Steps = None,
    seconds: Seconds = None,
    assignments: Set = None,
    init: Init = None,
    allow_module: AllowModule = None,
    as_json: AsJson = False,
    quiet: Annotated[
        bool, typer.Option("--quiet/--events", help="Leave out or show each event in the pool.")
    ] = True,
    plain: Plain = False,
) -> None:
    """Train on this machine: a broker, a coordinator and workers as real processes."""
    from coordinator import demo as running
    from coordinator.composing import compose
    from coordinator.host import prepare
    from coordinator.watching import open_console
    from protocol import registry
    from protocol.errors import ShoalError
    from protocol.installed import granted

    if broker not in ("embedded", "mosquitto"):
        raise ShoalError(f"--broker {broker!r}: the demo starts its own, embedded or mosquitto")
    flags = spec_values(locals())
    watched = dashboards.choice(dashboard, dashboard_bind, dashboard_token_file)
    modules = granted(allow_module)
    registry.allow(modules)
    spec, first, told = compose(source, flags, assignments or [], modules, pool, init, preset)
    run = prepare(spec, run_dir, first=first)
    console = open_console(plain, not quiet)
    if told:
        console.say(told)
    console.say(
        f"run {run.id}: {spec.environment.id}, {spec.size:,} parameters, "
        f"{workers} worker{'s' * (workers != 1)}; "
        "the first run on a machine compiles kernels for up to a minute"
    )
    showing = opened(watched, run.id, run.directory.path, modules, console.say)
    training = running.demo(run, workers, broker, console, showing, modules)
    _lead_to_the_end(run, console, training, as_json)


def _lead_to_the_end(
    run: Run, console: Watching, leading: Coroutine[Any, Any, Outcome], as_json: bool
) -> None:
    """Lead the run, and tell how it ended; a run that never began leaves nothing behind."""
    try:
        outcome = asyncio.run(leading)
    except BaseException:
        console.clear()
        run.directory.discard()
        raise
    run.directory.close()
    where = run.directory.path
    _tell_the_end(console, where, outcome, f"host --resume {where}", as_json)


def _tell_the_end(
    console: Watching, where: Path, outcome: Outcome, again: str, as_json: bool
) -> None:
    """Tell how a run ended; `again` is the command that goes on with one that has not."""
    from coordinator.host import summary, verdict

    console.close(outcome.progress)
    console.say(verdict(outcome))
    if outcome.state != "finished":
        console.say(f"go on with it: {this_command()} {again}")
    console.say(f"kept in {where}; watch it: {this_command()} play {where}")
    if as_json:
        print(json.dumps(summary(outcome, time.monotonic() - STARTED)))


def _refuse_changes(
    resume: Path,
    source: str | None,
    run_dir: Path | None,
    preset: str | None,
    pool: str | None,
    flags: dict[str, Any],
    assignments: list[str] | None,
    init: Path | None,
) -> None:
    """A run spec never changes: whoever goes on with a run has nothing to say about it."""
    from protocol.errors import ShoalError

    if run_dir is not None:
        raise ShoalError(f"--run-dir: --resume {resume} names the directory already; leave it out")
    changes = [source] if source is not None else []
    changes += [f"--preset {preset}"] if preset is not None else []
    changes += [f"--pool {pool}"] if pool is not None else []
    changes += [f"--init {init}"] if init is not None else []
    for section, value in flags.items():
        fields = value if isinstance(value, dict) else [""]
        changes += [f"{section}.{field}".rstrip(".") for field in fields]
    changes += assignments or []
    if changes:
        raise ShoalError(
            f"--resume {resume} goes on with the run as it is, so {', '.join(changes)} can't be "
            f"given: shoal fork {resume} makes a new run with other settings"
        )
