"""A run that we are about to lead: its key and directory, where it is, and what to say of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.admission import POOL_TOKEN, read_settings
from coordinator.directory import DirectoryError, RunDirectory, keep_spec, known_spec
from coordinator.pool.confidence import USUAL, margin
from coordinator.pool.events import CentreJudged
from coordinator.progress import Outcome
from protocol.address import join_line
from protocol.command import hangups
from protocol.errors import ShoalError
from protocol.figures import shown
from protocol.identity import (
    Identity,
    IdentityError,
    fingerprint,
    new_secret,
    run_id,
    worker_id,
    worker_of,
)
from protocol.spec import RunSpec

if TYPE_CHECKING:
    from coordinator.log import LogReader, UpdateLog
    from coordinator.peers import Leader
    from coordinator.recovery import Recovered
    from coordinator.server import Server
    from protocol.authority import Authority
    from protocol.state import State


class EndedError(ShoalError):
    """A run that is over, so that nobody can go on with it."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is about to be led: what it is, our key, its place on disk."""

    id: str
    spec: RunSpec
    identity: Identity
    directory: RunDirectory
    resumed: bool
    """whether it was led before, as its directory has it"""
    reuses_key: bool
    """whether others may lead, or have led, a run of this name"""
    root: bytes
    """the public key that its name was made from"""
    delegates: tuple[bytes, ...] | None = None
    """digests of the keys that may take over, in their order; None: as before"""
    keep_returns: bool = False
    priority: float = 1.0
    """among the runs of workers that serve several, see `messages.Here`"""


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Where a run is: its open log, who may lead it, the number of its last epoch."""

    log: UpdateLog
    authority: Authority
    epoch: int
    recovered: Recovered


def prepare(
    spec: RunSpec,
    where: Path | None,
    key: Path | None = None,
    delegates: tuple[bytes, ...] | None = None,
    keep_returns: bool = False,
    first: State | None = None,
) -> Run:
    """Make a new run's key and directory. Raises `ShoalError` where the directory is taken.

    `first` is the version 0 that the spec names where its policy's initialisation is `given`. Each
    run has a key of its own unless `key` names one, so no two runs share a name on a broker.
    """
    identity = Identity.load(key) if key is not None else Identity.generate()
    run = run_id(spec.name, identity.public_key)
    directory = RunDirectory.create(where if where is not None else Path("runs") / run, run)
    identity.save(directory.key_path)
    directory.keep_secret(new_secret())
    if first is not None:
        directory.snapshots.freeze(first)
    directory.write_spec(spec)  # the last: whoever finds it can go on
    return Run(
        id=run,
        spec=spec,
        identity=identity,
        directory=directory,
        resumed=False,
        reuses_key=key is not None,
        root=identity.public_key,
        delegates=delegates,
        keep_returns=keep_returns,
    )


def resume(
    where: Path,
    key: Path | None = None,
    delegates: tuple[bytes, ...] | None = None,
    keep_returns: bool = False,
) -> Run:
    """The run in a directory, to go on with it. Raises `ShoalError` where that can't be.

    `key`: another key file than the run's own, such as one that succeeds it.
    """
    from coordinator import log as update_log
    from coordinator.log import LogReader

    directory = RunDirectory.open(where)
    try:
        begun = directory.has_log
        if not begun and not directory.has_spec:
            raise DirectoryError(
                f"the run in {where} was never begun, its host died too early: remove the "
                "directory, and begin again"
            )
        identity = Identity.load(key) if key is not None else _run_key(directory)
        root = identity.public_key
        if begun:
            with LogReader(directory.log_path) as log:
                refuse_ended(log, where)
                root = log.noted_octets(update_log.ROOT) or root
                spec = known_spec(where, log)
        else:
            spec = directory.read_spec()
        if not directory.has_spec:
            directory.write_spec(spec)
        return Run(
            id=directory.run,
            spec=spec,
            identity=identity,
            directory=directory,
            resumed=True,
            reuses_key=True,
            root=root,
            delegates=delegates,
            keep_returns=keep_returns,
        )
    except BaseException:
        directory.close()
        raise


def load(run: Run, tell: Callable[[str], None]) -> Course:
    """Open the log of the run, and get its state from it; may take a while.

    `tell` gets lines for people. Raises `ShoalError` where the run can't be led from there.
    """
    # Compiled code is loaded here: whoever prepares a run may start others first.
    from coordinator import recovery
    from coordinator.log import UpdateLog

    directory = run.directory
    if not directory.has_secret:
        tell(f"{directory.path} has lost the run's secret: work in progress is evaluated anew")
        directory.keep_secret(new_secret())
    log = UpdateLog(directory.log_path, run.id, keep_returns=run.keep_returns)
    try:
        authority = recovery.read_authority(log, run.id, run.root)
        if run.resumed:
            recovered = recovery.recover(run.spec, directory, log, authority, tell)
        else:
            recovered = recovery.fresh(run.spec, directory.snapshots)
        return Course(log, authority, recovery.last_epoch(log, authority), recovered)
    except BaseException:
        log.close()
        raise


def join_command(run: Run, broker_url: str, asks: bool = False) -> str:
    """What volunteers type to take part, where the broker is at that URL for them.

    asks: whether it lets in only whom the host knows.
    """
    line = join_line(broker_url, run.id, fingerprint(run.root))
    where = run.directory.path
    match read_settings(where).mode if asks else "open":
        case "list":
            return f"SHOAL_INVITE=TOKEN {line}  (the token is in {where / POOL_TOKEN})"
        case "invite":
            return f"SHOAL_INVITE=TOKEN {line}  (each with a token of shoal invite {where})"
    return line


def leaders(run: Run, course: Course) -> frozenset[str]:
    """The worker names of all keys that may lead the run."""
    named = run.delegates
    if named is None:
        named = course.authority.delegates(course.epoch + 1)
    return frozenset((run.identity.worker, worker_id(run.root), *map(worker_of, named)))


def enter(run: Run, course: Course, epoch: int) -> Leader:
    """We lead that epoch: kept in the log before anybody hears of it.

    Delegates that the host named anew hold from it on. Raises `ShoalError` where our key may not
    lead.
    """
    from coordinator import log as update_log
    from coordinator.peers import Leader
    from coordinator.recovery import keep_authority
    from protocol.authority import RUN_KEY

    authority, key = course.authority, run.identity.public_key
    named = run.delegates
    if named is not None and named != authority.delegates(epoch):
        if authority.rank(epoch, key) != RUN_KEY:
            raise ShoalError(
                f"--delegate: the key {fingerprint(key)} is not the run key of {run.id}, which "
                "alone appoints delegates: give it with --key, or leave the delegates as they are"
            )
        authority = authority.amended(run.identity, epoch, key, named)
    rank = authority.rank(epoch, key)
    if rank is None:
        raise ShoalError(
            f"the key {fingerprint(key)} may not lead the run {run.id}: it is neither its run key "
            "nor a delegate; give one that is with --key"
        )
    keep_spec(course.log, run.spec)
    course.log.note(update_log.EPOCH, epoch)
    course.log.note(update_log.STATE, "running")
    if course.log.noted(update_log.ROOT) is None or authority is not course.authority:
        keep_authority(course.log, authority)
    return Leader(run.id, run.identity, epoch, authority, rank)


def resumption(course: Course, leader: Leader) -> str:
    """One line on where a run goes on."""
    recovered = course.recovered
    return (
        f"resumed run {leader.run} at version {recovered.version} "
        f"(params_hash {recovered.versions.digest.hex()}), epoch {leader.epoch}, "
        f"{len(recovered.kept)} results kept"
    )


def heed_signals(server: Server | None) -> None:
    """From now on SIGINT ends that server's run, SIGTERM pauses it, and so does the end of the
    terminal; None: they do what they did before."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, *hangups()):
        if server is None:
            loop.remove_signal_handler(number)
            continue
        handle, word = server.pause, "paused"
        if number == signal.SIGINT:
            handle, word = server.stop, "stopped"
        loop.add_signal_handler(number, handle, f"{word} by the host ({number.name})")


def summary(outcome: Outcome, seconds: float) -> dict[str, object]:
    """The figures of a run that has ended, for `--json`."""
    centre = outcome.centre
    return {
        "solved": outcome.reached,
        "version": outcome.version,
        "centre_return": None if centre is None else centre.mean,
        "centre_deviation": None if centre is None else centre.deviation,
        "centre_interval": None if centre is None else interval(centre),
        "centre_episodes": None if centre is None else centre.episodes,
        "updates": outcome.updates,
        "episodes": outcome.progress.episodes,
        "env_steps": outcome.progress.steps,
        "seconds": round(seconds, 3),
        "wire_bytes_per_episode": round(outcome.progress.wire_bytes_per_episode, 3),
        "params_hash": outcome.params_hash,
    }


def verdict(outcome: Outcome) -> str:
    """One sentence on how the run ended, or that it waits."""
    if outcome.state == "paused":
        return (
            f"{outcome.reason} at version {outcome.version} (params_hash {outcome.params_hash}); "
            "workers wait for it"
        )
    centre = outcome.centre
    judged = "not evaluated"
    if centre is not None:
        judged = f"{shown(centre.mean)} over {centre.episodes} episodes"
        if between := interval(centre):
            low, high = between
            judged += (
                f" (deviation {shown(centre.deviation)}, "
                f"{USUAL:.0%} interval {shown(low)} to {shown(high)})"
            )
    word = "solved" if outcome.reached else "ended"
    return (
        f"{word}: {outcome.reason}; returns version {outcome.version} "
        f"(params_hash {outcome.params_hash}), centre {judged}"
    )


def interval(centre: CentreJudged) -> tuple[float, float] | None:
    """The usual confidence interval of the centre's mean return; None of a single return."""
    if centre.episodes < 2:
        return None
    half = margin(centre.deviation, centre.episodes)
    return centre.mean - half, centre.mean + half


def _run_key(directory: RunDirectory) -> Identity:
    """The key that the run has in its directory. Raises `DirectoryError`."""
    try:
        return Identity.load(directory.key_path)
    except IdentityError:
        raise DirectoryError(
            f"{directory.key_path}, the key of the run, is gone or can't be read: restore it "
            f"(shoal key restore {directory.path} FILE), or give that of a delegate with --key"
        ) from None


def refuse_ended(log: LogReader, where: Path) -> None:
    """Raises `EndedError` where the run in that directory is over."""
    from coordinator import log as update_log

    reason = log.noted(update_log.ENDED)
    if isinstance(reason, str):
        raise EndedError(
            f"the run in {where} has ended at version {log.version}: {reason}; a new one can begin "
            f"at any of its versions: shoal fork {where} --version {log.version}"
        )
