"""The run as far as our disk has it, for who follows: advanced by an update, or set back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from coordinator.directory import RunDirectory
from coordinator.log import EvaluationRow, UpdateLog, UpdateRow
from coordinator.recovery import Recovered, keep_authority, recover, remembered
from coordinator.standby.following import NOBODY, Entry, Precedence
from protocol import replay
from protocol.authority import Authority, precedence
from protocol.messages import Judged, Update
from protocol.packing import WireError
from protocol.spec import RunSpec


class Ledger:
    """Owns the run directory and its log while we follow. Methods that write take time: call them
    in a thread, one after the other.

    Attributes:
        authority: the longest that was proved; whoever learns a longer one, calls `learn`.
        recovered: how far the run is here; only its versions are kept up to date.
    """

    def __init__(
        self,
        spec: RunSpec,
        directory: RunDirectory,
        log: UpdateLog,
        authority: Authority,
        recovered: Recovered,
    ) -> None:
        """Go on from where the log ends, which `recovered` tells."""
        self.spec = spec
        self.directory = directory
        self.log = log
        self.authority = authority
        self._rules = replay.arithmetic(spec)
        self.recovered = recovered
        self._seconds = recovered.seconds

    @property
    def version(self) -> int:
        """How far the run is here."""
        return self.recovered.version

    @property
    def digest(self) -> bytes:
        """Of the parameters of our version."""
        return self.recovered.versions.digest

    @property
    def precedence(self) -> Precedence:
        """Of the epoch that our last update was made in."""
        entry = self.entry(self.version - 1)
        return NOBODY if entry is None else entry.precedence

    def learn(self, authority: Authority) -> None:
        """Keep a longer authority for good. Raises `LogError`."""
        self.authority = authority
        keep_authority(self.log, authority)

    def open(self, payload: bytes) -> Entry:
        """A signed update, proved. Raises `WireError`."""
        update = self.authority.open_update(payload)
        return Entry(update, payload, self._precedence_of(update))

    def entry(self, version: int) -> Entry | None:
        """Our update that leads on from this version, if the log has one. Raises `LogError`."""
        for payload in self.log.updates(version, version + 1):
            with contextlib.suppress(WireError):
                return self.open(payload)
        return None

    def advance(self, entry: Entry) -> None:
        """Apply and log the next update.

        Raises `MismatchError` and `WireError` where it leads elsewhere than it says, and `LogError`
        or `FrozenError` where it can't be kept.
        """
        update, versions = entry.update, self.recovered.versions
        after = replay.follow(self.spec, self._rules, versions.current, update)
        self.log.append(self._row(entry))
        self._seconds = update.seconds
        self.learn_judged(update.judged)
        versions.add(after, update.digest_after)
        if update.state_digest:
            self.directory.snapshots.freeze(after)
            self.directory.forget_snapshots(self.log.base)

    def learn_judged(self, told: Sequence[Judged]) -> None:
        """Keep evaluations of the centre. Raises `LogError`."""
        for judged in told:
            self.log.record_evaluation(
                EvaluationRow.told(judged, judged_at=time.time(), seconds=self._seconds)
            )

    def set_back(self, version: int, why: str) -> int:
        """Go back to a version; our updates from there on go aside. Returns how many they were.

        Raises `LogError` and `RecoveryError`.
        """
        count = self.log.set_aside(version, why)
        for frozen in self.directory.snapshots.versions():
            if frozen > version:
                self.directory.snapshots.remove(frozen)
        self.recovered = recover(self.spec, self.directory, self.log, self.authority)
        return count

    def remember(self) -> Recovered:
        """What a coordinator goes on from here. Raises `LogError`."""
        return remembered(self.spec, self.directory, self.log, self.recovered.versions)

    def _precedence_of(self, update: Update) -> Precedence:
        rank = self.authority.rank(update.epoch, self.authority.signer(update))
        assert rank is not None  # `open_update` has seen to that
        return precedence(update.epoch, rank)

    def _row(self, entry: Entry) -> UpdateRow:
        update = entry.update
        return UpdateRow(
            version=update.version,
            payload=entry.payload,
            made_at=time.time(),
            members=update.episodes // self.spec.environment.episodes,
            late=update.late,
            seconds=update.seconds,
            workers=update.workers,
        )
