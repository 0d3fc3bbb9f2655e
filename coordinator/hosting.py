"""Leads a run while it is ours to lead, and follows it while somebody else does."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from coordinator import log as update_log
from coordinator.directory import BrokerChoice, RunDirectory, keep_spec
from coordinator.host import Course, Run, enter, resumption
from coordinator.leading import LISTEN_SECONDS, next_epoch
from coordinator.log import UpdateLog
from coordinator.progress import Outcome, Progress
from coordinator.recorder import write_policy
from coordinator.recovery import fresh, last_epoch, read_authority, recover, remembered
from coordinator.server import Behind, Server, SteppedAside
from coordinator.standby import Standby
from coordinator.standby.ledger import Ledger
from protocol.address import Address
from protocol.authority import Announcement, Authority
from protocol.errors import ShoalError
from protocol.identity import Identity, fingerprint, new_secret
from protocol.messages import Epoch
from protocol.spec import RunSpec

PATIENCE = 5.0
"""Seconds without a beat after which the first delegate steps in; there is one every 2 s."""
RETAINED_WITHIN = 0.5
"""Seconds in which a broker has sent what it retains."""

Role = Literal["lead", "resume", "take over", "gather", "follow"]
"""What to do next: lead at once; lead unless somebody else does; lead whoever else does; lead once
peers gave us what we lack; follow until it is our turn."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told what happens: lines for people, the progress of a run that we lead or follow,
    each line of metrics, and that volunteers can join. `on_lead` gets who leads when we begin to,
    to look at the run, to order something and to end it by a signal, and None when we cease to."""

    on_event: Callable[[str], None]
    on_update: Callable[[Progress], None] = lambda progress: None
    on_follow: Callable[[Standby], None] = lambda standby: None
    on_ready: Callable[[], None] = lambda: None
    on_metrics: Callable[[Mapping[str, Any]], None] = lambda line: None
    on_lead: Callable[[Server | None], None] = lambda server: None


def both(first: Listeners, second: Listeners) -> Listeners:
    """Listeners of which the first hear everything first."""

    def told(name: str) -> Callable[..., None]:
        tell, tell_too = getattr(first, name), getattr(second, name)

        def tell_both(*what: Any) -> None:
            tell(*what)
            tell_too(*what)

        return tell_both

    return Listeners(*(told(field.name) for field in dataclasses.fields(Listeners)))


async def lead(
    run: Run,
    course: Course,
    address: Address,
    listeners: Listeners,
    *,
    owns_broker: bool,
    take_over: bool = False,
    patience: float = PATIENCE,
) -> Outcome:
    """Lead a run, new or resumed, unless somebody else leads it.

    Over a broker that we own (`owns_broker`) nobody else can. Whoever leads a run that we resume is
    followed; with `take_over` it has to step aside. Raises `ShoalError` as `host`, and where
    somebody leads a run of this name already that we want to begin.
    """
    role: Role = "lead"
    if owns_broker and not take_over:
        return await host(run, course, address, role, listeners, patience)
    if run.resumed:
        role = "take over" if take_over else "resume"
    elif run.reuses_key:
        epoch = await next_epoch(address, course.authority, run.identity)
        course = dataclasses.replace(course, epoch=epoch - 1)
    return await host(run, course, address, role, listeners, patience)


async def host(
    run: Run,
    course: Course,
    address: Address,
    role: Role,
    listeners: Listeners,
    patience: float = PATIENCE,
) -> Outcome:
    """See a run through to its end, or until it is paused: led by us or by somebody else.

    Raises `ShoalError` where we can neither lead nor follow it.
    """
    say = listeners.on_event
    while True:
        if role != "lead":
            ledger = Ledger(run.spec, run.directory, course.log, course.authority, course.recovered)
            standby = Standby(
                run.id,
                fingerprint(run.root),
                run.identity,
                address,
                patience,
                ledger,
                say=say,
                on_progress=listeners.on_follow,
            )
            async with standby:
                ended = await _stand(standby, role, run, course)
            if ended is not None:
                return await asyncio.to_thread(_outcome, ledger, ended)
            course = await asyncio.to_thread(_course, standby, ledger, say)
        try:
            return await _lead(run, course, address, listeners)
        except SteppedAside as error:
            say(str(error))
            role = "follow"
        except Behind as error:
            say(f"{error}: asking them")
            role = "gather"
        run = dataclasses.replace(run, resumed=True, delegates=None)
        course = await asyncio.to_thread(_again, run, course, say)


async def stand_by(
    run: str,
    root_fingerprint: str,
    identity: Identity,
    where: Path,
    address: Address,
    listeners: Listeners,
    patience: float = PATIENCE,
) -> Outcome:
    """Follow a run that somebody else leads, in a directory of our own, and lead it when it is our
    turn; see `host`."""
    directories: list[RunDirectory] = []
    say = listeners.on_event

    async def open_ledger(spec: RunSpec, authority: Authority) -> Ledger:
        directory = _directory(where, run)
        directories.append(directory)
        # Whoever goes on from here goes on where the workers are.
        directory.remember(BrokerChoice(address.broker_with_credentials))
        given = spec.policy.initialisation == "given"
        if given and 0 not in directory.snapshots.versions():
            data = await standby.fetch_beginning(spec)
            await asyncio.to_thread(directory.snapshots.keep, 0, data)
        return await asyncio.to_thread(_open_ledger, directory, spec, authority, say)

    standby = Standby(
        run,
        root_fingerprint,
        identity,
        address,
        patience,
        open_ledger,
        say=say,
        on_progress=listeners.on_follow,
    )
    try:
        async with standby:
            await standby.contact()
            ended = await standby.follow()
        ledger = standby.ledger
        assert ledger is not None
        if ended is not None:
            return await asyncio.to_thread(_outcome, ledger, ended)
        taken = Run(
            id=run,
            spec=ledger.spec,
            identity=identity,
            directory=ledger.directory,
            resumed=True,
            reuses_key=True,
            root=ledger.authority.root,
        )
        course = await asyncio.to_thread(_course, standby, ledger, say)
        return await host(taken, course, address, "lead", listeners, patience)
    finally:
        if standby.ledger is not None:
            standby.ledger.log.close()
        for directory in directories:
            directory.close()


async def _stand(standby: Standby, role: Role, run: Run, course: Course) -> Epoch | None:
    """Do what the role says, without leading; None: we have to lead now. Else how the run ended."""
    await standby.contact()
    if role != "follow":
        await standby.until_led(RETAINED_WITHIN)
        if standby.led_by is not None and standby.led_by.epoch.state == "finished":
            return await standby.follow()  # to its end
        if role == "resume" and _is_ours(standby.led_by, run, course):
            return None
        if role == "take over" and await standby.listen(LISTEN_SECONDS):
            # What only the leader has would be set aside once it steps aside.
            await standby.draw_level()
        # Whoever leads an earlier epoch than our last has missed it, and steps aside for us.
        heeds = role == "resume" and not standby.outranks(course.epoch)
        lives = heeds and await standby.listen(LISTEN_SECONDS)
        gathered = not lives and await standby.gather()
        if role == "take over" or (gathered and standby.can_go_on()):
            return None
        if not gathered:
            standby.tell_who_leads()
    return await standby.follow()


def _is_ours(led_by: Announcement | None, run: Run, course: Course) -> bool:
    """Whether the last epoch that was announced is the last that we led: nobody came after us."""
    return (
        led_by is not None
        and led_by.leader == run.identity.public_key
        and led_by.epoch.number == course.epoch
    )


async def _lead(run: Run, course: Course, address: Address, listeners: Listeners) -> Outcome:
    """Lead the run in its next epoch."""
    leader = await asyncio.to_thread(enter, run, course, course.epoch + 1)
    if run.resumed:
        listeners.on_event(resumption(course, leader))
    server = Server(
        run.spec,
        leader,
        run.directory,
        course.log,
        course.recovered,
        address,
        priority=run.priority,
        on_event=listeners.on_event,
        on_update=listeners.on_update,
        on_ready=listeners.on_ready,
        on_metrics=listeners.on_metrics,
    )
    listeners.on_lead(server)
    try:
        return await server.run()
    finally:
        listeners.on_lead(None)


def _again(run: Run, course: Course, tell: Callable[[str], None]) -> Course:
    """The course of a run that we have just led: its versions are in memory still."""
    log, versions = course.log, course.recovered.versions
    authority = read_authority(log, run.id, run.root)
    if versions.current.version == log.version:
        recovered = remembered(run.spec, run.directory, log, versions, tell)
    else:  # an update was kept that was not published any more
        recovered = recover(run.spec, run.directory, log, authority, tell)
    return Course(log, authority, last_epoch(log, authority), recovered)


def _course(standby: Standby, ledger: Ledger, tell: Callable[[str], None]) -> Course:
    """The course of a run that is ours to lead now."""
    if not ledger.directory.has_secret:
        tell("nobody entrusted us with the run's secret: work in progress is evaluated anew")
        ledger.directory.keep_secret(new_secret())
    recovered = ledger.remember()
    recovered = dataclasses.replace(recovered, gathered=standby.gathered)
    return Course(ledger.log, ledger.authority, standby.next_epoch - 1, recovered)


def _outcome(ledger: Ledger, ended: Epoch) -> Outcome:
    """How a run ended that somebody else led; our directory tells it too."""
    versions = ledger.recovered.versions
    try:
        returned = versions.get(ended.version)
    except KeyError:  # too long ago, or we did not get that far
        returned = versions.get(versions.current.version)
    write_policy(ledger.spec, ledger.directory, returned)
    ledger.learn_judged(ended.judged)
    ledger.log.note(update_log.STATE, ended.state)
    if ended.state == "finished":
        ledger.log.note(update_log.ENDED, ended.reason)
    recovered = ledger.remember()
    centre = recovered.versions.judged(ended.version)
    return Outcome(
        state=ended.state,
        reached=centre is not None and centre.reached,
        reason=ended.reason,
        version=ended.version,
        updates=ledger.version,
        centre=centre,
        params_hash=ended.digest.hex(),
        progress=recovered.progress,
    )


def _directory(where: Path, run: str) -> RunDirectory:
    """The directory of a standby, made or opened again. Raises `ShoalError`."""
    if not (where / "run").exists():
        return RunDirectory.create(where, run)
    directory = RunDirectory.open(where)
    if directory.run != run:
        directory.close()
        raise ShoalError(
            f"{where} holds the run {directory.run}, not {run}: give another --run-dir"
        )
    return directory


def _open_ledger(
    directory: RunDirectory, spec: RunSpec, authority: Authority, tell: Callable[[str], None]
) -> Ledger:
    directory.write_spec(spec)
    log = UpdateLog(directory.log_path, directory.run, go_on="start the standby again")
    try:
        keep_spec(log, spec)
        if log.version > 0:
            recovered = recover(spec, directory, log, authority, tell)
        else:
            recovered = fresh(spec, directory.snapshots)
            directory.snapshots.freeze(recovered.versions.current)
        return Ledger(spec, directory, log, authority, recovered)
    except BaseException:
        log.close()
        raise
