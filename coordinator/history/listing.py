"""What a run's log says of each update, for people and for programs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coordinator.history.past import Past
from coordinator.log import EvaluationRow, UpdateRow
from protocol.amendments import shown
from protocol.authority import RUN_KEY
from protocol.identity import fingerprint
from protocol.messages import Update


@dataclass(frozen=True, slots=True)
class Line:
    """An update, by the version that it leads to, and what is known of that version."""

    row: UpdateRow
    update: Update
    signer: bytes
    """public key"""
    rank: int
    """of the signer: 0 the run key, 1 and more a delegate"""
    centre: EvaluationRow | None
    """the evaluation of the version that the update leads to"""

    @property
    def version(self) -> int:
        """That the update leads to."""
        return self.row.version + 1

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        centre = self.centre
        return {
            "version": self.version,
            "time": self.row.made_at,
            "seconds": self.row.seconds,
            "members": self.row.members,
            "late": self.update.late,
            "dropped": len(self.update.dropped),
            "reverts": self.update.reverts,
            "workers": self.row.workers,
            "centre_return": None if centre is None else centre.mean,
            "centre_episodes": None if centre is None else centre.episodes,
            "params_hash": self.update.digest_after.hex(),
            "state_digest": self.update.state_digest.hex() or None,
            "epoch": self.update.epoch,
            "signed_by": fingerprint(self.signer),
            "rank": self.rank,
            "bytes": len(self.row.payload),
            "amendments": dict(self.update.amendments),
        }

    def to_text(self) -> str:
        """For people: one line of `HEADER`."""
        when = time.strftime("%m-%d %H:%M:%S", time.localtime(self.row.made_at))
        centre = "-" if self.centre is None else f"{self.centre.mean:.4g}"
        members = "revert" if self.update.reverts else str(self.row.members)
        who = "run key" if self.rank == RUN_KEY else f"delegate {self.rank}"
        return (
            f"{self.version:>8} {when} {members:>7} {self.update.late:>5} "
            f"{len(self.update.dropped):>7} {self.row.workers:>7} {centre:>9} "
            f"{self.update.epoch:>5} {who:<10} {self.update.digest_after.hex()[:16]}{self._set()}"
        )

    def _set(self) -> str:
        """What the update changes of the settings, after all else."""
        changes = sorted(self.update.amendments.items())
        return "".join(f"  {label}={shown(label, value)}" for label, value in changes)


HEADER = (
    f"{'version':>8} {'time':<14} {'members':>7} {'stale':>5} {'dropped':>7} "
    f"{'workers':>7} {'centre':>9} {'epoch':>5} {'signed by':<10} params hash"
)
"""Names of the columns of `Line.to_text`; with the hash's first half no line has more than 100,
but for one that tells of settings that changed."""


def lines(past: Past, last: int | None = None) -> Iterator[Line]:
    """The updates of a run in order, the `last` ones only where that is given.

    Signatures are checked, hashes are not. Raises `LogError`.
    """
    evaluations = {row.version: row for log in past.logs for row in log.evaluations()}
    first = past.base if last is None else max(past.base, past.version - last)
    for row, update in past.updates(first):
        signer = past.authority.signer(update)
        rank = past.authority.rank(update.epoch, signer)
        yield Line(row, update, signer, rank or RUN_KEY, evaluations.get(row.version + 1))
