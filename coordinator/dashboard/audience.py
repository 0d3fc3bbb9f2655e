"""Who listens: a bounded number of pages, none of which can hold up another or fill memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable

from coordinator.dashboard.fragments import Fragment

MOST_LISTENERS = 32
MOST_WAITING = 4
"""Events that a page may be behind: who falls further back is dropped, and comes back."""


class Full(Exception):  # noqa: N818
    """As many listen as may."""


class Audience:
    """The pages that are told what is new."""

    def __init__(self, most: int = MOST_LISTENERS) -> None:
        self._most = most
        self._seats: set[asyncio.Queue[Fragment | None]] = set()

    def __len__(self) -> int:
        return len(self._seats)

    def sit(self) -> asyncio.Queue[Fragment | None]:
        """A seat: from now on all that is told comes there. Raises `Full`."""
        if len(self._seats) >= self._most:
            raise Full
        seat: asyncio.Queue[Fragment | None] = asyncio.Queue(MOST_WAITING)
        self._seats.add(seat)
        return seat

    def leave(self, seat: asyncio.Queue[Fragment | None]) -> None:
        """Nobody sits there any more."""
        self._seats.discard(seat)

    async def listen(
        self, seat: asyncio.Queue[Fragment | None], first: Awaitable[Fragment]
    ) -> AsyncGenerator[Fragment, None]:
        """What is told from `first` on, until the end of it all or until it is told too fast."""
        try:
            yield await first
            while seat in self._seats and (told := await seat.get()) is not None:
                yield told
        finally:
            self.leave(seat)

    def tell(self, told: Fragment) -> None:
        """Something new, for all."""
        for seat in list(self._seats):
            try:
                seat.put_nowait(told)
            except asyncio.QueueFull:
                self.leave(seat)

    def close(self) -> None:
        """It is over."""
        for seat in list(self._seats):
            self.leave(seat)
            if seat.full():
                seat.get_nowait()
            seat.put_nowait(None)
