"""The command `shoal host`, and the place where all of the host's commands are mounted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coordinator import (
    demo_command,
    invite_command,
    plot_command,
    pool_command,
    presets_command,
    set_command,
    status_command,
)
from coordinator.dashboard import options as dashboards
from coordinator.ending import lead_to_the_end
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
from coordinator.leading_options import AllowModule, AsJson, Plain, Priority, Quiet, RunDir
from coordinator.standing_by import refuse_beside_standby, stand_by_as_asked
from coordinator.sweep import cli as sweep_cli
from protocol.panels import in_panels

if TYPE_CHECKING:
    from coordinator.directory import RunDirectory

PANELS = {
    "What is trained": "objective parameters minimise name seed preset policy hidden strategy "
    "shaping population sigma noise optimizer learning_rate normalize assignments init "
    "allow_module",
    "When it ends": "target updates episodes steps seconds",
    "The pool": "pool quorum max_staleness local_workers priority keep_returns",
    "The broker": "broker bind port advertise tls tls_cert tls_key announce proxy",
    "Who may take part": "admission admit",
    "Who leads": "resume take_over standby patience key home delegate",
    "What is kept and seen": "run_dir dashboard dashboard_bind dashboard_token_file as_json quiet "
    "plain",
}
"""Of the help."""


def register(app: typer.Typer) -> None:
    """Add the host's commands to the `shoal` command."""
    app.command(
        epilog="Example: shoal host CartPole-v1 --bind 0.0.0.0 --pool quorum --population 256",
        name="host",
        cls=in_panels(PANELS),
    )(host)
    demo_command.register(app)
    presets_command.register(app)
    plot_command.register(app)
    invite_command.register(app)
    pool_command.register(app)
    set_command.register(app)
    status_command.register(app)
    sweep_cli.register(app)
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
    priority: Priority = 1.0,
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
    from coordinator.local import wanted
    from coordinator.watching import open_console
    from protocol import registry
    from protocol.cores import usable_cores
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
            "--priority": priority if priority != 1.0 else None,
            "--set": assignments,
            "--preset": preset,
            "--pool": pool,
            "--init": init,
            **{f"{section} settings": values for section, values in flags.items()},
        }
        refuse_beside_standby([name for name, value in asked.items() if value is not None])
        stand_by_as_asked(
            standby, run_dir, key, home, patience, proxy, console, as_json, watched, modules
        )
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
    run = replace(run, priority=priority)
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
    lead_to_the_end(run, console, leading, as_json)


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
