"""Leads a run as `shoal host` was asked to: its broker, workers, and all who watch or find it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from coordinator.admission import own_token, read_settings
from coordinator.broker.provide import Provided, is_external, is_secured, provide
from coordinator.dashboard.opening import opened
from coordinator.dashboard.options import Choice
from coordinator.directory import BrokerChoice
from coordinator.host import Course, Run, heed_signals, join_command, leaders, load
from coordinator.local import LocalWorkers, Way, way_in
from coordinator.progress import Outcome
from coordinator.watching import Watching
from protocol.address import parse_address
from protocol.identity import fingerprint

if TYPE_CHECKING:
    from coordinator.server import Server
    from coordinator.standby import Standby


@dataclass(frozen=True, slots=True)
class Asked:
    """What a host was asked for.

    Attributes:
        choice: the broker, and how it is reached.
        proxy: to go through to a broker that is not ours.
        take_over: lead though somebody does.
        patience: seconds of silence before a standby leads.
        announce: the run on the local network, where others reach our broker.
        watched: where a dashboard is served; None: nowhere.
        workers: of this machine.
        modules: that they may import.
        on_lead: is told who leads, as `hosting.Listeners` has it, to heed signals or not.
    """

    choice: BrokerChoice
    proxy: str | None = None
    take_over: bool = False
    patience: float = 5.0
    announce: bool = False
    watched: Choice | None = None
    workers: int = 0
    modules: tuple[str, ...] = ()
    on_lead: Callable[[Server | None], None] = heed_signals


async def lead_as_asked(run: Run, asked: Asked, console: Watching) -> Outcome:
    """Lead the run over the chosen broker, which starts while the run's state is loaded.

    Raises `ShoalError` where that can't be.
    """
    loading = asyncio.ensure_future(asyncio.to_thread(load, run, console.say))
    choice, directory = asked.choice, run.directory
    try:
        names = leaders(run, await loading) if is_secured(choice) else frozenset[str]()
        provision = provide(choice, directory.path, names, asked.proxy, console.event)
        async with provision as provided:
            console.say(f"run {run.id}: {run.spec.environment.id}, {run.spec.size:,} parameters")
            way = partial(_way, run, provided, asked)
            async with LocalWorkers(directory.path, way, console.event) as local:
                console.employ(local)
                for _ in range(asked.workers):
                    await local.add()
                outcome = await _lead(run, asked, console, provided, local, await loading)
                if outcome.state != "paused":
                    await local.let_go()
                return outcome
    finally:
        await asyncio.wait((loading,))
        if loading.exception() is None:
            loading.result().log.close()


async def _lead(
    run: Run,
    asked: Asked,
    console: Watching,
    provided: Provided,
    local: LocalWorkers,
    course: Course,
) -> Outcome:
    """Lead it, and show it to whoever watches."""
    # Compiled code has been loaded in the thread that loaded the course.
    from coordinator.hosting import Listeners, lead
    from coordinator.leading import UnreachableError

    directory = run.directory
    console.go_on(course.recovered.progress, directory.path)
    before = directory.remembered()
    directory.remember(provided.choice)
    join = join_command(run, provided.public, is_secured(asked.choice))
    reached = asyncio.Event()
    watching = opened(asked.watched, run.id, directory.path, asked.modules, console.say)
    try:
        async with (
            _announcing(run, provided, asked.announce, console) as begin_announcing,
            watching as beside,
        ):

            def ready() -> None:
                reached.set()
                console.ready(join)
                begin_announcing()

            def follow(standby: Standby) -> None:
                reached.set()
                console.follow(standby.version, standby.goal)

            def led(server: Server | None) -> None:
                asked.on_lead(server)
                local.led(server)
                console.lead(server)

            listeners = Listeners(
                console.event, console.update, follow, ready, console.measure, led
            )
            return await lead(
                run,
                course,
                provided.address,
                beside(listeners, join),
                owns_broker=not is_external(asked.choice),
                take_over=asked.take_over,
                patience=asked.patience,
            )
    except UnreachableError:
        if not reached.is_set():  # a mistyped address is none to come back to
            directory.remember(before)
        raise


@contextlib.asynccontextmanager
async def _announcing(
    run: Run, provided: Provided, wanted: bool, console: Watching
) -> AsyncIterator[Callable[[], None]]:
    """Gives what announces the run on the local network, where others reach our broker."""
    from coordinator.announcing import announcing
    from protocol.nearby import Nearby

    if not (wanted and is_secured(provided.choice)):
        yield lambda: None
        return
    address = replace(parse_address(provided.public), run=run.id, fingerprint=fingerprint(run.root))
    asks = read_settings(run.directory.path).mode != "open"
    what = Nearby(address, run.spec.environment.id, asks)
    async with announcing(what, provided.choice.bind, console.say) as begin:
        yield begin


def _way(run: Run, provided: Provided, asked: Asked) -> Way:
    """How the host's own workers get into the run."""
    where = run.directory.path
    token = own_token(where, read_settings(where)) if is_secured(asked.choice) else ""
    root = fingerprint(run.root)
    way = way_in(provided.for_workers, run.id, root, token, asked.proxy)
    return replace(way, allowed=asked.modules)
