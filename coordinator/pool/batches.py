"""The batches that may still get returns: the open one, the next, and the last few before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from coordinator.pool.batch import Batch
from coordinator.pool.events import Contribution
from protocol.batches import Layout
from protocol.spec import RunSpec


class Closed(NamedTuple):
    """What an update is made of."""

    contributions: tuple[Contribution, ...]
    members: int
    steps: int
    """environment steps of these members"""
    stale: int
    """members evaluated at an earlier version"""


class Batches:
    """Batch `version` is `open`, the one after it is `next`; `max_staleness` earlier ones are kept
    for results that come late."""

    def __init__(
        self,
        spec: RunSpec,
        version: int,
        used: Sequence[tuple[int, int]] | None = None,
        layout: Layout | None = None,
    ) -> None:
        """`used`, `layout`: as `coordinator.pool.Pool` has them."""
        self._layout = layout or Layout.even(spec.directions)
        self._members_per_direction = spec.members_per_direction
        self._spec = spec
        self._staleness = spec.pool.max_staleness
        self._batches: dict[int, Batch] = {}
        self._late: list[Contribution] = []
        self._late_members = self._late_steps = 0
        self._others: tuple[bool, float] | None = None
        """whether an update is made, and for how much what may be late leaves no room; None: that
        is to be counted"""
        if used is not None:
            self._reopen(version, used)
        self.open = self._batch(version)
        self.next = self._batch(version + 1)
        self._weigh()

    def _weigh(self) -> None:
        """What the settings make of the open batch and the next, which may be of two sizes."""
        pool, size = self._spec.pool, self.open.work.size
        self.quorum = self._quorum_of(size)
        """directions that must be settled before the rest of the open batch may be left behind"""
        self.spare = size - self.quorum
        """directions of it that may be left behind"""
        stale_share = pool.stale_share if pool.max_staleness else 0.0
        self._most_stale = stale_share * self._quorum_of(self.next.work.size)
        self._fresh_share = 1.0 - stale_share
        self._patient = pool.patience > 0.0

    def _quorum_of(self, size: int) -> int:
        return math.ceil(self._spec.pool.quorum * size - 1e-9)

    def amend(self, spec: RunSpec, layout: Layout) -> None:
        """These settings hold now, and batches that are not made yet are as the layout has them."""
        self._spec, self._layout = spec, layout
        self._weigh()

    def of(self, index: int) -> Batch | None:
        """The batch of that index, if returns of it may count."""
        return self._batches.get(index)

    def index(self, direction: int) -> int:
        """Of the batch that a direction belongs to."""
        return self._layout.index(direction)

    @property
    def awaited(self) -> int:
        """Directions that the open batch waits for before it is closed, as far as that is known."""
        missing = self.open.work.missing
        return missing if self._patient else max(0, missing - self.spare)

    def early_room(self, updating: bool) -> int:
        """Directions of the next batch that may still be begun one version early.

        At most `stale_share` of the members of an update are stale, early and late ones together,
        where it has its quorum of its own batch: what is still out of earlier batches may yet come
        late, and so may what the open one can be closed without. That only becomes less until
        `look_again`, or something does come late, and is counted once.
        """
        work = self.next.work
        room = self._most_stale - (work.size - work.unleased.total)
        if room <= 0.0:
            return 0
        others = self._others
        if others is None or others[0] is not updating:
            others = self._others = updating, self._fresh_share * self._may_be_late(updating)
        room -= others[1]
        return int(room) if room > 0.0 else 0

    def look_again(self) -> None:
        """Time has passed: less may come late than was counted."""
        self._others = None

    def _may_be_late(self, updating: bool) -> int:
        """Directions that may be stale in an update beside those begun early."""
        late = self._late_members // self._members_per_direction if updating else 0
        waiting = None if updating else self.open
        for batch in self._batches.values():
            work = batch.work
            if batch is waiting:
                late += min(work.missing, self.spare)
            elif batch is not self.next:
                late += work.missing - work.unleased.total
        return late

    def reach(self, version: int) -> None:
        """The run has reached the next version."""
        self.look_again()
        self.open, self.next = self._batch(version), self._batch(version + 1)
        self._weigh()
        for index in [index for index in self._batches if index < version - self._staleness]:
            del self._batches[index]

    def count(
        self, batch: Batch, contribution: Contribution, members: int, steps: int, late: bool
    ) -> None:
        """Keep accepted returns of so many members and steps: for the update of their own batch or,
        where they come too `late` for that, for the one that closes next."""
        if late:
            self._late.append(contribution)
            self._late_members += members
            self._late_steps += steps
            self.look_again()
        else:
            batch.contributions.append(contribution)
            batch.members += members
            batch.steps += steps
            if contribution.version < batch.index:
                batch.stale += members

    def withdraw(self, worker: str, updating: bool) -> tuple[int, int]:
        """Take out all that a worker has in updates to come: how many directions of it are free
        again, and how many came late and are not."""
        again = 0
        for batch in [self.next] if updating else [self.open, self.next]:
            kept = []
            for part in batch.contributions:
                if part.session.worker != worker:
                    kept.append(part)
                    continue
                again += batch.work.reopen(part.first, part.valid, frozenset({worker}))
                members = int(np.count_nonzero(part.valid)) * self._members_per_direction
                batch.members -= members
                batch.steps -= part.steps
                if part.version < batch.index:
                    batch.stale -= members
            batch.contributions = kept
        late = [part for part in self._late if part.session.worker == worker]
        self._late = [part for part in self._late if part.session.worker != worker]
        directions = sum(int(np.count_nonzero(part.valid)) for part in late)
        self._late_members -= directions * self._members_per_direction
        self._late_steps -= sum(part.steps for part in late)
        self.look_again()
        return again, directions

    def close(self) -> Closed:
        """What the update of the open batch is made of, by first direction, then by version."""
        batch = self.open
        contributions = [*self._late, *batch.contributions]
        # Two sorts of numbers are several times as fast as one of pairs; nothing else waits longer.
        contributions.sort(key=attrgetter("version"))
        contributions.sort(key=attrgetter("first"))
        closed = Closed(
            tuple(contributions),
            batch.members + self._late_members,
            batch.steps + self._late_steps,
            batch.stale + self._late_members,
        )
        self._late, self._late_members, self._late_steps = [], 0, 0
        self.look_again()
        batch.work.close()
        return closed

    def _reopen(self, version: int, used: Sequence[tuple[int, int]]) -> None:
        """Take results of the last batches that no update has used: they may count late."""
        for index in range(max(0, version - self._staleness), version):
            work = self._batch(index).work
            for begin, count in used:
                first, end = max(begin, work.first), min(begin + count, work.end)
                if first < end:
                    work.accept(first, np.ones(end - first, dtype=bool))

    def _batch(self, index: int) -> Batch:
        """The batch of that index, new if it is not known."""
        batch = self._batches.get(index)
        if batch is None:
            layout = self._layout
            batch = Batch(index, layout.first(index), layout.count(index))
            self._batches[index] = batch
        return batch
