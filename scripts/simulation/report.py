"""The figures of a simulated run, and how they are told."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scripts.simulation.environments import Environment
from scripts.simulation.ledger import Closed, Ledger
from scripts.simulation.meter import Reading
from scripts.simulation.ranking import rank_correlation
from scripts.simulation.shell import Shell
from scripts.simulation.wire import Wire

MOST_CORRELATED = 20
"""Batches, the last ones, that the correlation of length and weight is taken over."""


@dataclass(frozen=True)
class Report:
    """What came of a run after its first few updates; members are pairs' halves, times seconds."""

    workers: int
    """there at the end"""
    updates: int
    members: int
    """used in updates"""
    seconds: float
    efficiency: float
    """members used in updates / members that the workers there could have evaluated"""
    accepted: float
    """the same of the members that were accepted meanwhile, whichever update will use them"""
    busy: float
    """part of the workers' time that they evaluated something, used or not"""
    stale_share: float
    """of the members used, evaluated at an earlier version"""
    ages: dict[int, float]
    """share of the members used by age in versions"""
    tail_seconds_median: float
    """from the last direction of a batch leased for the first time to its close"""
    tail_seconds_95: float
    update_seconds: float
    """mean time from update to update"""
    copied_share: float
    """members leased beside another lease of the same range, of all members leased"""
    leased_again_share: float
    """members leased a second time, copies included, of all members leased"""
    duplicate_share: float
    """members in results that came second, of all members in results"""
    late_share: float
    """members in results too late for any update, of all members in results"""
    messages_per_second: float
    """to and from the coordinator"""
    bytes_per_member: float
    """PUBLISH and PUBACK bytes of tasks, results, acknowledgements and updates, per member used"""
    messages: dict[str, int]
    """by kind, since the start"""
    message_bytes: dict[str, float]
    """of one message by kind, packets around it included"""
    unreadable_updates: int
    """that did not fit one message, late returns and all"""
    applied_twice: int
    """directions that counted in two updates"""
    lost: int
    """directions whose accepted return vanished without a reason"""
    length_weight_correlation: float
    """rank correlation of a member's length and what it counted, 0 where it was never used"""
    events: int
    """that the pool was told, since the start"""
    events_per_second: float
    """of this thread's time in the pool alone"""
    slowest_event_seconds: float
    wait_for_all_efficiency: float | None = None
    static_split_efficiency: float | None = None
    wait_for_all_update_seconds: float | None = None
    static_split_update_seconds: float | None = None


def report(
    shell: Shell,
    ledger: Ledger,
    wire: Wire,
    readings: Sequence[Reading],
    environment: Environment,
    warm_up: int,
    workers: int,
) -> Report:
    """Of the updates after the first `warm_up`; there must be one more at least.

    `readings`: of the meter at each close of a batch.
    """
    begin, closed = ledger.closed[warm_up - 1], ledger.closed[warm_up:]
    start, end = readings[warm_up - 1], readings[-1]
    members = sum(update.members for update in closed)
    steps = sum(update.steps for update in closed)
    seconds = closed[-1].time - begin.time
    capacity = end.capacity - start.capacity
    ages: Counter[int] = sum((update.ages for update in closed), Counter())
    tails = sorted(update.tail for update in closed)
    answered = max(1, ledger.outcomes.total())
    traffic = sum(wire.bytes(kind) for kind in ("task", "result", "acknowledge", "update"))
    everybody = sum(update.members for update in ledger.closed)
    now = ledger.closed[-1].time
    return Report(
        workers=workers,
        updates=len(closed),
        members=members,
        seconds=seconds,
        efficiency=steps / capacity,
        accepted=(closed[-1].accepted_steps - begin.accepted_steps) / capacity,
        busy=(end.busy - start.busy) / capacity,
        stale_share=1.0 - ages[0] / max(1, members),
        ages={age: ages[age] / max(1, members) for age in sorted(ages)},
        tail_seconds_median=statistics.median(tails),
        tail_seconds_95=tails[min(len(tails) - 1, int(0.95 * len(tails)))],
        update_seconds=seconds / len(closed),
        copied_share=ledger.copies / max(1, ledger.leased),
        leased_again_share=ledger.leased_again / max(1, ledger.leased),
        duplicate_share=ledger.outcomes["duplicate"] / answered,
        late_share=ledger.outcomes["late"] / answered,
        messages_per_second=wire.messages.total() / max(1e-9, now - ledger.began),
        bytes_per_member=traffic / max(1, everybody),
        messages=dict(sorted(wire.messages.items())),
        message_bytes={
            kind: wire.bytes(kind) / number for kind, number in sorted(wire.messages.items())
        },
        unreadable_updates=wire.unreadable_updates,
        applied_twice=ledger.applied_twice,
        lost=ledger.lost,
        length_weight_correlation=length_weight_correlation(ledger, closed, environment),
        events=shell.events,
        events_per_second=shell.events / max(1e-9, shell.spent),
        slowest_event_seconds=shell.slowest,
    )


def length_weight_correlation(
    ledger: Ledger, closed: Sequence[Closed], environment: Environment
) -> float:
    """Rank correlation of a member's length and the multiplier that it counted with.

    Over batches that no update can use any more; a member that was never used counts with 0, and
    its length is that of the version that it was leased at last.
    """
    over = [update.version for update in closed if update.version <= ledger.settled_before]
    lengths, multipliers = [], []
    for version in over[-MOST_CORRELATED:]:
        account = ledger.account(version)
        steps = account.lengths.copy()
        first = version * len(steps)
        for row in np.flatnonzero((account.used == 0) & (account.leased >= 0)).tolist():
            at = int(account.leased[row])
            steps[row] = environment.play("members", at, first + row, 1)[1][0]
        known = steps[:, 0] > 0
        lengths.append(steps[known].ravel())
        multipliers.append(np.repeat(account.multiplier[known], steps.shape[1]))
    if not lengths:
        return 0.0
    return rank_correlation(np.concatenate(lengths), np.concatenate(multipliers))
