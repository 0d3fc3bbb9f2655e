"""Measures what an event costs the pool, at 100, 1,000 and 10,000 workers in virtual time.

    python scripts/bench_pool.py [--seconds 3]

Workers differ in speed (log-normal, sigma 1), a fifth of them leaves each minute and as many join,
half of the leavers without a word. Only this thread's time inside the pool counts. Prints one line
for each size: events a second on this core, microseconds an event, the slowest event.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from coordinator.pool import Pool
from coordinator.pool.events import (
    Arrived,
    CloseBatch,
    Event,
    Heard,
    Joined,
    KeepResult,
    Kept,
    Left,
    SendTask,
    SessionId,
    Tick,
    Updated,
)
from protocol import spec as run_spec

EPISODE_STEPS = 200
TASK_SECONDS = 2.0
TICK_SECONDS = 0.05
WARM_UP_SECONDS = 15.0
"""of simulated time: all workers have joined, and most have returned a task"""
KEEP_SECONDS = 0.1
"""between an accepted result and its group's commit to the log"""
CHUNK_SECONDS = 0.25
CHURN = 0.2 / 60.0
"""share of the workers that leaves each second"""


def spec(workers: int, **pool: object) -> run_spec.RunSpec:
    """A run with 20 directions a worker, as far as a batch may be large."""
    environment = {
        "id": "CartPole-v1",
        "observation": {"kind": "box", "shape": [4]},
        "action": {"kind": "discrete", "n": 2},
    }
    return run_spec.parse(
        {
            "name": "bench",
            "environment": environment,
            "strategy": {"population": min(40 * workers, 65_536)},
            "pool": {"quorum": 0.9, "max_staleness": 1, "task_seconds": TASK_SECONDS, **pool},
            "centre": {"evaluate_every": 1},
            "stop": {"target": 1e9},
        }
    )


class Load:
    """Simulated workers around a pool, whose time is measured."""

    def __init__(self, workers: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.pool = Pool(spec(workers), 0, self.now)
        self.spent = 0.0
        self.slowest = 0.0
        self.events = 0
        self.updates = 0
        self._speeds: dict[SessionId, float] = {}
        self._free: dict[SessionId, float] = {}
        self._unkept: list[tuple[SessionId, int]] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._names = 0
        for _ in range(workers):
            self.at(self.random.uniform(0.0, 10.0), self._join)
        self.at(TICK_SECONDS, self._tick)
        self.at(1.0, lambda: self._churn(workers))

    def at(self, moment: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._agenda, (moment, self._order, action))

    def step(self) -> None:
        """What happens next."""
        self.now, _, action = heapq.heappop(self._agenda)
        action()

    def restart_counters(self) -> None:
        self.spent = self.slowest = 0.0
        self.events = self.updates = 0

    def send(self, event: Event) -> None:
        began = time.thread_time()
        commands = self.pool.handle(event, self.now)
        took = time.thread_time() - began
        self.spent += took
        self.slowest = max(self.slowest, took)
        self.events += 1
        for command in commands:
            if isinstance(command, SendTask):
                self._work(command)
            elif isinstance(command, KeepResult):
                if not self._unkept:
                    self.at(self.now + KEEP_SECONDS, self._keep)
                self._unkept.append((command.arrived.session, command.arrived.task))
            elif isinstance(command, CloseBatch):
                self.updates += 1
                updated = Updated(command.version + 1)
                self.at(self.now + 0.05, lambda updated=updated: self.send(updated))  # type: ignore[misc]

    def _keep(self) -> None:
        group, self._unkept = self._unkept, []
        self.send(Kept(tuple(group)))

    def _join(self) -> None:
        self._names += 1
        id = SessionId(f"worker{self._names}", "s")
        self._speeds[id] = 20_000.0 * self.random.lognormvariate(0.0, 1.0)
        self._free[id] = self.now
        self.send(Joined(id, 2, 0.0))

    def _churn(self, workers: int) -> None:
        self.at(self.now + 1.0, lambda: self._churn(workers))
        for id in list(self._speeds):
            if self.random.random() < CHURN:
                del self._speeds[id]
                if self.random.random() < 0.5:
                    self.send(Left(id, "left"))
                self._join()
            elif self.random.random() < 0.1 and self._free[id] < self.now:
                self.send(Heard(id))

    def _tick(self) -> None:
        self.send(Tick())
        self.at(self.now + TICK_SECONDS, self._tick)

    def _work(self, task: SendTask) -> None:
        id = task.session
        speed = self._speeds.get(id)
        if speed is None:
            return
        shape: Any = (task.count, 2) if task.kind == "members" else (task.count,)
        lengths = np.full(shape, int(EPISODE_STEPS * self.random.uniform(0.5, 1.5)))
        begin = max(self.now + 0.02, self._free[id])
        self._free[id] = begin + int(lengths.sum()) / speed
        arrived = Arrived(
            session=id,
            task=task.task,
            kind=task.kind,
            version=task.version,
            first=task.first,
            returns=lengths.astype(np.float64),
            lengths=lengths,
        )
        self.at(self._free[id] + 0.02, lambda: self._deliver(arrived))

    def _deliver(self, arrived: Arrived) -> None:
        if arrived.session in self._speeds:
            self.send(arrived)


def main() -> None:
    """Print a line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of work at each size")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for workers in (100, 1_000, 10_000):
        load = Load(workers, arguments.seed)
        while load.now < WARM_UP_SECONDS:
            load.step()
        load.restart_counters()
        costs = []
        while load.spent < arguments.seconds:
            spent, events = load.spent, load.events
            while load.spent < spent + CHUNK_SECONDS:
                load.step()
            costs.append((load.spent - spent) / (load.events - events))
        print(
            f"{workers:6,} workers: {load.events / load.spent:7,.0f} events/s "
            f"({1e6 * load.spent / load.events:.1f} us an event, median of parts "
            f"{1e6 * statistics.median(costs):.1f}, slowest event {1e3 * load.slowest:.0f} ms), "
            f"{load.updates} updates, {len(load.pool.sessions):,} sessions"
        )


if __name__ == "__main__":
    main()
