"""Whatever workers do, in any order: what the pool never does, and what it always does."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from coordinator.pool import Pool
from coordinator.pool.batch import Batch
from coordinator.pool.events import (
    Arrived,
    CentreJudged,
    CloseBatch,
    Command,
    EndRun,
    Event,
    Heard,
    HeldLease,
    Joined,
    KeepResult,
    Kept,
    Left,
    Refused,
    SendAcknowledge,
    SendTask,
    SessionId,
    Tick,
    Updated,
)
from coordinator.pool.machine import ACKNOWLEDGE_AFTER
from coordinator.pool.ranges import Range
from coordinator.pool.work import Work
from tests.coordinator.simulation import Environment, counted, result, spec

SIZE = 8
"""directions of a batch"""
PROGRESS_SECONDS = 200.0
"""An update must come in this time while one honest worker lives: a few leases of unknown length,
each doubled by the last that ran out."""
POOLS = {
    "classic": {"quorum": 1.0, "max_staleness": 0},
    "patient": {"quorum": 1.0, "max_staleness": 1, "stale_share": 0.5},
    "quorum": {"quorum": 0.5, "max_staleness": 2, "stale_share": 0.25},
    "eager": {"quorum": 0.75, "max_staleness": 1, "stale_share": 1.0},
}
SESSIONS = [SessionId(worker, session) for worker in "abcd" for session in ("1", "2")]
HONEST = SessionId("honest", "1")
ENVIRONMENT = Environment(level=lambda version: version % 3)


def shown(command: Command) -> object:
    """A command in a form that compares by value."""
    if isinstance(command, CloseBatch):
        return (
            "close",
            command.version,
            command.dropped,
            [repr((p.session, p.version, p.first, p.returns)) for p in command.contributions],
        )
    return repr(command)


def settled(closed: CloseBatch) -> set[int]:
    """The directions that an update uses or drops."""
    return {*counted(closed).tolist(), *closed.dropped}


class PoolMachine(RuleBasedStateMachine):
    """Any mix of what can happen to a pool."""

    @initialize(
        pool=st.sampled_from(sorted(POOLS)),
        version=st.sampled_from([0, 5]),
        every=st.sampled_from([0, 1, 2]),
        goal=st.sampled_from([None, 1000.0]),
        first_task=st.sampled_from([1, 1 << 32]),
    )
    def begin(
        self, pool: str, version: int, every: int, goal: float | None, first_task: int
    ) -> None:
        self.spec = spec(
            2 * SIZE,
            pool=POOLS[pool],
            centre={"evaluate_every": every, "episodes": 6, "screening": 2},
            stop={"target": goal} if every else {},
        )
        self.rules = self.spec.pool
        self.first_version = version
        self.first_task = first_task
        self.now = 50.0
        self.pool = Pool(self.spec, version, self.now, first_task=first_task)
        self.twin = Pool(self.spec, version, self.now, first_task=first_task)
        self.tasks: dict[int, SendTask] = {}
        self.results: list[Arrived] = []
        self.counted: Counter[int] = Counter()
        self.accepted: set[int] = set()
        """directions that were accepted and have not counted yet"""
        self.unanswered: Counter[tuple[SessionId, int]] = Counter()
        self.forgotten: Counter[tuple[SessionId, int]] = Counter()
        """what may still be answered, though its session left meanwhile"""
        self.unkept: list[KeepResult] = []
        self.disk: dict[tuple[SessionId, int], KeepResult] = {}
        """accepted results that are durable and in no durable update"""
        self.taken: dict[tuple[SessionId, int], set[int]] = {}
        """directions by result that was accepted"""
        self.promised: set[int] = set()
        """directions whose workers were told that they are accepted, and that no update has used"""
        self.settled = set(range(version * SIZE))
        """directions that durable updates used or dropped"""
        self.closing: CloseBatch | None = None
        self.episodes = 0

    # What happens.

    @rule(
        id=st.sampled_from(SESSIONS), credit=st.integers(0, 4), speed=st.sampled_from([0, 1, 1e12])
    )
    def join(self, id: SessionId, credit: int, speed: float) -> None:
        self.send(Joined(id, credit, speed))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), id=st.sampled_from(SESSIONS), credit=st.integers(0, 4))
    def join_again(self, data: st.DataObject, id: SessionId, credit: int) -> None:
        """Naming leases that were once somebody's, some several times, some a little wrong."""
        wrong = st.tuples(*[st.sampled_from([0, 0, 0, 0, 0, -1, 1, SIZE, 1 << 32])] * 4)
        named = data.draw(
            st.lists(st.tuples(st.sampled_from(sorted(self.tasks)), wrong), max_size=4)
        )
        held = []
        for number, (task, version, first, count) in named:
            given = self.tasks[number]
            held.append(
                HeldLease(
                    number + task,
                    given.kind,
                    given.version + version % SIZE,
                    given.first + first,
                    given.count + count,
                )
            )
        self.send(Joined(id, credit, 0.0, tuple(held)))

    @rule(elapsed=st.sampled_from([0.0, 5.0]))
    def restart(self, elapsed: float) -> None:
        """The coordinator is lost; another one goes on from what is durable."""
        if self.pool.ended:
            return
        self.now += elapsed
        if self.closing is not None:
            self.counted.subtract(counted(self.closing).tolist())
            self.closing = None
        self.unkept, self.unanswered, self.forgotten = [], Counter(), Counter()
        self.accepted = set()
        self.first_task += 1 << 32
        version, every = self.pool.version, self.spec.centre.evaluate_every
        self.first_version = max(0, version - self.rules.max_staleness)
        state = {
            "episodes": self.episodes,
            "first_task": self.first_task,
            "unjudged": [e.version for e in self.pool._evaluations.under_way] if every else [],
            "used": [(direction, 1) for direction in sorted(self.settled)],
        }
        self.pool = Pool(self.spec, version, self.now, **state)
        self.twin = Pool(self.spec, version, self.now, **state)
        for keep in list(self.disk.values()):
            self.arrive(keep.arrived)
        again = self.accepted | (settled(self.closing) if self.closing is not None else set())
        assert self.promised <= again, "what was acknowledged is lost"

    @rule(id=st.sampled_from(SESSIONS))
    def leave(self, id: SessionId) -> None:
        self.send(Left(id, "left"))

    @precondition(lambda self: self.unkept)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        """Some of what was accepted is durable."""
        self.keep_results(self.unkept[: data.draw(st.integers(1, len(self.unkept)))])

    @rule(id=st.sampled_from(SESSIONS), credit=st.none() | st.integers(0, 4))
    def speak(self, id: SessionId, credit: int | None) -> None:
        self.send(Heard(id, credit))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), elapsed=st.sampled_from([0.0, 0.05, 1.0]))
    def finish(self, data: st.DataObject, elapsed: float) -> None:
        """A task that was ever given out comes back, late or not, whole or with failures."""
        task = self.tasks[data.draw(st.sampled_from(sorted(self.tasks)))]
        units = range(task.first, task.first + task.count)
        failed = data.draw(st.sets(st.sampled_from(units), max_size=2) | st.just(set()))
        self.now += elapsed
        self.finish_task(task, dict.fromkeys(failed, "it raised"))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def finish_for_another_session(self, data: st.DataObject) -> None:
        """Both machines of one identity hold the key that the lease was given to."""
        task = self.tasks[data.draw(st.sampled_from(sorted(self.tasks)))]
        other = SessionId(task.session.worker, "2")
        self.finish_task(task, {}, session=other)

    @precondition(lambda self: self.results)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A result is sent once more."""
        self.arrive(data.draw(st.sampled_from(self.results[-8:])))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), blame=st.booleans())
    def refuse(self, data: st.DataObject, blame: bool) -> None:
        task = self.tasks[data.draw(st.sampled_from(sorted(self.tasks)))]
        self.send(Refused(task.session, task.task, blame, "no"))

    @rule(elapsed=st.sampled_from([0.0, 0.1, 1.0, 7.0, 40.0, 3600.0]))
    def wait(self, elapsed: float) -> None:
        self.now += elapsed
        self.send(Tick())

    @precondition(lambda self: self.pool.updating)
    @rule(elapsed=st.sampled_from([0.0, 0.2]))
    def update(self, elapsed: float) -> None:
        self.now += elapsed
        self.send(Updated(self.pool.version + 1))

    @rule()
    def progress(self) -> None:
        """One honest worker is enough for an update, whatever the others hold and never do."""
        if self.pool.ended:
            return
        end = self.now + PROGRESS_SECONDS
        version = self.pool.version
        self.send(Joined(HONEST, 2, 1000.0))
        queue: list[SendTask] = []
        while self.pool.version == version and not self.pool.ended:
            assert self.now < end, f"no update in {PROGRESS_SECONDS} s: {self.stuck()}"
            queue = [task for task in self.tasks.values() if task.session == HONEST]
            if self.pool.updating:
                self.send(Updated(self.pool.version + 1))
            elif queue:
                self.now += 0.1
                self.finish_task(queue[0], {})
            else:
                self.now += 0.5
                for id in list(self.pool.sessions):
                    self.send(Heard(id))  # the others stay alive and do nothing
                self.send(Tick())
        self.send(Left(HONEST, "left"))

    # What must hold.

    def finish_task(
        self, task: SendTask, failed: dict[int, str], session: SessionId | None = None
    ) -> None:
        arrived = result(task, ENVIRONMENT, session, failed)
        self.results.append(arrived)
        if task.session == HONEST:
            del self.tasks[task.task]
        self.arrive(arrived)

    def keep_results(self, some: list[KeepResult]) -> None:
        self.unkept = self.unkept[len(some) :]
        for one in some:
            if one.arrived.kind == "centre" or one.until >= self.pool.version:
                self.disk[one.arrived.session, one.arrived.task] = one
        self.send(Kept(tuple((one.arrived.session, one.arrived.task) for one in some)))

    def arrive(self, arrived: Arrived) -> None:
        if not self.pool.ended:
            self.unanswered[arrived.session, arrived.task] += 1
        self.send(arrived)

    def send(self, event: Event) -> None:
        if isinstance(event, Updated):
            self.durable()
        held = {id: len(session.leases) for id, session in self.pool.sessions.items()}
        commands = self.pool.handle(event, self.now)
        again = self.twin.handle(event, self.now)
        assert list(map(shown, commands)) == list(map(shown, again)), "not a function of the events"
        if isinstance(event, Arrived):
            self.heed(event, commands)
        for command in commands:
            match command:
                case SendTask():
                    self.given(command)
                    self.answered(command.session, command.acknowledged, "accepted")
                case SendAcknowledge():
                    self.answered(command.session, command.results, command.outcome)
                case KeepResult():
                    self.unkept.append(command)
                case CloseBatch():
                    self.closed(command)
                case CentreJudged():
                    assert command.episodes in (2, 6)
                case EndRun():
                    raise AssertionError("this run has no reason to end")
        for id in held.keys() - self.pool.sessions.keys():
            for other, task in list(self.unanswered):
                if other == id:  # a session that comes back sends again what was not answered
                    self.forgotten[other, task] += self.unanswered.pop((other, task))
        for id, session in self.pool.sessions.items():
            if len(session.leases) > held.get(id, 0):
                assert len(session.leases) <= session.credit, "more tasks than the session can hold"

    def durable(self) -> None:
        """The update that is being made can't be lost any more."""
        assert self.closing is not None
        self.settled |= settled(self.closing)
        self.promised -= self.settled
        self.closing, self.episodes = None, self.pool.episodes
        until = self.pool.version + 1
        self.disk = {
            name: one
            for name, one in self.disk.items()
            if one.arrived.kind == "centre" or one.until >= until
        }

    def heed(self, event: Arrived, commands: list[Command]) -> None:
        """Remember what was taken: it is to be kept."""
        taken = any(isinstance(c, KeepResult) and c.arrived is event for c in commands)
        if event.kind == "members" and taken:
            valid = np.flatnonzero(~np.isnan(event.returns[:, 0])) + event.first
            self.accepted |= set(valid.tolist())
            self.taken[event.session, event.task] = set(valid.tolist())

    def given(self, task: SendTask) -> None:
        assert task.task not in self.tasks, "a task number twice"
        assert self.pool.leases[task.task].session == task.session
        self.tasks[task.task] = task
        if task.kind == "members":
            index = task.first // SIZE
            assert (task.first + task.count - 1) // SIZE == index, "a task across two batches"
            assert task.version == self.pool.version
            assert index >= self.pool.version
            assert index - task.version <= self.rules.max_staleness, "leased too far ahead"
        if len(self.tasks) > 40:  # enough to draw from
            del self.tasks[min(self.tasks)]

    def answered(self, session: SessionId, tasks: tuple[int, ...], outcome: str) -> None:
        for task in tasks:
            if outcome == "accepted":
                self.promised |= self.taken.pop((session, task), set()) - self.settled
            waiting = self.unanswered if self.unanswered[session, task] else self.forgotten
            assert waiting[session, task] > 0, "an answer for nothing"
            waiting[session, task] -= 1

    def closed(self, closed: CloseBatch) -> None:
        k = closed.version
        assert k == self.pool.version
        self.closing = closed
        directions = counted(closed).tolist()
        self.counted.update(directions)
        assert max(self.counted.values(), default=0) <= 1, "a direction counted twice"
        for part in closed.contributions:
            assert 0 <= k - part.version <= self.rules.max_staleness
        own = {d for d in directions if d // SIZE == k}
        assert not own & set(closed.dropped)
        missing = SIZE - len(own) - len(closed.dropped)
        assert missing <= SIZE - math.ceil(self.rules.quorum * SIZE), "lost beyond the quorum"
        if self.rules.max_staleness == 0:
            assert all(part.version == k for part in closed.contributions)
            if self.rules.quorum == 1.0:
                assert sorted([*directions, *closed.dropped]) == list(
                    range(k * SIZE, (k + 1) * SIZE)
                )
        due = {direction for direction in self.accepted if direction // SIZE <= k}
        assert due == set(directions), "accepted and not counted, or counted and not accepted"
        self.accepted -= due
        assert self.pool.episodes == 2 * sum(self.counted.values())

    @invariant()
    def leases_do_not_overlap(self) -> None:
        if not hasattr(self, "pool"):
            return
        holders: dict[tuple[int, int], object] = {}
        for lease in self.pool.leases.values():
            if not lease.claim.open:
                continue  # another result was first: this one holds nothing
            for unit in range(lease.first, lease.first + lease.count):
                holder = holders.setdefault((id(lease.work), unit), lease.claim)
                assert holder is lease.claim, "two leases of one open unit that are not copies"
        for claim in {id(lease.claim): lease.claim for lease in self.pool.leases.values()}.values():
            sessions = [lease.session for lease in claim.leases]
            assert len(set(sessions)) == len(sessions), "a session insures itself"

    @invariant()
    def leases_are_of_what_may_count(self) -> None:
        if not hasattr(self, "pool"):
            return
        for task, lease in self.pool.leases.items():
            assert 0 < task == lease.task < self.pool._leases.next_task
            assert lease.count == lease.claim.range.size
            assert lease.work.first <= lease.first < lease.first + lease.count <= lease.work.end
            assert lease.version <= self.pool.version
            if lease.kind == "members":
                assert lease.first // SIZE - lease.version <= self.rules.max_staleness
        work = self.pool._batches.next.work
        early = work.missing - work.unleased.total
        if self.rules.max_staleness == 0:
            assert early == 0, "work ahead where nothing may be stale"

    @property
    def _batches(self) -> list[Batch]:
        return list(self.pool._batches._batches.values())

    @invariant()
    def every_open_unit_is_free_or_held(self) -> None:
        if not hasattr(self, "pool"):
            return
        works = [b.work for b in self._batches if b.index >= self.pool.open_index]
        works += [evaluation.work for evaluation in self.pool._evaluations.under_way]
        for work in works:
            check(work)
        held = {lease.task for lease in self.pool.leases.values()}
        listed = [task for session in self.pool.sessions.values() for task in session.leases]
        assert sorted(held) == sorted(listed), "a lease of a session that is gone"

    @invariant()
    def nothing_piles_up(self) -> None:
        if not hasattr(self, "pool"):
            return
        assert len(self._batches) <= 2 * self.rules.max_staleness + 2
        assert all(batch.index >= self.first_version for batch in self._batches)

    def teardown(self) -> None:
        """In the end every result was answered."""
        if hasattr(self, "pool"):
            self.keep_results(list(self.unkept))
            self.now += ACKNOWLEDGE_AFTER
            self.send(Tick())
            waiting = [task for task, count in self.unanswered.items() if count]
            assert not waiting, f"results without an answer: {waiting}"

    def stuck(self) -> str:
        work = self.pool._batches.open.work
        return f"{work.missing} missing, free {list(work.unleased)}, {self.pool.quiet_because()!r}"


def check(work: Work) -> None:
    """Free units are unleased, held ones are held by one open claim that somebody evaluates."""
    free: set[int] = set()
    last = Range(-2, -2)
    for part in work.unleased:
        assert part.first < part.end
        assert part.first > last.end or part[2:] != last[2:], "neighbours of one history"
        assert part.first >= last.end, "ranges overlap or are not sorted"
        free |= set(range(part.first, part.end))
        last = part
    assert len(free) == work.unleased.total
    held: set[int] = set()
    for claim in work._claims.values():
        assert claim.open
        assert claim.leases, "a claim without a lease"
        held |= set(range(claim.range.first, claim.range.end))
    is_open = set((np.flatnonzero(work.is_open(work.first, work.end)) + work.first).tolist())
    assert not free & held
    assert free | held == is_open
    assert len(is_open) == work.missing


PoolMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # to shrink a failure takes minutes
    suppress_health_check=list(HealthCheck),
)
TestPoolInvariants = PoolMachine.TestCase
