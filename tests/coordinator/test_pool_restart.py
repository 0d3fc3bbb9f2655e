"""A pool that goes on where another one was lost: nothing acknowledged is lost, nothing counts
twice, and in synchronous mode all comes out as if nothing had happened."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from coordinator.pool import Pool
from coordinator.pool.events import (
    Arrived,
    CentreJudged,
    CloseBatch,
    Command,
    EndRun,
    Event,
    Happened,
    HeldLease,
    Joined,
    KeepResult,
    Kept,
    Left,
    SendAcknowledge,
    SendTask,
    SessionId,
    Tick,
    Updated,
)
from coordinator.pool.leases import first_task
from protocol import amendments
from protocol.amended import NOTHING, Amended
from protocol.batches import Layout
from protocol.spec import RunSpec
from tests.coordinator.simulation import Environment, counted, result, spec

GROUP_SECONDS = 0.1
"""between an accepted result and its commit"""
UPDATE_SECONDS = 0.03
TICK_SECONDS = 0.05
LATENCY = 0.005


@dataclass(eq=False)
class Evaluator:
    """A worker: evaluates its tasks in order, and keeps results until they are acknowledged."""

    id: SessionId
    speed: float
    credit: int = 2
    held: dict[int, SendTask] = field(default_factory=dict)
    unanswered: dict[int, Arrived] = field(default_factory=dict)
    free_at: float = 0.0
    dead: bool = False
    welcomed: int = 0
    """epoch of the coordinator that it said hello to"""


@dataclass
class Disk:
    """What survives the coordinator."""

    version: int = 0
    episodes: int = 0
    results: dict[tuple[SessionId, int], KeepResult] = field(default_factory=dict)
    judged: dict[int, CentreJudged] = field(default_factory=dict)
    updates: list[CloseBatch] = field(default_factory=list)
    settled: set[int] = field(default_factory=set)
    """directions that the updates used or dropped"""
    amended: Amended = NOTHING

    def holds(self, arrived: Arrived) -> bool:
        """Whether this result, or one of the same units that was first, is safe."""
        if arrived.kind == "centre":
            if arrived.version in self.judged:
                return True
        elif not self.settled.isdisjoint(_directions(arrived)):
            return True
        return any(
            keep.arrived.kind == arrived.kind
            and (arrived.kind == "members" or keep.arrived.version == arrived.version)
            and keep.arrived.first < arrived.first + arrived.count
            and arrived.first < keep.arrived.first + keep.arrived.count
            for keep in self.results.values()
        )


def _directions(arrived: Arrived) -> range:
    return range(arrived.first, arrived.first + arrived.count)


def _settled(update: CloseBatch) -> set[int]:
    return {*counted(update).tolist(), *update.dropped}


class World:
    """Workers, a disk, and a coordinator that may die at any event."""

    def __init__(self, run: RunSpec, environment: Environment, failing: frozenset[int]) -> None:
        self.spec = run
        self.environment = environment
        self.failing = failing
        self.now = 100.0
        self.disk = Disk()
        self.closed: list[CloseBatch] = []
        self.ended: EndRun | None = None
        self.evaluators: dict[SessionId, Evaluator] = {}
        self.events = 0
        self.deaths: dict[int, str] = {}
        self.downtime = 0.5
        self.on_death: Callable[[], None] = lambda: None
        self.retaken = 0
        """leases taken up again"""
        self.changes: dict[int, dict[str, float]] = {}
        """settings that updates amend, by update"""
        self.told: dict[tuple[SessionId, int], Arrived] = {}
        """results that their workers were told to be accepted"""
        self._agenda: list[tuple[float, int, int, Callable[[], None]]] = []
        self._order = 0
        self._epoch = 1
        self._began = self.now
        self._elapsed = 0.0
        self.pool: Pool | None = Pool(run, 0, self.now)
        self._unkept: list[KeepResult] = []
        self._episodes: dict[int, int] = {}
        self._later(TICK_SECONDS, self._tick)

    # Time.

    def _later(self, seconds: float, action: Callable[[], None], epoch: int | None = None) -> None:
        """Do something later; where `epoch` is given, only while that coordinator lives."""
        self._order += 1
        heapq.heappush(self._agenda, (self.now + seconds, self._order, epoch or 0, action))

    def run(self, seconds: float = 2000.0) -> None:
        """Go on until the run has ended."""
        end = self.now + seconds
        while self.ended is None:
            self.now, _, epoch, action = heapq.heappop(self._agenda)
            assert self.now < end, f"the run does not end: {self.pool and self.pool.progress}"
            if epoch in (0, self._epoch):
                action()

    # The coordinator's shell.

    def _tick(self) -> None:
        self._tell(Tick())
        self._later(TICK_SECONDS, self._tick)

    def _tell(self, event: Event) -> None:
        if self.pool is None or self.ended is not None:
            return
        self.events += 1
        death = self.deaths.get(self.events)
        commands = self.pool.handle(event, self.now) if death != "before" else []
        for command in commands if death != "amid" else []:
            self._obey(command)
        if death is not None:
            self._die()

    def _obey(self, command: Command) -> None:
        match command:
            case SendTask():
                self._acknowledge(command.session, command.acknowledged, "accepted")
                self._give(command)
            case SendAcknowledge():
                self._acknowledge(command.session, command.results, command.outcome)
            case KeepResult():
                if not self._unkept:
                    self._later(GROUP_SECONDS, self._keep, self._epoch)
                self._unkept.append(command)
            case CloseBatch():
                assert self.pool is not None
                self.closed.append(command)
                self._episodes[command.version + 1] = self.pool.episodes
                self._later(UPDATE_SECONDS, lambda: self._updated(command), self._epoch)
            case CentreJudged():
                self.disk.judged[command.version] = command
            case Happened():
                words = command.what.split()
                if words[-3:] == ["taken", "up", "again"]:
                    self.retaken += int(words[0])
            case EndRun():
                self.ended = command

    def _keep(self) -> None:
        group, self._unkept = self._unkept, []
        for keep in group:
            if keep.arrived.kind == "centre" or keep.until >= self.disk.version:
                self.disk.results[keep.arrived.session, keep.arrived.task] = keep
        self._tell(Kept(tuple((keep.arrived.session, keep.arrived.task) for keep in group)))

    def _updated(self, closed: CloseBatch) -> None:
        disk = self.disk
        disk.version = closed.version + 1
        disk.episodes = self._episodes[disk.version]
        disk.updates.append(closed)
        disk.settled |= _settled(closed)
        disk.results = {
            name: keep
            for name, keep in disk.results.items()
            if (keep.until >= disk.version if keep.arrived.kind == "members" else True)
        }
        changes, window = self.changes.get(closed.version, {}), 1 + self.spec.pool.max_staleness
        held = amendments.amend(self.spec, disk.amended, closed.version, changes)
        disk.amended = held.reached(disk.version, window)
        if changes:
            self._tell(Updated(disk.version, *self._settings()))
        else:
            self._tell(Updated(disk.version))

    def _settings(self) -> tuple[RunSpec, Layout]:
        """What holds now, as the disk has it."""
        held = self.disk.amended
        return amendments.in_force(self.spec, held), amendments.layout(self.spec, held)

    def _die(self) -> None:
        self.pool, self._unkept = None, []
        self._elapsed += self.now - self._began
        self._epoch += 1
        self.on_death()
        self._later(self.downtime, self._resume)

    def _resume(self) -> None:
        disk, every = self.disk, self.spec.centre.evaluate_every
        due = range(max(0, disk.version - self.spec.versions_kept + 1), disk.version + 1)
        unjudged = [v for v in due if every and v % every == 0 and v not in disk.judged]
        kept = list(disk.results.values())
        spec, layout = self._settings()
        self.pool = Pool(
            spec,
            disk.version,
            self.now,
            episodes=disk.episodes,
            first_task=first_task(self._epoch),
            unjudged=unjudged,
            elapsed=self._elapsed,
            used=self._used(),
            layout=layout,
        )
        self._began = self.now
        epoch = self._epoch
        for keep in kept:
            if self._epoch == epoch:
                self._tell(keep.arrived)
        delay = 0.0
        for evaluator in self.evaluators.values():
            delay += 0.03
            self._later(delay, lambda evaluator=evaluator: self.hello(evaluator), self._epoch)  # type: ignore[misc]

    def _used(self) -> list[tuple[int, int]]:
        last = self.disk.updates[len(self.disk.updates) - self.spec.pool.max_staleness :]
        return [(direction, 1) for update in last for direction in sorted(_settled(update))]

    # Workers.

    def join(self, name: str, speed: float, credit: int = 2) -> Evaluator:
        evaluator = Evaluator(SessionId(name, "s"), speed, credit)
        self.evaluators[evaluator.id] = evaluator
        self.hello(evaluator)
        return evaluator

    def hello(self, evaluator: Evaluator) -> None:
        """Say which leases it holds; then send again what was not answered."""
        if evaluator.dead or self.pool is None:
            return
        evaluator.welcomed = self._epoch
        held = tuple(
            HeldLease(task.task, task.kind, task.version, task.first, task.count)
            for task in evaluator.held.values()
        )
        epoch = self._epoch
        self._tell(Joined(evaluator.id, evaluator.credit, 0.0, held))
        for arrived in list(evaluator.unanswered.values()):
            if self._epoch == epoch:
                self._tell(arrived)

    def leave(self, evaluator: Evaluator) -> None:
        """It is gone, with all that it had."""
        evaluator.dead = True
        self._tell(Left(evaluator.id, "killed"))

    def _give(self, task: SendTask) -> None:
        evaluator = self.evaluators[task.session]
        if evaluator.dead:
            return
        evaluator.held[task.task] = task
        named = {unit: "it raises" for unit in _units(task) if unit in self.failing}
        arrived = result(task, self.environment, failed=named)
        begin = max(self.now + LATENCY, evaluator.free_at)
        evaluator.free_at = begin + int(arrived.lengths.sum()) / evaluator.speed
        seconds = evaluator.free_at - self.now + LATENCY
        self._later(seconds, lambda: self._finish(evaluator, arrived))

    def _finish(self, evaluator: Evaluator, arrived: Arrived) -> None:
        if evaluator.dead:
            return
        evaluator.held.pop(arrived.task, None)
        evaluator.unanswered[arrived.task] = arrived
        if evaluator.welcomed == self._epoch:
            self._tell(arrived)

    def _acknowledge(self, id: SessionId, tasks: tuple[int, ...], outcome: str) -> None:
        """A worker drops what it is told of: what was taken must be safe by then."""
        for task in tasks:
            arrived = self.evaluators[id].unanswered.pop(task, None)
            if arrived is None:
                continue
            if outcome == "accepted":
                self.told[id, task] = arrived
            if outcome == "accepted" or self.spec.pool.quorum == 1.0:
                assert arrived.failed or self.disk.holds(arrived), f"{outcome} what may be lost"


def _units(task: SendTask) -> range:
    return range(task.first, task.first + task.count) if task.kind == "members" else range(0)


def contents(closed: CloseBatch) -> tuple[list[int], list[list[float]], tuple[int, ...]]:
    """(directions, returns, dropped) of an update: what it is made of, whoever did it."""
    parts = [part.returns[~np.isnan(part.returns[:, 0])] for part in closed.contributions]
    returns = np.concatenate([np.empty((0, 2)), *parts])
    directions = counted(closed)
    order = np.argsort(directions, kind="stable")
    return directions[order].tolist(), returns[order].tolist(), closed.dropped


SIZE = 24
"""directions of a batch"""
LEVELS = np.random.default_rng(3).normal(np.arange(40) / 2.0, 0.2)
FAILING = frozenset({3, 60, 61})
ENVIRONMENT = Environment(level=lambda version: float(LEVELS[version]))
SYNCHRONOUS = spec(
    2 * SIZE,
    pool={"task_seconds": 0.2, "minimum_task_seconds": 0.02},
    centre={"evaluate_every": 2, "episodes": 8, "screening": 3},
    stop={"target": 3.0, "updates": 12},
)
SPEEDS = [5_000.0, 2_000.0, 9_000.0]


def world(run: RunSpec = SYNCHRONOUS) -> World:
    made = World(run, ENVIRONMENT, FAILING)
    for number, speed in enumerate(SPEEDS):
        made.join(f"worker{number}", speed)
    return made


def undisturbed() -> World:
    made = world()
    made.run()
    return made


UNDISTURBED = undisturbed()


def test_the_undisturbed_run_is_worth_comparing_with() -> None:
    assert UNDISTURBED.ended is not None
    assert UNDISTURBED.ended.reached
    assert 4 <= UNDISTURBED.ended.version < 12
    assert sum(len(closed.dropped) for closed in UNDISTURBED.closed) == 3
    assert UNDISTURBED.events > 150


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    deaths=st.dictionaries(
        st.integers(1, UNDISTURBED.events),
        st.sampled_from(["before", "amid", "after"]),
        min_size=1,
        max_size=5,
    ),
    downtime=st.sampled_from([0.0, 0.05, 1.0]),
    loses_a_worker=st.booleans(),
)
def test_a_synchronous_run_comes_out_the_same_however_often_its_coordinator_dies(
    deaths: dict[int, str], downtime: float, loses_a_worker: bool
) -> None:
    made = world()
    made.deaths, made.downtime = deaths, downtime
    if loses_a_worker:
        # With what it holds and has not been acknowledged; what was is on the disk.
        made.on_death = lambda: made.leave(made.evaluators[SessionId("worker1", "s")])
    made.run()
    assert made.ended == UNDISTURBED.ended
    once = {closed.version: contents(closed) for closed in UNDISTURBED.closed}
    for closed in made.closed:
        if closed.version in once:
            assert contents(closed) == once[closed.version], f"update {closed.version} differs"
    assert [update.version for update in made.disk.updates] == list(range(made.disk.version))
    everything = Counter(d for update in made.disk.updates for d in _settled(update))
    assert everything == Counter(range(made.disk.version * SIZE))
    verdicts = {v: made.disk.judged[v] for v in made.disk.judged if v in UNDISTURBED.disk.judged}
    assert verdicts == {v: UNDISTURBED.disk.judged[v] for v in verdicts}
    assert made.told


ASYNCHRONOUS = spec(
    2 * SIZE,
    pool={
        "task_seconds": 0.2,
        "minimum_task_seconds": 0.02,
        "quorum": 0.7,
        "max_staleness": 2,
        "stale_share": 0.5,
    },
    centre={"evaluate_every": 2, "episodes": 8, "screening": 3},
    stop={"updates": 10},
)


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    deaths=st.dictionaries(
        st.integers(1, 300), st.sampled_from(["before", "amid", "after"]), min_size=1, max_size=5
    ),
    downtime=st.sampled_from([0.0, 0.05, 1.0]),
)
def test_what_was_accepted_counts_once_in_a_pool_that_waits_for_nobody(
    deaths: dict[int, str], downtime: float
) -> None:
    made = world(ASYNCHRONOUS)
    made.join("slow", 400.0)
    made.deaths, made.downtime = deaths, downtime
    made.run()
    used = Counter(d for update in made.disk.updates for d in counted(update).tolist())
    assert max(used.values()) == 1
    for update in made.disk.updates:
        for part in update.contributions:
            assert 0 <= update.version - part.version <= 2
    for name, arrived in made.told.items():
        if arrived.kind == "members" and name not in made.disk.results:
            assert arrived.failed or all(d in used for d in _directions(arrived)), f"{name} is lost"


def test_a_restarted_pool_takes_the_leases_of_its_workers_up_again() -> None:
    made = world()
    made.deaths, made.downtime = {60: "after"}, 0.0
    made.run()
    assert made.retaken > 0
