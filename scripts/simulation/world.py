"""Workers around a pool in virtual time, who come and go as the scene wants."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from coordinator.pool import Pool
from coordinator.pool.events import CloseBatch, Command, SendAcknowledge, SendTask, SessionId
from protocol.spec import RunSpec
from scripts.simulation.agenda import Agenda
from scripts.simulation.environments import Environment, Formula
from scripts.simulation.meter import Meter
from scripts.simulation.shell import Shell, Timing
from scripts.simulation.worker import Traits, Worker


class World:
    """One run: an agenda, a coordinator around the real pool, and workers."""

    def __init__(
        self,
        run: RunSpec,
        environment: Environment | None = None,
        timing: Timing | None = None,
        learn: Callable[[CloseBatch], float] | None = None,
        pool: Pool | None = None,
        seed: int = 0,
        now: float = 0.0,
    ) -> None:
        """`learn` gets each closed batch, makes its update and says how many virtual seconds that
        takes; from `Updated` on workers evaluate the next version."""
        self.run_spec = run
        self.environment = environment or Formula()
        self.agenda = Agenda(now)
        self.meter = Meter(now)
        self.shell = Shell(run, self.agenda, self._deliver, timing or Timing(), learn, pool)
        self.workers: dict[SessionId, Worker] = {}
        """those that are there"""
        self._random = random.Random(seed)

    def worker(self, id: SessionId, traits: Traits) -> Worker:
        """A worker that has not said hello yet."""
        worker = self.workers[id] = Worker(
            id,
            traits,
            self.agenda,
            self.environment,
            self.meter,
            self.shell.receive,
            self._random.getrandbits(32),
        )
        return worker

    def enter(self, id: SessionId, traits: Traits) -> Worker:
        """A worker says hello now."""
        worker = self.worker(id, traits)
        self.shell.receive(worker.hello())
        return worker

    def leave(self, worker: Worker) -> None:
        """A worker stops now and says so."""
        last = worker.leave()
        del self.workers[worker.id]
        self.agenda.after(worker.traits.latency, lambda: self.shell.receive(last))

    def vanish(self, worker: Worker) -> None:
        """A worker is gone now, and nobody is told."""
        worker.vanish()
        del self.workers[worker.id]

    def kill_coordinator(self, downtime: float) -> None:
        """The coordinator dies; another one goes on later, and the workers say hello to it."""
        self.shell.die(downtime, self._greet_again)

    def _greet_again(self) -> None:
        for worker in list(self.workers.values()):
            wait = worker.traits.latency + self._random.random()
            self.agenda.after(wait, partial(self._greet, worker))

    def _greet(self, worker: Worker) -> None:
        if not worker.vanished and self.shell.alive:
            self.shell.receive(worker.hello())
            worker.send_again()

    def _deliver(self, command: Command) -> None:
        if not isinstance(command, SendTask | SendAcknowledge):
            return
        worker = self.workers.get(command.session)
        if worker is None:
            return
        if isinstance(command, SendTask):
            worker.take(command)
        else:
            worker.answered(command.results)
