"""Whatever workers do, in any order: what the pool never does, and what it always does."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter

import msgspec
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

from coordinator import update
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
from coordinator.pool.presets import PRESETS
from coordinator.pool.ranges import Range
from coordinator.pool.roster import MOST_TASKS
from coordinator.pool.work import Work
from protocol import normalizer, replay
from protocol.messages import Part, ResultName
from tests.coordinator.driver import piece
from tests.coordinator.simulation import Environment, counted, result, spec

SIZE = 16
"""directions of a batch"""
PROGRESS_SECONDS = 400.0
"""An update must come in this time while one honest worker lives: a few leases of unknown length,
each doubled by the last that ran out, and the time for which a stuck unit is kept back."""
POOLS = {
    **PRESETS,
    "patient": {"quorum": 1.0, "max_staleness": 1, "stale_share": 0.5},
    "eager": {"quorum": 0.75, "max_staleness": 1, "stale_share": 1.0},
}
Name = tuple[SessionId, ResultName]
OBSERVED = normalizer.to_bytes(normalizer.no_observations(4))
SESSIONS = [SessionId(worker, session) for worker in "abcd" for session in ("1", "2")]
HONEST = SessionId("honest", "1")
ENVIRONMENT = Environment(level=lambda version: version % 3)


def shown(value: object) -> object:
    """A command, or a part of one, in a form that compares by value."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple):
        return [shown(item) for item in value]
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return type(value).__name__, [shown(getattr(value, field.name)) for field in fields]
    return repr(value)


def settled(closed: CloseBatch) -> set[int]:
    """The directions that an update uses or drops."""
    return {*counted(closed).tolist(), *closed.dropped}


class PoolMachine(RuleBasedStateMachine):
    """Any mix of what can happen to a pool."""

    @initialize(
        pool=st.sampled_from(sorted(POOLS)),
        copies=st.integers(0, 4),
        patience=st.sampled_from([0.0, 1.0]),
        discount=st.integers(0, 3),
        audits=st.sampled_from([0.0, 0.1, 1.0]),
        whole=st.booleans(),
        version=st.sampled_from([0, 5]),
        every=st.sampled_from([0, 1, 2]),
        goal=st.sampled_from([None, 1000.0]),
        first_task=st.sampled_from([1, 1 << 32]),
    )
    def begin(
        self,
        pool: str,
        copies: int,
        patience: float,
        discount: int,
        audits: float,
        whole: bool,
        version: int,
        every: int,
        goal: float | None,
        first_task: int,
    ) -> None:
        how = {"copies": copies, "patience": patience, "discount": discount}
        how["audit_share"] = audits
        self.spec = spec(
            2 * SIZE,
            pool={**POOLS[pool], **how},
            policy={"kind": "linear"},
            normalizer={"enabled": whole},
            centre={"evaluate_every": every, "episodes": 6, "screening": 2},
            stop={"target": goal} if every else {},
        )
        self.whole = whole
        """results have observation sums, and count as a whole or not at all"""
        self.arithmetic = replay.arithmetic(self.spec)
        self.state = replay.initial_state(self.spec)
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
        self.unanswered: set[Name] = set()
        """results of sessions that are here"""
        self.sent: Counter[Name] = Counter()
        """how often they may still be answered"""
        self.unkept: list[KeepResult] = []
        self.disk: dict[Name, KeepResult] = {}
        """accepted results that are durable and in no durable update"""
        self.taken: dict[Name, set[int]] = {}
        """directions by result that was accepted"""
        self.promised: set[int] = set()
        """directions whose workers were told that they are accepted, and that no update has used"""
        self.settled = set(range(version * SIZE))
        """directions that durable updates used or dropped"""
        self.closing: CloseBatch | None = None
        self.episodes = 0

    # What happens.

    @rule(
        id=st.sampled_from(SESSIONS),
        credit=st.integers(0, 4),
        speed=st.sampled_from([0, 1, 1e12]),
        numeric=st.sampled_from([b"", b"one", b"other"]),
    )
    def join(self, id: SessionId, credit: int, speed: float, numeric: bytes) -> None:
        self.send(Joined(id, credit, speed, numeric=numeric))

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
        self.unkept, self.unanswered, self.sent = [], set(), Counter()
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

    @rule(id=st.sampled_from(SESSIONS), reason=st.sampled_from(["left", "lost"]))
    def leave(self, id: SessionId, reason: str) -> None:
        self.send(Left(id, reason))

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
        task = self.any_task(data)
        units = range(task.first, task.first + task.count)
        failed = data.draw(st.sets(st.sampled_from(units), max_size=2) | st.just(set()))
        self.now += elapsed
        self.finish_task(task, dict.fromkeys(failed, "it raised"))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), all_of_it=st.booleans(), elapsed=st.sampled_from([0.0, 1.0]))
    def finish_in_parts(self, data: st.DataObject, all_of_it: bool, elapsed: float) -> None:
        """Parts of a task come, in any order, some of them twice, some not at all."""
        task = self.any_task(data)
        end = task.first + task.count
        inner = st.sets(st.integers(task.first + 1, end - 1), min_size=1, max_size=3)
        cuts = sorted({task.first, *(data.draw(inner) if task.count > 1 else ()), end})
        parts = data.draw(st.permutations(list(itertools.pairwise(cuts))))
        if not all_of_it:
            parts = parts[: data.draw(st.integers(0, len(parts)))]
        again = data.draw(st.lists(st.sampled_from(parts), max_size=1)) if parts else []
        for first, end in [*parts, *again]:
            failed = data.draw(st.just(set()) | st.sets(st.integers(first, end - 1), max_size=1))
            self.now += elapsed
            self.finish_task(task, dict.fromkeys(failed, "it raised"), first, end - first)
            if data.draw(st.sampled_from([False, False, True])):
                self.send(Refused(task.session, task.task, False, "handed back"))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def finish_for_another_session(self, data: st.DataObject) -> None:
        """Both machines of one identity hold the key that the lease was given to."""
        task = self.any_task(data)
        other = SessionId(task.session.worker, "2")
        self.finish_task(task, {}, session=other)

    @precondition(lambda self: self.tasks)
    @rule(
        data=st.data(),
        id=st.sampled_from(SESSIONS),
        shift=st.integers(-3, 3),
        count=st.integers(1, 6),
    )
    def finish_what_overlaps(
        self, data: st.DataObject, id: SessionId, shift: int, count: int
    ) -> None:
        """A lease of an earlier epoch was cut in another way."""
        task = self.any_task(data)
        first = max(0, task.first + shift)
        other = msgspec.structs.replace(task, session=id, task=99, first=first, count=count)
        self.arrive(result(other, ENVIRONMENT))

    @rule(
        id=st.sampled_from(SESSIONS),
        task=st.integers(1, 60),
        kind=st.sampled_from(["members", "centre"]),
        version=st.sampled_from([0, 0, -1, 1, -2, 2]),
        first=st.integers(-2, SIZE + 2),
        count=st.sampled_from([1, 2, 3, 5, 2 * SIZE]),
        cut=st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)),
        failing=st.sampled_from(["none", "one", "all"]),
    )
    def send_what_nobody_asked_for(
        self,
        id: SessionId,
        task: int,
        kind: str,
        version: int,
        first: int,
        count: int,
        cut: tuple[int, int],
        failing: str,
    ) -> None:
        """A result of any range and version, under a number that may be that of another's lease; as
        if an earlier epoch had leased it."""
        version = max(0, self.pool.version + version)
        first = max(0, first + (version * SIZE if kind == "members" else 0))
        made = SendTask(id, task, kind, version, first, count)  # type: ignore[arg-type]
        failed = {"none": (), "one": (first,), "all": range(first, first + count)}[failing]
        arrived = result(made, ENVIRONMENT, None, dict.fromkeys(failed, "it raised"))
        if any(cut):
            arrived = dataclasses.replace(arrived, part=Part(*cut))
        self.arrive(arrived)

    @precondition(lambda self: self.results)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A result is sent once more."""
        self.arrive(data.draw(st.sampled_from(self.results[-8:])))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), blame=st.booleans(), own=st.sampled_from([True, True, False]))
    def refuse(self, data: st.DataObject, blame: bool, own: bool) -> None:
        task = self.any_task(data)
        session = task.session if own else data.draw(st.sampled_from(SESSIONS))
        self.send(Refused(session, task.task, blame, "no"))

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
            self.keep_results(list(self.unkept))
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

    def any_task(self, data: st.DataObject) -> SendTask:
        """A task that was once given out, more often one that is out than not."""
        out = sorted(self.tasks.keys() & self.pool.leases.keys())
        if out and data.draw(st.integers(0, 3)):
            return self.tasks[data.draw(st.sampled_from(out))]
        return self.tasks[data.draw(st.sampled_from(sorted(self.tasks)))]

    # What must hold.

    def finish_task(
        self,
        task: SendTask,
        failed: dict[int, str],
        first: int | None = None,
        count: int | None = None,
        session: SessionId | None = None,
    ) -> None:
        arrived = piece(
            task,
            task.first if first is None else first,
            task.count if count is None else count,
            failed,
            session,
            ENVIRONMENT,
        )
        if task.session == HONEST:
            self.tasks.pop(task.task, None)
        self.arrive(arrived)

    def keep_results(self, some: list[KeepResult]) -> None:
        if not some:
            return
        self.unkept = self.unkept[len(some) :]
        for one in some:
            if one.arrived.kind == "centre" or one.until >= self.pool.version:
                self.disk[one.arrived.session, one.arrived.name] = one
        self.send(Kept(tuple((one.arrived.session, one.arrived.name) for one in some)))

    def arrive(self, arrived: Arrived) -> None:
        if self.whole and arrived.kind == "members" and not arrived.observed:
            arrived = dataclasses.replace(arrived, observed=OBSERVED)
        self.results.append(arrived)
        if not self.pool.ended:
            self.sent[arrived.session, arrived.name] += 1
            if arrived.session in self.pool.sessions:
                self.unanswered.add((arrived.session, arrived.name))
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
            # A session that comes back sends again what was not answered.
            self.unanswered -= {name for name in self.unanswered if name[0] == id}
        for id, session in self.pool.sessions.items():
            if len(session.leases) > held.get(id, 0):
                assert len(session.leases) <= session.credit, "more tasks than the session can hold"
                unkept = sum(keep.arrived.session == id for keep in self.unkept)
                assert len(session.leases) + unkept <= MOST_TASKS, "more than can be kept"

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
            valid = set((np.flatnonzero(~np.isnan(event.returns[:, 0])) + event.first).tolist())
            dropped = {unit for batch in self._batches for unit in batch.dropped}
            fresh = valid - self.accepted - set(+self.counted) - dropped
            assert fresh or event.failed, "accepted, and of no use"
            assert fresh == valid or not self.whole, "a part of what counts as a whole"
            self.accepted |= fresh
            self.taken[event.session, event.name] = valid

    def given(self, task: SendTask) -> None:
        assert task.task not in self.tasks, "a task number twice"
        assert self.pool.leases[task.task].session == task.session
        self.tasks[task.task] = task
        if task.kind == "members":
            index = task.first // SIZE
            assert (task.first + task.count - 1) // SIZE == index, "a task across two batches"
            auditing, lease = self.pool._auditing, self.pool.leases[task.task]
            if auditing is not None and auditing.checks.of(lease) is not None:
                assert self.pool.version - task.version < self.spec.versions_kept
            else:
                assert task.version == self.pool.version
                assert index >= self.pool.version
            assert index - task.version <= self.rules.max_staleness, "leased too far ahead"
        if len(self.tasks) > 40:  # enough to draw from
            del self.tasks[min(self.tasks)]

    def answered(self, session: SessionId, results: tuple[ResultName, ...], outcome: str) -> None:
        for name in results:
            if outcome == "accepted":
                self.promised |= self.taken.pop((session, name), set()) - self.settled
            assert self.sent[session, name] > 0, "an answer for nothing"
            self.sent[session, name] -= 1
            self.unanswered.discard((session, name))

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
        self.makes_one_update(closed)

    def makes_one_update(self, closed: CloseBatch) -> None:
        """What counts decides, not the order in which it came."""
        before = dataclasses.replace(self.state, version=closed.version)
        parts = closed.contributions
        digests = {
            update.make(
                self.spec,
                self.arithmetic,
                before,
                1,
                dataclasses.replace(closed, contributions=order),
            ).update.digest_after
            for order in (parts, parts[::-1], parts[1::2] + parts[::2])
        }
        assert len(digests) == 1

    @invariant()
    def leases_do_not_overlap(self) -> None:
        if not hasattr(self, "pool"):
            return
        holders: dict[tuple[int, int], object] = {}
        for lease in self.pool.leases.values():
            if not lease.claim.open:
                continue  # another result was first: this one holds nothing
            first, end = lease.claim.range.span
            for unit in range(max(first, lease.first), min(end, lease.first + lease.count)):
                if not lease.work.holds(lease.claim, unit):
                    continue
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
            assert 0 < lease.left <= lease.count
            if lease.claim.open:
                assert lease.claim.left <= lease.claim.range.size
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
            assert not self.unanswered, "results without an answer"

    def stuck(self) -> str:
        work = self.pool._batches.open.work
        return f"{work.missing} missing, free {list(work.unleased)}, {self.pool.quiet_because()!r}"


def check(work: Work) -> None:
    """Free units are unleased, held ones are held by one open claim that somebody evaluates."""
    free: set[int] = set()
    last = Range(-2, -2)
    for part in work.unleased:
        assert part.first < part.end
        assert part.first > last.end or part.history != last.history, "neighbours of one history"
        assert part.first >= last.end, "ranges overlap or are not sorted"
        free |= set(range(part.first, part.end))
        last = part
    assert len(free) == work.unleased.total
    assert not free & work.stuck.keys()
    free |= work.stuck.keys()
    held: set[int] = set()
    for claim in work._claims.values():
        assert claim.open
        assert any(not lease.useless for lease in claim.leases), "a claim that nobody can answer"
        units = {unit for unit in range(*claim.range.span) if work.holds(claim, unit)}
        assert len(units) == claim.left
        assert {claim.range.first, claim.range.end - 1} <= units
        assert not held & units
        held |= units
    is_open = set((np.flatnonzero(work.is_open(work.first, work.end)) + work.first).tolist())
    assert not free & held
    assert free | held == is_open
    assert len(is_open) == work.missing


PoolMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # to shrink a failure takes minutes
    suppress_health_check=list(HealthCheck),
)
TestPoolInvariants = PoolMachine.TestCase
