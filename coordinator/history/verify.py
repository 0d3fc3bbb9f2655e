"""Proves a run directory: each signature, hash and snapshot, by replaying all of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from coordinator.history.carve import carve_ahead
from coordinator.history.past import Advance, Past, opened, read_run
from coordinator.log import DamagedError, EvaluationRow, LogError, LogReader, UpdateRow
from coordinator.recovery import RecoveryError, last_epoch
from protocol import noise, replay, snapshot, state
from protocol.errors import ShoalError
from protocol.frozen import FrozenError
from protocol.messages import Judged, Update
from protocol.packing import WireError
from protocol.replay import MismatchError
from protocol.spec import RunSpec
from protocol.state import State

BEYOND = 1 << 50
"""A version that no run reaches."""
SETTLE = 0.3
"""Seconds in which a coordinator has surely finished what it was writing."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as it should be."""

    version: int
    """that it concerns: the first that can't be reached, or that of a snapshot or evaluation"""
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What proving a run directory came to."""

    run: str
    base: int
    """the version that the proof began at"""
    reached: int
    """the last version that is proved"""
    claimed: int
    """the version that the log says it leads to"""
    params_hash: str
    state_digest: str
    signed_states: int = 0
    """versions whose full state a signed update proves"""
    snapshots: tuple[int, ...] = ()
    """versions whose snapshot files hold the very state"""
    seconds: float = 0.0
    trained_seconds: float | None = None
    """for which the run was led meanwhile; None where the log does not say"""
    differences: tuple[Difference, ...] = field(default=())
    """by version"""

    @property
    def sound(self) -> bool:
        """Whether all is as it should be."""
        return not self.differences

    @property
    def versions_per_second(self) -> float:
        """How fast the versions were replayed."""
        return (self.reached - self.base) / self.seconds if self.seconds else 0.0

    @property
    def times_faster(self) -> float | None:
        """How many times faster than they were trained."""
        return None if not self.trained_seconds else self.trained_seconds / self.seconds


def verify_directory(directory: Path, archives: Sequence[Path], advance: Advance) -> Verdict:
    """Prove what a run directory holds of a run, with these archives of its log.

    Damage of the log is for the verdict. Raises `ShoalError` where there is no run or no log, or
    its spec can't be read.
    """
    run = read_run(directory)
    try:
        with opened(directory, archives) as past:
            return verify(past, advance)
    except (LogError, RecoveryError) as error:
        if not (directory / "log.sqlite").exists():
            raise
        return _unreadable(run, error)


def verify(past: Past, advance: Advance) -> Verdict:
    """Read everything and replay it from the first version that is here. Never raises for damage:
    the verdict has it."""
    try:
        before = past.beginning()
    except ShoalError as error:
        return _unreadable(past.run, error)
    return _Proof(past, before).carried_out(advance)


def _unreadable(run: str, error: ShoalError) -> Verdict:
    """The verdict on a log that does not even tell how it begins."""
    version = error.version if isinstance(error, DamagedError) else 0
    return Verdict(run, 0, 0, 0, "", "", differences=(Difference(version, str(error)),))


def expected_row(spec: RunSpec, row: UpdateRow, update: Update) -> UpdateRow:
    """The row of an update with what the signed message says too."""
    return replace(
        row,
        members=update.episodes // spec.environment.episodes,
        late=update.late,
        seconds=update.seconds,
        workers=update.workers,
    )


def contradicts(row: EvaluationRow, judged: Judged, told_at: float) -> bool:
    """Whether the row of an evaluation is another than what the update of that time tells, though
    the version was not judged once more since then."""
    told = EvaluationRow.told(judged, row.judged_at, row.seconds)
    return row.judged_at <= told_at and row != told


class _Proof:
    """One pass over a run directory."""

    def __init__(self, past: Past, before: State) -> None:
        self._past = past
        self._state = before
        self._differences: list[Difference] = []
        self._signed_states = 0
        self._frozen = set(past.snapshots.versions())
        self._proved: list[int] = []
        self._trained: list[float] = []
        self._unsound: list[str] = []
        """what is wrong where no version depends on it"""

    def carried_out(self, advance: Advance) -> Verdict:
        past, base = self._past, self._state.version
        claimed = self._claimed()
        noise.warm_up(past.rules.noise)
        began = time.perf_counter()
        evaluations = self._evaluations()
        self._compare_snapshot()
        try:
            states, rows = past.states(self._state, claimed), _rows(past, base, claimed)
            for (reached, update), row in zip(states, rows, strict=False):
                self._state = reached
                self._signed_states += bool(update.state_digest)
                self._trained.append(row.seconds)
                self._compare_row(row, update)
                self._compare_evaluations(row, update, evaluations)
                self._compare_snapshot()
                advance(self._state.version - base, claimed - base)
        except DamagedError as error:
            self._differs(error.version + 1, str(error))
        except ShoalError as error:
            self._differs(self._state.version + 1, str(error))
        seconds = time.perf_counter() - began
        if claimed == BEYOND:
            claimed = self._state.version
        elif self._state.version == claimed:
            self._look_beyond(claimed)
        self._look_at_the_rest(claimed)
        return Verdict(
            run=past.run,
            base=base,
            reached=self._state.version,
            claimed=claimed,
            params_hash=state.params_hash(self._state.theta),
            state_digest=snapshot.state_digest(self._state).hex(),
            signed_states=self._signed_states,
            snapshots=tuple(self._proved),
            seconds=seconds,
            trained_seconds=self._trained_seconds(),
            differences=tuple(sorted(self._differences, key=lambda each: each.version)),
        )

    def _differs(self, version: int, reason: str) -> None:
        self._differences.append(Difference(version, reason))

    def _claimed(self) -> int:
        try:
            return self._past.version
        except ShoalError:  # which is where the last update lies: each is read until there
            return BEYOND

    def _trained_seconds(self) -> float | None:
        """From the first to the last update that was replayed, and as long again for the first."""
        known = [seconds for seconds in self._trained if seconds > 0.0]
        if len(known) < len(self._trained) or not known:
            return None
        if self._state.version == len(known):
            return known[-1]
        span = known[-1] - known[0]
        return span * len(known) / (len(known) - 1) if len(known) > 1 else None

    def _compare_snapshot(self) -> None:
        version = self._state.version
        if version not in self._frozen:
            return
        self._frozen.discard(version)
        try:
            frozen = self._past.snapshots.open(version)
        except FrozenError as error:
            if version in self._past.snapshots.versions():  # not let go of meanwhile
                self._differs(version, str(error))
            return
        if frozen.digest != snapshot.state_digest(self._state):
            self._differs(
                version,
                f"{frozen.path} holds another state: remove it, or run `shoal repair "
                f"{self._past.directory}`",
            )
        else:
            self._proved.append(version)

    def _compare_row(self, row: UpdateRow, update: Update) -> None:
        expected = expected_row(self._past.spec, row, update)
        if row != expected:
            self._differs(
                row.version + 1,
                f"the log says {row.members} members, {row.late} late of update {row.version}, "
                f"its signed message {expected.members} and {expected.late}",
            )

    def _compare_evaluations(
        self, row: UpdateRow, update: Update, known: Mapping[int, EvaluationRow]
    ) -> None:
        for judged in update.judged:
            ours = known.get(judged.version)
            if ours is not None and contradicts(ours, judged, row.made_at):
                self._differs(
                    judged.version,
                    f"the log says {ours.mean:g} over {ours.episodes} episodes of the centre of "
                    f"version {judged.version}, signed update {update.version} says "
                    f"{judged.mean:g} over {judged.episodes}",
                )

    def _evaluations(self) -> dict[int, EvaluationRow]:
        found: dict[int, EvaluationRow] = {}
        for log in self._past.logs:
            try:
                found |= {row.version: row for row in log.evaluations()}
            except ShoalError as error:
                self._unsound.append(str(error))
        return found

    def _look_beyond(self, claimed: int) -> None:
        """Look for a next update in the write-ahead log: where a page in it is damaged, SQLite
        takes that and all after it for never written."""
        try:
            update = self._next_update(claimed)
            if update is not None:
                time.sleep(SETTLE)
                if self._past.version == claimed:  # it is not being written just now
                    self._differs(
                        claimed + 1,
                        f"{self._past.log.path}-wal has update {claimed}, which the log lost: run "
                        f"`shoal repair {self._past.directory}`",
                    )
        except (ShoalError, OSError) as error:
            self._unsound.append(str(error))

    def _next_update(self, version: int) -> Update | None:
        """An update in the write-ahead log that leads on from the last version, and is neither of
        an epoch that is past nor set aside."""
        past = self._past
        rows = carve_ahead(past.log.path).updates.get(version, ())
        aside = {row.update.payload for row in past.log.aside_rows()} if rows else set()
        for row in rows:
            with suppress(WireError, MismatchError):
                update = past.authority.open_update(row.payload)
                replay.follow(past.spec, past.rules, self._state, update)
                if row.payload not in aside and update.epoch >= last_epoch(
                    past.log, past.authority
                ):
                    return update
        return None

    def _look_at_the_rest(self, claimed: int) -> None:
        """What no update depends on."""
        for version in sorted(self._frozen):
            if version > claimed:
                self._differs(version, f"a snapshot of version {version} is beyond the log's end")
        for log in self._past.logs:
            self._unsound += _unsound(log)
        for problem in self._unsound:
            self._differs(claimed, problem)


def _rows(past: Past, first: int, end: int) -> Iterator[UpdateRow]:
    for log, bound in past.pieces(end):
        if first < bound:
            yield from log.rows(first, bound)
            first = bound


def _unsound(log: LogReader) -> Iterator[str]:
    """What is wrong with the tables beside that of the updates, and with the file as such."""
    for read in (log.results, log.aside_rows):
        try:
            read()
        except ShoalError as error:
            yield str(error)
    try:
        damage = log.damage()
    except ShoalError as error:
        damage = str(error)
    if damage:
        yield f"the file {log.path} is damaged ({damage}): run `shoal repair {log.path.parent}`"
