"""A simulated worker: evaluates its tasks in order, keeps results until they are answered."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coordinator.pool.events import (
    Arrived,
    Event,
    Heard,
    HeldLease,
    Joined,
    Left,
    SendTask,
    SessionId,
)
from coordinator.pool.sizing import as_full
from protocol.messages import Part, ResultName
from scripts.simulation.agenda import Agenda
from scripts.simulation.environments import Environment, Played
from scripts.simulation.meter import Meter
from worker.outbox import RESEND_AFTER

SAYS_IT_LIVES_AFTER = 10.0
"""Seconds of silence after which a worker says that it is there, give or take a tenth."""
LATE_SECONDS = 5.0
"""Mean delay of a result that comes late."""


@dataclass(frozen=True)
class Traits:
    """What a worker is like; seconds, and shares in 0 .. 1."""

    speed: float = 10_000.0
    """environment steps per second"""
    declared: float = 0.0
    """the speed that it says it has; 0: it says nothing"""
    credit: int = 2
    latency: float = 0.005
    """each way"""
    jitter: float = 0.0
    """mean of what is added to the latency of a message, exponentially distributed"""
    reorders: bool = False
    """messages overtake each other"""
    late: float = 0.0
    """share of its results that come `LATE_SECONDS` later, on average"""
    twice: float = 0.0
    """share of its results that come twice"""
    part_seconds: float = math.inf
    """of longer tasks what is finished is sent this often"""
    clock: float = 0.0
    """seconds that its clock is ahead of the coordinator's"""
    restarts: float = 0.0
    """seconds that a direction which fails takes it: it ends its process twice"""
    numeric: bytes = b""
    """its numeric class"""
    lanes: int = 0
    """episodes that take about as long together as a few of them; 0: it has none"""


@dataclass(eq=False)
class Evaluation:
    """The task that a worker is at."""

    task: SendTask
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    ends: NDArray[np.int64] | NDArray[np.float64]
    """steps after which each unit is finished"""
    since: float
    """when `steps` was right"""
    steps: float = 0.0
    """made so far"""
    sent: int = 0
    """units whose results are sent"""
    parts_at: float = 0.0
    """when the next part is due"""


class Worker:
    """One session. It is alone with its traits, the agenda and a wire to the coordinator."""

    def __init__(
        self,
        id: SessionId,
        traits: Traits,
        agenda: Agenda,
        environment: Environment,
        meter: Meter,
        send: Callable[[Event], None],
        seed: int,
    ) -> None:
        """`send` is what hands an event to the coordinator at once."""
        self.id = id
        self.traits = traits
        self.speed = traits.speed
        """steps per second from its next task on; `change_pace` takes effect at once"""
        self.stalls = False
        """takes tasks, says it is alive, never returns one"""
        self.vanished = False
        """says nothing any more, and nobody is told"""
        self.units = 0
        """that it has evaluated"""
        self.says: Callable[[SendTask, Played], Played] = lambda task, played: played
        """what it returns in place of what it found"""
        self._agenda = agenda
        self._environment = environment
        self._meter = meter
        self._send = send
        self._random = random.Random(seed)
        self._pace = 1.0
        self._counted = 0.0
        """speed that the meter knows of"""
        self._busy = 0.0
        """likewise while it evaluates"""
        self._queue: deque[tuple[float, SendTask]] = deque()
        self._current: Evaluation | None = None
        self._plan = 0
        """number of the last plan: earlier ones were overtaken by a change of pace"""
        self._unanswered: dict[ResultName, tuple[float, Arrived]] = {}
        self._spoke = agenda.now
        self._out_clear = self._in_clear = 0.0

    # Coming and going.

    def hello(self) -> Joined:
        """What it says when it comes, or comes back: it begins to count as there."""
        self._spoke = self._agenda.now
        if not self._counted:
            self._count()
            self._agenda.after(self._silence(), self._live)
        held = [task for _, task in self._queue]
        if self._current is not None:
            held.insert(0, self._current.task)
        leases = tuple(HeldLease(t.task, t.kind, t.version, t.first, t.count) for t in held)
        traits = self.traits
        return Joined(
            self.id,
            traits.credit,
            traits.declared,
            leases,
            lanes=traits.lanes,
            numeric=traits.numeric,
        )

    def send_again(self) -> None:
        """Send all results that were not answered, as after each welcome."""
        for name, (_, arrived) in list(self._unanswered.items()):
            self._post(name, arrived)

    def leave(self) -> Left:
        """Stop in the middle of a task, with what of it is finished sent: what it says last."""
        if self._current is not None and math.isfinite(self.traits.part_seconds):
            self._send_part(self._current)
        self._end()
        return Left(self.id, "left")

    def vanish(self) -> None:
        """Be gone with all that it had, without a word."""
        self._end()

    def change_pace(self, factor: float) -> None:
        """Be so many times as fast as its speed from now on; 0: it stands still."""
        if self.vanished:
            return
        current = self._current
        if current is not None:
            self._advance(current)
        self._pace = factor
        self._count()
        if current is not None:
            self._set_busy(self.speed * factor)
            self._plan_ahead(current)

    def _end(self) -> None:
        self.vanished = True
        self._set_busy(0.0)
        self._meter.change(self._agenda.now, capacity=-self._counted)
        self._counted = 0.0
        self._current = None
        self._queue.clear()

    def _count(self) -> None:
        speed = self.speed * self._pace
        self._meter.change(self._agenda.now, capacity=speed - self._counted)
        self._counted = speed

    def _set_busy(self, speed: float) -> None:
        self._meter.change(self._agenda.now, busy=speed - self._busy)
        self._busy = speed

    # What it hears.

    def take(self, task: SendTask) -> None:
        """A task was sent to it, and with it answers."""
        arrives = self._in_clear = self._arrival(self._in_clear)
        if task.acknowledged:
            self._agenda.at(arrives, lambda: self._forget(task.acknowledged))
        if not self.stalls and not self.vanished:
            self._queue.append((arrives, task))
            if self._current is None and len(self._queue) == 1:
                self._agenda.at(arrives, self._begin)

    def answered(self, results: Iterable[ResultName]) -> None:
        """Answers were sent to it."""
        self._in_clear = self._arrival(self._in_clear)
        self._agenda.at(self._in_clear, lambda: self._forget(results))

    def _forget(self, results: Iterable[ResultName]) -> None:
        for name in results:
            self._unanswered.pop(name, None)

    # What it does.

    def _begin(self) -> None:
        """Begin the next task, if it has arrived."""
        if self._current is not None or self.vanished or not self._queue:
            return
        arrives, task = self._queue[0]
        now = self._agenda.now
        if arrives > now:
            self._agenda.at(arrives, self._begin)
            return
        self._queue.popleft()
        played = self._environment.play(task.kind, task.version, task.first, task.count)
        returns, lengths = self.says(task, played)
        steps = lengths.sum(axis=1) if lengths.ndim == 2 else lengths
        if self.traits.restarts:
            raised = np.isnan(returns).reshape(len(returns), -1).any(axis=1)
            steps = steps + (raised * self.traits.restarts * self.speed).astype(np.int64)
        if self.traits.lanes:
            fill = -(-self.traits.lanes // (lengths.size // task.count))
            steps = steps * (as_full(task.count, fill) / task.count)
        ends = np.cumsum(steps)
        current = Evaluation(task, returns, lengths, ends, now)
        current.parts_at = self._by_its_clock(self.traits.part_seconds)
        self._current = current
        self._count()
        self._set_busy(self.speed * self._pace)
        self._plan_ahead(current)

    def _plan_ahead(self, current: Evaluation) -> None:
        """Look again when the task is finished, or a part of it is due."""
        self._plan += 1
        plan = self._plan
        speed = self.speed * self._pace
        finished = math.inf
        if speed > 0.0:
            finished = self._agenda.now + (float(current.ends[-1]) - current.steps) / speed
        if finished <= current.parts_at:
            self._agenda.at(finished, lambda: self._finish(plan))
        elif math.isfinite(current.parts_at):
            self._agenda.at(current.parts_at, lambda: self._pause_for_part(plan))

    def _finish(self, plan: int) -> None:
        current = self._current
        if plan != self._plan or current is None:
            return
        self._set_busy(0.0)
        self._current = None
        task = current.task
        self.units += task.count
        self._hand_in(result(task, current.returns, current.lengths, current.sent, task.count))
        self._begin()

    def _pause_for_part(self, plan: int) -> None:
        current = self._current
        if plan != self._plan or current is None:
            return
        self._send_part(current)
        current.parts_at = self._by_its_clock(self.traits.part_seconds)
        self._plan_ahead(current)

    def _send_part(self, current: Evaluation) -> None:
        """Send the units that are finished and not sent, if any; the last makes a whole result."""
        self._advance(current)
        done = int(np.searchsorted(current.ends, current.steps + 1e-6, side="right"))
        done = min(done, current.task.count - 1)
        if done > current.sent:
            self._hand_in(
                result(current.task, current.returns, current.lengths, current.sent, done)
            )
            current.sent = done

    def _advance(self, current: Evaluation) -> None:
        now = self._agenda.now
        current.steps += (now - current.since) * self.speed * self._pace
        current.since = now

    def _by_its_clock(self, seconds: float) -> float:
        """When its own clock will have gone on so far."""
        return (self._agenda.now + self.traits.clock + seconds) - self.traits.clock

    # What it says.

    def _hand_in(self, arrived: Arrived) -> None:
        if self.traits.late and self._random.random() < self.traits.late:
            delay = self._random.expovariate(1.0 / LATE_SECONDS)
            self._unanswered[arrived.name] = (self._agenda.now + delay, arrived)
            self._agenda.after(delay, lambda: self._post(arrived.name, arrived))
        else:
            self._post(arrived.name, arrived)
        if self.traits.twice and self._random.random() < self.traits.twice:
            self._agenda.after(self._random.random(), lambda: self._post(arrived.name, arrived))

    def _post(self, name: ResultName, arrived: Arrived) -> None:
        """Send a result, which is kept until it is answered."""
        if self.vanished:
            return
        self._unanswered[name] = (self._agenda.now, arrived)
        self._say(arrived)

    def _say(self, event: Event) -> None:
        self._spoke = self._agenda.now
        self._out_clear = self._arrival(self._out_clear)
        self._agenda.at(self._out_clear, lambda: self._send(event))

    def _arrival(self, clear: float) -> float:
        """When a message of now arrives; not before the one ahead of it, as a rule."""
        traits = self.traits
        delay = traits.latency
        if traits.jitter:
            delay += self._random.expovariate(1.0 / traits.jitter)
        arrives = self._agenda.now + delay
        return arrives if traits.reorders else max(arrives, clear)

    def _silence(self) -> float:
        return SAYS_IT_LIVES_AFTER * self._random.uniform(0.9, 1.1)

    def _live(self) -> None:
        """Send again what is due, and say that it is there where it has said nothing else."""
        if self.vanished:
            return
        now = self._agenda.now
        for name, (sent, arrived) in list(self._unanswered.items()):
            if now - sent >= RESEND_AFTER:
                self._post(name, arrived)
        if now - self._spoke >= 0.9 * SAYS_IT_LIVES_AFTER:
            self._say(Heard(self.id))
        wait = self._spoke + self._silence() - now
        for sent, _ in self._unanswered.values():
            wait = min(wait, sent + RESEND_AFTER - now)
        self._agenda.after(max(wait, 0.1), self._live)


def result(
    task: SendTask,
    returns: NDArray[np.float64],
    lengths: NDArray[np.int64],
    begin: int,
    end: int,
) -> Arrived:
    """The units `[begin, end)` of a task, as a whole result or as a part; NaN returns are named."""
    rows = slice(begin, end)
    taken = returns[rows]
    raised = np.flatnonzero(np.isnan(taken if taken.ndim == 1 else taken[:, 0]))
    return Arrived(
        session=task.session,
        task=task.task,
        kind=task.kind,
        version=task.version,
        first=task.first + begin,
        returns=taken,
        lengths=lengths[rows],
        failed=tuple((task.first + begin + row, "it raises") for row in raised.tolist()),
        part=None if end - begin == task.count else Part(begin, task.count - end),
    )
