"""What a simulated pool was told and when, and a digest of what it said, so that another pool can
be told the same."""

from __future__ import annotations

import hashlib
import math

from coordinator.pool.events import CloseBatch, Command, Event, KeepResult, Updated
from scripts.simulation.shell import Name
from scripts.simulation.world import World


class Digest:
    """Of all commands so far: two pools of one digest have decided the same."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def value(self) -> str:
        """32 hex digits."""
        return self._hash.hexdigest()

    def add(self, commands: list[Command]) -> None:
        """These are next."""
        for command in commands:
            match command:
                case KeepResult():
                    result = command.arrived
                    self._add(f"keep {result.session} {result.name} {command.until}")
                case CloseBatch():
                    self._add(f"close {command.version} {command.dropped}")
                    for part in command.contributions:
                        self._add(f"{part.session} {part.version} {part.first}")
                        self._hash.update(part.returns.tobytes())
                case _:
                    self._add(repr(command))

    def _add(self, text: str) -> None:
        self._hash.update(text.encode() + b"\n")


class Recording:
    """A world's pool from its begin to its first update, and on over whole batches."""

    def __init__(self, world: World, events: int) -> None:
        """Run the world until an update at least so many events after the first one."""
        self.begin: list[tuple[Event, float]] = []
        """the events and their times until the first update; by then all workers have come, and
        have returned a task"""
        self.rest: list[tuple[Event, float]] = []
        """those after it"""
        self.digest = Digest()
        """of the commands of both"""
        self._events = events
        self._updated = self._complete = False
        world.shell.observers.append(self)
        world.agenda.run(lambda: self._complete, math.inf)

    def observe(self, now: float, event: Event, commands: list[Command]) -> None:
        """The pool was told of this event."""
        self.digest.add(commands)
        (self.rest if self._updated else self.begin).append((event, now))
        if isinstance(event, Updated):
            self._complete = self._updated and len(self.rest) >= self._events
            self._updated = True

    def died(self, durable: set[Name]) -> None:
        """No coordinator dies here."""
