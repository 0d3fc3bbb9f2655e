"""Trains in this process: a run from its spec to its result, on workers of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from coordinator import host
from coordinator.broker.provide import is_external
from coordinator.directory import BrokerChoice
from coordinator.host import Run
from coordinator.hosted import Asked, lead_as_asked
from coordinator.local import MOST_WORKERS, wanted
from coordinator.memory import collector_as_before
from coordinator.training.overrides import Source, allow, composed, path_of
from coordinator.training.results import Loader, OnUpdate, TrainingResult
from coordinator.training.showing import Status, suitable_stream
from coordinator.training.watcher import Watcher
from protocol import spec as run_spec
from protocol.cores import usable_cores
from protocol.errors import ShoalError
from protocol.spec import RunSpec, SpecError

if TYPE_CHECKING:
    from coordinator.progress import Outcome

Workers = int | Literal["auto"]
MOST_TOLD = 3
"""Fields in which a run differs from what is wanted that are told of."""


@dataclass(frozen=True)
class Wishes:
    """What a program wants trained, and how; see `shoal.train`."""

    source: Source | None
    overrides: Mapping[str, Any]
    workers: Workers
    broker: str
    directory: str | os.PathLike[str] | None
    resume: bool
    on_update: OnUpdate | None
    quiet: bool
    environments: Sequence[str]


async def train(wishes: Wishes, load: Loader) -> TrainingResult:
    """See a training through. Who cancels it pauses the run: it can be resumed.

    Raises `ShoalError` where it can't begin or go on, and what `on_update` raises.
    """
    _require_usable(wishes)
    workers, choice = _workers(wishes.workers), BrokerChoice(wishes.broker, port=0)
    if not (workers or is_external(choice)):
        raise ShoalError(
            f"workers=0 with broker={wishes.broker!r:.60}, which nobody else can join: give some, "
            "or the URL of a broker that volunteers reach"
        )
    run = await _begun(wishes)
    where = run.directory.path
    modules = tuple(wishes.environments)
    status = Status(None if wishes.quiet else suitable_stream())
    try:
        with collector_as_before():
            watcher = Watcher(run.id, wishes.on_update, status, is_external(choice))
            asked = Asked(choice, workers=workers, modules=modules, on_lead=lambda server: None)
            outcome = await _see_through(run, asked, watcher)
    except BaseException as error:
        run.directory.discard()
        if not (where / "run").exists():
            _clear(where)
        elif isinstance(error, asyncio.CancelledError):
            status.say(f"paused; go on with shoal.train(directory={str(where)!r}, resume=True)")
        raise
    run.directory.close()
    return TrainingResult.of(run.id, where, outcome, watcher.seconds, load, modules)


def begin(wishes: Wishes) -> Run:
    """The run that is wanted, new or, to be resumed, that in its directory; may take seconds.

    Raises `ShoalError` where it can't be had, or is another.
    """
    where = None if wishes.directory is None else path_of("directory", wishes.directory)
    source, overrides, modules = wishes.source, wishes.overrides, wishes.environments
    if wishes.resume and where is None:
        raise ShoalError("resume=True goes on with a run: give its directory=...")
    if wishes.resume and where is not None and (where / "run").exists():
        allow(modules)
        run = host.resume(where)
        try:
            if source is not None or overrides:
                want = composed(run.spec if source is None else source, overrides, modules)
                _require_same(run, want.spec)
        except BaseException:
            run.directory.close()
            raise
        return run
    if source is None and "objective" not in overrides:
        raise ShoalError(
            f"{where} holds no run to go on with: give a spec to begin one with"
            if wishes.resume
            else "what should be trained? Give an environment's id, a run file or an objective=..."
        )
    if where is not None and (where / "run").exists():
        raise ShoalError(
            f"{where} already holds a run: go on with it (resume=True), give another directory, "
            "or remove it"
        )
    wanted = composed(source, overrides, modules)
    return host.prepare(wanted.spec, where, first=wanted.first)


def _clear(where: Path) -> None:
    """Take away what the workers left of a run that nobody heard of, so that a next try can begin
    there."""
    shutil.rmtree(where / "logs", ignore_errors=True)
    with contextlib.suppress(OSError):  # somebody's files are in it
        where.rmdir()


async def _begun(wishes: Wishes) -> Run:
    """`begin`, in a thread; who does not wait for it leaves nothing behind."""
    beginning = asyncio.ensure_future(asyncio.to_thread(begin, wishes))
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        await asyncio.wait({beginning})
        if beginning.exception() is None:
            beginning.result().directory.discard()
        raise


async def _see_through(run: Run, asked: Asked, watcher: Watcher) -> Outcome:
    """How the run ended; paused where the program, or what it needs, failed."""
    leading = asyncio.ensure_future(lead_as_asked(run, asked, watcher))
    try:
        either: set[asyncio.Future[Any]] = {leading, watcher.stranded}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not leading.done() and not watcher.pause("paused: no worker is left"):
            leading.cancel()
        await asyncio.wait({leading})
    except asyncio.CancelledError:
        if not watcher.pause("paused by the program that trains"):
            leading.cancel()
        await asyncio.wait({leading})
        raise
    finally:
        leading.cancel()  # who is cancelled once more does not wait for the end
        await asyncio.gather(leading, return_exceptions=True)
        await watcher.end()
    if watcher.failure is not None:
        raise watcher.failure
    stranded = watcher.stranded.done()
    if stranded and (leading.cancelled() or leading.result().state == "paused"):
        raise watcher.stranded.result()
    return leading.result()


def _require_usable(wishes: Wishes) -> None:
    """Raises `ShoalError` for what is of no use whatever the run is."""
    if inspect.iscoroutinefunction(wishes.on_update):
        raise ShoalError("on_update is a coroutine function, which nobody awaits: give a plain one")
    if wishes.on_update is not None and not callable(wishes.on_update):
        raise ShoalError(f"on_update={wishes.on_update!r:.60}: must be a function")
    if not isinstance(wishes.broker, str):
        raise ShoalError(
            f"broker={wishes.broker!r:.60}: must be 'embedded', 'mosquitto' or the URL of one"
        )


def _workers(given: Workers) -> int:
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= MOST_WORKERS:
        return given
    if given == "auto":
        return wanted("auto", usable_cores())
    raise ShoalError(
        f"workers={given!r:.60}: must be 'auto', all cores but one, or a number from 0 to "
        f"{MOST_WORKERS}"
    )


def _require_same(run: Run, wanted: RunSpec) -> None:
    """Raises `SpecError` where the run is another than is wanted."""
    ours, theirs = (_flat(run_spec.to_plain(spec)) for spec in (run.spec, wanted))
    differing = [f for f in {**ours, **theirs} if ours.get(f) != theirs.get(f)]
    if not differing:
        return
    told = [f"{f} is {ours.get(f)!r:.60}, not {theirs.get(f)!r:.60}" for f in differing[:MOST_TOLD]]
    more = f", and {len(differing) - MOST_TOLD} more" if len(differing) > MOST_TOLD else ""
    where = run.directory.path
    raise SpecError(
        f"the run in {where} is another: {', '.join(told)}{more}; a run's spec never changes: "
        f"leave spec and settings out, or begin a new one with shoal fork {where} --set FIELD=VALUE"
    )


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Values by dotted name."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value
    return found
