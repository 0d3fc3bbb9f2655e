"""The command `shoal demo`: a pool of processes on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from coordinator.dashboard import options as dashboards
from coordinator.dashboard.opening import opened
from coordinator.ending import lead_to_the_end
from coordinator.flags import (
    Episodes,
    Hidden,
    Init,
    LearningRate,
    Name,
    Noise,
    Normalize,
    OptimizerKind,
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
from coordinator.leading_options import AllowModule, AsJson, Plain, RunDir
from protocol.panels import in_panels

PANELS = {
    "What is trained": "name seed preset policy hidden strategy shaping population sigma noise "
    "optimizer learning_rate normalize assignments init allow_module",
    "When it ends": "target updates episodes steps seconds",
    "The pool": "pool quorum max_staleness workers broker",
    "What is kept and seen": "run_dir dashboard dashboard_bind dashboard_token_file as_json quiet "
    "plain",
}
"""Of the help."""


def register(app: typer.Typer) -> None:
    """Add `demo` to the `shoal` command."""
    app.command(
        epilog="Example: shoal demo CartPole-v1 --workers 2 --seed 1",
        name="demo",
        cls=in_panels(PANELS),
    )(demo)


def demo(
    source: Annotated[
        str, typer.Argument(metavar="ENV|RUN.toml", help="Environment id, or a run file.")
    ] = "CartPole-v1",
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
    assignments: Set = None,
    init: Init = None,
    allow_module: AllowModule = None,
    target: Target = None,
    updates: Updates = None,
    episodes: Episodes = None,
    steps: Steps = None,
    seconds: Seconds = None,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Worker processes.")] = 2,
    broker: Annotated[str, typer.Option(help="embedded or mosquitto.")] = "embedded",
    pool: PoolPreset = None,
    quorum: Quorum = None,
    max_staleness: Staleness = None,
    run_dir: RunDir = None,
    dashboard: dashboards.Port = None,
    dashboard_bind: dashboards.Bind = None,
    dashboard_token_file: dashboards.TokenFile = None,
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
        f"{workers} worker{'s' * (workers != 1)}; {_compiled(spec.environment.backend)}"
    )
    showing = opened(watched, run.id, run.directory.path, modules, console.say)
    training = running.demo(run, workers, broker, console, showing, modules)
    lead_to_the_end(run, console, training, as_json)


def _compiled(backend: str) -> str:
    """What whoever waits for the first update is told."""
    kernels = "the first run on a machine compiles kernels for up to a minute"
    if backend != "jax":
        return kernels
    return f"{kernels}, and JAX the programs of an environment and policy that are new to it"
