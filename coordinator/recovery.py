"""What a coordinator goes on from: version 0, or where the log in the run directory ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from coordinator import log as update_log
from coordinator.directory import RunDirectory
from coordinator.log import DamagedError, EvaluationRow, LogReader, UpdateLog, UpdateRow
from coordinator.metrics_file import latest_update
from coordinator.pool import acceptance
from coordinator.pool.acceptance import BEGINNING, Standing
from coordinator.pool.confidence import lowest
from coordinator.pool.events import Arrived, CentreJudged, SessionId
from coordinator.pool.past import used
from coordinator.progress import Progress
from coordinator.results import judge
from coordinator.versions import Versions
from protocol import amendments, messages, replay
from protocol.authority import Authority
from protocol.envelope import peek_signed
from protocol.errors import ShoalError
from protocol.frozen import Frozen, FrozenError, Snapshots
from protocol.messages import Result, ResultName, Update
from protocol.packing import WireError, pack, unpack
from protocol.replay import MismatchError
from protocol.spec import RunSpec
from protocol.state import Arithmetic, State

LOOKED_BACK = 64
"""Updates that are read at once on the way back."""
TELL_EVERY = 2.0
"""Seconds between two lines about a replay that takes long."""


class RecoveryError(ShoalError):
    """A run that can't go on: a part of what it was made of is lost."""


class Kept(NamedTuple):
    """A result that we answered for, as it came and as the pool takes it."""

    message: Result
    arrived: Arrived


@dataclass(frozen=True, slots=True, eq=False)
class Recovered:
    """How far a run is, with all that its coordinator has to remember.

    Attributes:
        versions: the state, and what is still needed of the last versions.
        progress: what counted so far.
        seconds: that the run was led for.
        kept: results that were accepted, and are in no update yet.
        unjudged: versions whose centre is due and not judged, though workers still have them; None:
            the current one, where it is due.
        untold: evaluations that no update tells of yet.
        used: (first, count) of the directions that count no more, of batches whose other ones may
            still count late.
        standing: of the candidate and what is accepted, where the strategy needs acceptance.
        gathered: whether peers were asked for what the log may have lost; who claims then to be
            further is not believed.
    """

    versions: Versions
    progress: Progress = field(default_factory=Progress)
    seconds: float = 0.0
    kept: tuple[Kept, ...] = ()
    unjudged: tuple[int, ...] | None = None
    untold: tuple[CentreJudged, ...] = ()
    used: tuple[tuple[int, int], ...] = ()
    standing: Standing = BEGINNING
    gathered: bool = True

    @property
    def version(self) -> int:
        """The version that the run has reached."""
        return self.versions.current.version


def fresh(spec: RunSpec, snapshots: Snapshots) -> Recovered:
    """A run that begins. Raises `RecoveryError` where its version 0 is not there."""
    state = first_state(spec, replay.arithmetic(spec), snapshots)
    return Recovered(Versions(state, spec.versions_kept))


def recover(
    spec: RunSpec,
    directory: RunDirectory,
    log: LogReader,
    authority: Authority,
    tell: Callable[[str], None] = lambda line: None,
) -> Recovered:
    """Where the run in this directory was: the state and the last versions by replay, the rest as
    the log has it. `tell` gets lines about what takes long or is left out.

    Raises `LogError` with the version where the log is damaged, and `RecoveryError`.
    """
    rules = replay.arithmetic(spec)
    reached, kept = log.version, spec.versions_kept
    most = max(0, reached - kept)
    first = newest_state(spec, rules, log, authority, directory.snapshots, most, tell)
    versions = Versions(first, kept)
    said: set[int] = set()
    told = time.monotonic()
    for state, update in replayed(spec, rules, log, authority, first, reached):
        versions.add(state, update.digest_after)
        said.update(centre.version for centre in update.judged)
        if time.monotonic() - told >= TELL_EVERY:
            told = time.monotonic()
            done, todo = state.version - first.version, reached - first.version
            tell(f"replaying the log: {done:,} of {todo:,} updates since version {first.version:,}")
    if versions.current.version != reached:
        raise _damaged(log, versions.current.version, "it is gone")
    now = amendments.in_force(spec, versions.current.amended)
    judged = [_judged(now, row) for row in log.evaluations()]
    return replace(
        remembered(spec, directory, log, versions, tell),
        untold=tuple(c for c in judged if c.version >= first.version and c.version not in said),
    )


def remembered(
    spec: RunSpec,
    directory: RunDirectory,
    log: LogReader,
    versions: Versions,
    tell: Callable[[str], None] = lambda line: None,
) -> Recovered:
    """What `recover` finds, where the state and the last versions are in memory; that every update
    tells of its evaluations is taken for granted.

    Raises `LogError`.
    """
    evaluations = log.evaluations()
    now = amendments.in_force(spec, versions.current.amended)
    judged = [_judged(now, row) for row in evaluations]
    for centre in judged:
        versions.judge(centre)
    kept = _kept(spec, directory, log, versions, tell)
    return Recovered(
        versions=versions,
        progress=_progress(versions.current, judged, directory),
        seconds=_seconds(log, evaluations),
        kept=kept,
        unjudged=_unjudged(spec, versions.current.version, judged),
        used=_used(spec, log, kept),
        standing=_standing(spec, log, versions.current, judged),
        gathered=False,
    )


def read_authority(log: LogReader, run: str, root: bytes) -> Authority:
    """Who may lead the run, as the log has it; `root`, the run key, where it does not say.

    Raises `RecoveryError`.
    """
    noted, charters = log.noted(update_log.ROOT), log.noted(update_log.CHARTERS)
    try:
        key = bytes.fromhex(noted) if isinstance(noted, str) else root
        chain = unpack(charters) if isinstance(charters, bytes) else []
        return Authority.read(run, key, chain)
    except (WireError, ValueError, TypeError) as error:
        raise RecoveryError(
            f"{log.path} does not tell who may lead the run {run} ({error}): "
            "restore the directory from a backup"
        ) from None


def keep_authority(log: UpdateLog, authority: Authority) -> None:
    """What `read_authority` reads. Raises `LogError`."""
    # The root last: where the log names one, it has the charters too.
    log.note(update_log.CHARTERS, pack(list(authority.charters)))
    log.note(update_log.ROOT, authority.root.hex())


def last_epoch(log: LogReader, authority: Authority) -> int:
    """The number of the last epoch that the log knows of, 0 for none. Raises `LogError`."""
    noted = log.noted(update_log.EPOCH)
    number = noted if isinstance(noted, int) else 0
    if log.version > log.base:
        number = max(number, read_update(log, authority, log.version - 1).epoch)
    return number


def first_state(spec: RunSpec, rules: Arithmetic, snapshots: Snapshots) -> State:
    """Version 0: as the spec defines it, or the snapshot that it names.

    Raises `RecoveryError`.
    """
    if spec.policy.initialisation != "given":
        return replay.initial_state(spec)
    expected = spec.policy.initial_digest
    try:
        frozen = snapshots.open(0)
        if frozen.digest.hex() != expected:
            raise WireError(f"its digest is {frozen.digest.hex()}, the spec says {expected}")
        return _thawed(spec, rules, frozen)
    except (FrozenError, WireError) as error:
        raise RecoveryError(
            f"version 0 of the run is not in {snapshots.directory}: {error}; "
            "fork the run again from where it came"
        ) from None


def newest_state(
    spec: RunSpec,
    rules: Arithmetic,
    log: LogReader,
    authority: Authority,
    snapshots: Snapshots,
    most: int,
    tell: Callable[[str], None],
) -> State:
    """The newest state up to version `most` that needs no replay: a snapshot that a signed update
    of the log proves, or version 0. `tell` gets a line about each snapshot that is not proved.

    Raises `LogError`, and `RecoveryError` where there is none.
    """
    base = log.base
    for version in reversed(snapshots.versions()):
        if base <= version <= most and version > 0:
            try:
                frozen = snapshots.open(version)
                if frozen.digest != _proof(log, authority, version):
                    raise WireError("the log proves another state")
                return _thawed(spec, rules, frozen)
            except (FrozenError, WireError) as error:
                tell(f"the snapshot of version {version} is left out: {error}")
    if base > 0:
        raise RecoveryError(
            f"{log.path} begins at version {base}, and no snapshot in {snapshots.directory} leads "
            "into it: restore the directory from a backup"
        )
    return first_state(spec, rules, snapshots)


def _thawed(spec: RunSpec, rules: Arithmetic, frozen: Frozen) -> State:
    """The state in a snapshot. Raises `FrozenError`, and `WireError` for a state of no such run."""
    state = frozen.thaw(rules)
    amendments.check(spec, state.version, state.amended)
    return state


def replayed(
    spec: RunSpec,
    rules: Arithmetic,
    log: LogReader,
    authority: Authority,
    before: State,
    end: int,
) -> Iterator[tuple[State, Update]]:
    """The states after `before` up to version `end`, each with the update that led to it; every
    signature and hash is checked.

    Raises `LogError` with the version that does not follow.
    """
    state = before
    for row in log.rows(before.version, end):
        update = _opened(log, authority, row.version, row.payload)
        try:
            state = replay.follow(spec, rules, state, update)
        except (MismatchError, WireError) as error:
            raise _damaged(log, row.version, str(error)) from None
        yield state, update


def read_update(log: LogReader, authority: Authority, version: int) -> Update:
    """The update version -> version + 1, its signature checked. Raises `LogError`."""
    for row in log.rows(version, version + 1):
        return _opened(log, authority, version, row.payload)
    raise _damaged(log, version, "it is gone")


def _proof(log: LogReader, authority: Authority, version: int) -> bytes:
    """The digest of the full state of a version, as far as the log has it."""
    if version == log.base:
        return log.noted_octets(update_log.BASE_DIGEST)
    return read_update(log, authority, version - 1).state_digest


def _opened(log: LogReader, authority: Authority, version: int, payload: bytes) -> Update:
    try:
        update = authority.open_update(payload)
        if update.version != version:
            raise WireError(f"it is update {update.version}")
    except WireError as error:
        raise _damaged(log, version, str(error)) from None
    return update


def _damaged(log: LogReader, version: int, reason: str) -> DamagedError:
    return DamagedError(
        f"update {version} in {log.path} is damaged ({reason}): what comes before it is good, "
        f"and `shoal repair {log.path.parent}` keeps that",
        version,
    )


def _judged(spec: RunSpec, row: EvaluationRow) -> CentreJudged:
    stop = spec.stop
    sure = lowest(row.mean, row.deviation, row.episodes, stop.confidence)
    return CentreJudged(
        version=row.version,
        episodes=row.episodes,
        mean=row.mean,
        deviation=row.deviation,
        steps=row.steps,
        full=row.full,
        reached=row.full and stop.target is not None and sure >= stop.target,
    )


def _progress(state: State, judged: Sequence[CentreJudged], directory: RunDirectory) -> Progress:
    metrics = latest_update(directory.path)
    mean, wire_bytes = metrics.get("mean_return"), metrics.get("wire_bytes")
    return Progress(
        version=state.version,
        episodes=state.episodes + sum(centre.episodes for centre in judged),
        steps=state.steps + sum(centre.steps for centre in judged),
        mean=mean if isinstance(mean, float) else math.nan,
        centre=judged[-1] if judged else None,
        wire_bytes=wire_bytes if isinstance(wire_bytes, int) else 0,
    )


def _seconds(log: LogReader, evaluations: Sequence[EvaluationRow]) -> float:
    """For how long the run was led, as far as anything tells."""
    noted = log.noted(update_log.SECONDS)
    known = [float(noted) if isinstance(noted, int | float) else 0.0]
    known += [row.seconds for row in evaluations[-1:]]
    known += [row.seconds for row in log.rows(max(log.base, log.version - 1))]
    return max(known)


def _kept(
    spec: RunSpec,
    directory: RunDirectory,
    log: LogReader,
    versions: Versions,
    tell: Callable[[str], None],
) -> tuple[Kept, ...]:
    """The results that count in what is to come, judged anew."""
    rows = log.results()
    secret = directory.read_secret() if rows else b""
    kept: list[Kept] = []
    largest = amendments.layout(spec, versions.current.amended).most
    for row in rows:
        id = SessionId(row.worker, row.session)
        try:
            message = messages.decode(row.payload)
            if not isinstance(message, Result):
                raise WireError("not a result")
            cap = versions.cap(message.version)
            arrived = judge(spec, directory.run, secret, id, message, cap, largest)
            kept.append(Kept(message, arrived))
        except WireError as error:
            tell(f"{_said(row.name)} is left out: {error}")
    return tuple(kept)


def _said(name: ResultName) -> str:
    if isinstance(name, int):
        return f"the result of task {name}"
    return f"the part after {name[1]} of the result of task {name[0]}"


def _used(spec: RunSpec, log: LogReader, kept: Sequence[Kept]) -> tuple[tuple[int, int], ...]:
    """What the last updates have used of batches that late results may still count for."""
    first = max(log.base, log.version - spec.pool.max_staleness)
    updates = [peeked(log, row) for row in log.rows(first, log.version)]
    return used(updates, [result.arrived for result in kept])


def _standing(
    spec: RunSpec, log: LogReader, state: State, judged: Sequence[CentreJudged]
) -> Standing:
    """What is known of the accepted policy and, where the version is one, of the candidate."""
    if not spec.needs_acceptance:
        return BEGINNING
    by_version = {centre.version: centre for centre in judged}
    return acceptance.standing(state.version, state.is_candidate, _reverts(log), by_version)


def _reverts(log: LogReader) -> Iterator[bool]:
    """Whether each update of the log was a revert, the last first."""
    end = log.version
    while end > log.base:
        first = max(log.base, end - LOOKED_BACK)
        for row in reversed(list(log.rows(first, end))):
            yield peeked(log, row).reverts
        end = first


def peeked(log: LogReader, row: UpdateRow) -> Update:
    """The update of a row, which was proved when it came into the log. Raises `LogError`."""
    try:
        update = peek_signed(row.payload)
        if isinstance(update, Update):
            return update
        reason = "it is another message"
    except WireError as error:
        reason = str(error)
    raise _damaged(log, row.version, reason)


def _unjudged(spec: RunSpec, version: int, judged: Sequence[CentreJudged]) -> tuple[int, ...]:
    """Versions up to this one whose centre is still to be judged.

    One that reached the target is judged once more: its run should have ended.
    """
    every = spec.centre.evaluate_every
    if not every:
        return ()
    done = {centre.version for centre in judged if not centre.reached}
    oldest = max(0, version - spec.versions_kept + 1)
    return tuple(v for v in range(oldest, version + 1) if v % every == 0 and v not in done)
