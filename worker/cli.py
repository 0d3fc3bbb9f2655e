"""The volunteer's command: `shoal join`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from protocol.command import hangups
from protocol.cores import usable_cores
from protocol.errors import ShoalError
from protocol.panels import in_panels
from worker.amounts import (
    bytes_of_memory,
    bytes_per_second,
    cores_granted,
    share_of_a_core,
)
from worker.configuration import Value, options_of
from worker.configured import configured, file_of, source_of
from worker.home import home_of
from worker.join_options import (
    CHECKS,
    AllowModule,
    Config,
    Cores,
    CpuShare,
    Credit,
    Device,
    EpisodeLimit,
    ExitWithParent,
    Format,
    Home,
    Invite,
    Lanes,
    LogFormat,
    MemoryLimit,
    Name,
    Nice,
    Once,
    ParameterLimit,
    Private,
    Proxy,
    Quiet,
    Share,
    TaskLimit,
    UploadLimit,
    Url,
)
from worker.permission_options import (
    ExitWhenIdle,
    Hours,
    IdleOnly,
    LeaveAt,
    MaxTasks,
    MaxTemperature,
    Memory,
    PauseOnBattery,
    terms,
)

if TYPE_CHECKING:
    from worker.daemon import Daemon

EXIT_CODES = (
    "Exit codes: 0 the run ended, or you left; 2 wrong use; "
    "3 this version can't take part; 4 the environment is not installed; 5 the broker or the run "
    "can't be reached, or its key is not the join line's; 6 the host sends this worker "
    "away, or it can't follow the run; 130 Ctrl-C before it began."
)
ELSEWHERE = (
    "Every option may be in the environment, --cpu-share as SHOAL_CPU_SHARE, or in a file, as "
    "cpu-share: see shoal worker config."
)


PANELS = {
    "What this machine gives": "cores cpu_share memory_limit memory device lanes nice credit "
    "upload_limit share",
    "When it works, and when it leaves": "schedule idle_only pause_on_battery "
    "max_temperature until max_tasks exit_when_idle once exit_with_parent",
    "What a run may ask for": "allow_module parameter_limit episode_limit task_limit",
    "Who it is, and how it gets there": "name private invite proxy home config",
    "What it says": "log_format quiet",
}
"""Of the help."""


def register(app: typer.Typer) -> None:
    """Add the volunteer's command to the `shoal` command."""
    app.command(
        name="join",
        cls=in_panels(PANELS, configured(options_of(join), CHECKS)),
        epilog=f"Example: shoal join mqtt://host:1883 --cores auto. {ELSEWHERE} {EXIT_CODES}",
    )(join)


def join(
    ctx: typer.Context,
    url: Url = None,
    name: Name = "",
    private: Private = False,
    invite: Invite = None,
    proxy: Proxy = None,
    share: Share = "",
    cores: Cores = "1",
    cpu_share: CpuShare = "100%",
    memory_limit: MemoryLimit = "auto",
    credit: Credit = 2,
    home: Home = None,
    config: Config = None,
    allow_module: AllowModule = None,
    device: Device = "auto",
    lanes: Lanes = None,
    parameter_limit: ParameterLimit = None,
    episode_limit: EpisodeLimit = None,
    task_limit: TaskLimit = 3600.0,
    upload_limit: UploadLimit = "4MB",
    nice: Nice = 19,
    idle_only: IdleOnly = False,
    schedule: Hours = "",
    pause_on_battery: PauseOnBattery = False,
    max_temperature: MaxTemperature = None,
    memory: Memory = "",
    until: LeaveAt = "",
    max_tasks: MaxTasks = None,
    exit_when_idle: ExitWhenIdle = "",
    once: Once = False,
    log_format: Format = LogFormat.auto,
    quiet: Quiet = False,
    exit_with_parent: ExitWithParent = False,
) -> None:
    """Lend this machine to a run until it ends, or to all runs at a broker, until Ctrl-C."""
    if url is None:
        said = _asked(ctx, home, config, proxy)
        url = str(said["url"])
        name, cores = str(said.get("name", name)), str(said.get("cores", cores))
        invite = str(said["invite"]) if "invite" in said else invite
    children = cores_granted(cores, usable_cores())
    of_each_core = share_of_a_core(cpu_share)
    limit = bytes_per_second(upload_limit)
    from worker.shares import parse as parse_shares

    shares = parse_shares(share)
    from worker.policies.devices import parse as parse_device

    policies_on = parse_device(device)
    memory_each = bytes_of_memory(memory_limit)
    agreed = terms(
        idle_only=idle_only,
        schedule=schedule,
        pause_on_battery=pause_on_battery,
        max_temperature=max_temperature,
        memory=memory,
        until=until,
        max_tasks=max_tasks,
        exit_when_idle=exit_when_idle,
        children=children,
    )

    from protocol.surroundings import address_from_here

    address = address_from_here(url, proxy, invite=invite)
    be_nice(nice)

    from protocol import registry
    from protocol.identity import Identity
    from protocol.installed import granted
    from protocol.spec import LONGEST_EPISODE, MAX_PARAMETERS
    from worker.beginning import NotWanted, take_place
    from worker.console import open_console
    from worker.daemon import Daemon
    from worker.limits import Limits
    from worker.names import label_of
    from worker.settings import Settings

    allowed = granted(allow_module)
    registry.allow(allowed)
    settings = Settings(
        address=address,
        name=name,
        private=private,
        children=children,
        cpu_share=of_each_core,
        memory_limit=memory_each,
        credit=credit,
        allowed=allowed,
        device=policies_on,
        lanes=lanes or 0,
        once=once,
        upload_limit=limit,
        limits=Limits(
            parameter_limit or MAX_PARAMETERS, episode_limit or LONGEST_EPISODE, task_limit
        ),
        terms=agreed,
        shares=shares,
    )
    identity = Identity.load_or_create(home_of(home) / "worker.key")
    console = open_console("quiet" if quiet else log_format.value)
    try:
        label = name or label_of(identity.worker)
        place = take_place(home_of(home), label, console, by_hand=_is_by_hand())
    except NotWanted as told:
        console.say(str(told), warning=True)
        raise typer.Exit(0) from None
    daemon = Daemon(settings, identity, console, place=place)
    try:
        raise typer.Exit(asyncio.run(_run(daemon, exit_with_parent)))
    finally:
        if place is not None:
            place.leave()


def _is_by_hand() -> bool:
    """Whether a person types at us, and no service manager starts us."""
    return sys.stdin is not None and sys.stdin.isatty()


def _asked(
    ctx: typer.Context, home: Path | None, config: Path | None, proxy: str | None
) -> dict[str, Value]:
    """What a volunteer answers, who has said nowhere which run to join; it is kept.

    Raises ShoalError where there is nobody to ask.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ShoalError(
            "which run? Give the line that its host prints: shoal join mqtt://HOST:PORT/RUN#KEY, "
            "as SHOAL_JOIN in the environment, or as url in the configuration; shoal pools lists "
            "the runs on the local network"
        )
    from protocol.identity import Identity
    from worker.wizard import Wizard, save

    key = home_of(home) / "worker.key"
    identity = Identity.load(key) if key.exists() else Identity.generate()
    options = options_of(join)
    given = [option.name for option in options if source_of(ctx, option.name) != "default"]
    answers = Wizard(identity, proxy, given).ask()
    with contextlib.suppress(FileExistsError):  # of another worker that began meanwhile
        identity.save(key)
    save(file_of(config, home, os.environ), options, answers)
    return answers


def be_nice(level: int) -> None:
    """Let everything else on the machine go first; evaluation processes inherit it."""
    if level and hasattr(os, "nice"):
        os.nice(max(0, level - os.nice(0)))


async def _run(daemon: Daemon, exit_with_parent: bool) -> int:
    loop = asyncio.get_running_loop()
    reactions = {signal.SIGINT: daemon.interrupt, signal.SIGTERM: daemon.terminate}
    reactions |= dict.fromkeys(hangups(), daemon.terminate)
    for number, react in reactions.items():
        try:
            loop.add_signal_handler(number, react)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_, react=react: loop.call_soon_threadsafe(react))
    if exit_with_parent:
        threading.Thread(
            target=_watch_input, args=(loop, daemon.terminate), name="parent", daemon=True
        ).start()
    return await daemon.run()


def _watch_input(loop: asyncio.AbstractEventLoop, react: Callable[[], None]) -> None:
    """Whoever started us holds the other end of our input; it ends with them."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    with contextlib.suppress(RuntimeError):  # we may be leaving already
        loop.call_soon_threadsafe(react)
