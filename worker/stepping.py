"""Does the arithmetic of a run's replica, at once or in a thread, and tells the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from protocol.clock import now
from protocol.spec import RunSpec
from worker import commands, replica
from worker.session import Session
from worker.threads import in_thread

if TYPE_CHECKING:
    from worker.following import Follower, Step

INLINE_COST = 2_000_000
"""Parameters times directions up to which an update is applied at once, in about a millisecond;
larger ones go to a thread."""
STEP_COST = 50
"""As many directions the optimizer's step and the digests cost."""
GAUSSIAN_COST = 15
"""How many times more a direction of gaussian noise costs."""

Do = Callable[[list[commands.Command]], None]
"""Does what a session wants done."""
Start = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]
"""Begins something beside the rest."""


class Stepping:
    """Follows one run, as its session bids."""

    def __init__(self, session: Session, do: Do, start: Start) -> None:
        self._session = session
        self._do = do
        self._start = start
        self._follower: Follower | None = None

    def follow(self, command: replica.Begin | replica.Apply | replica.Restore) -> None:
        """Make a version; the session hears of it once it is made."""
        match command:
            case replica.Begin():
                spec = self._session.handshake.spec
                assert spec is not None
                self._start(self._begin(command, spec))
            case replica.Apply() if self._is_cheap(command):
                asyncio.get_running_loop().call_soon(self._apply_here, command)
            case _:
                self._start(self._step(command))

    def _is_cheap(self, command: replica.Apply) -> bool:
        assert self._follower is not None
        directions = sum(len(cohort.weights) for cohort in command.update.cohorts)
        gaussian = self._follower.spec.strategy.noise == "gaussian"
        factor = GAUSSIAN_COST if gaussian else 1
        return self._follower.spec.size * (directions * factor + STEP_COST) <= INLINE_COST

    async def _begin(self, command: replica.Begin, spec: RunSpec) -> None:
        try:
            follower, step = await in_thread(lambda: _begin(spec))
        except Exception as error:
            self._do(self._session.failed(command.ticket, error, now()))
        else:
            self._follower = follower
            size = follower.snapshot_bytes
            self._do(self._session.begun(command.ticket, step, size, now()))

    async def _step(self, command: replica.Apply | replica.Restore) -> None:
        try:
            step = await in_thread(lambda: self._take_step(command))
        except Exception as error:
            self._do(self._session.failed(command.ticket, error, now()))
        else:
            self._do(self._session.advanced(command.ticket, step, now()))

    def _apply_here(self, command: replica.Apply) -> None:
        try:
            step = self._take_step(command)
        except Exception as error:
            self._do(self._session.failed(command.ticket, error, now()))
        else:
            self._do(self._session.advanced(command.ticket, step, now()))

    def _take_step(self, command: replica.Apply | replica.Restore) -> Step:
        assert self._follower is not None
        if isinstance(command, replica.Apply):
            return self._follower.apply(command.before, command.update)
        return self._follower.restore(command.data, command.version)


def _begin(spec: RunSpec) -> tuple[Follower, Step | None]:
    from worker.following import Follower

    follower = Follower(spec)
    return follower, follower.begin()


def load_following() -> None:
    """Load what takes longest to, and is needed by the first task at the latest."""
    import worker.following  # noqa: F401
