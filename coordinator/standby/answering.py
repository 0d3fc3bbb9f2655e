"""Answers peers that gather what we might have, within bounds: anybody can ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from coordinator.log import UpdateLog
from coordinator.standby.ledger import Ledger
from protocol.allowance import Allowance
from protocol.clock import now
from protocol.envelope import plain
from protocol.messages import AnyMessage, CatchUp, Latest, Reached

WITHIN = 0.4
"""Seconds over which those who are asked by a gathering peer spread their answers."""
UPDATES = 256
AT_ONCE = 1 << 20
"""Updates, and bytes of them beside the first, that one question gets at most."""
BYTES_PER_SECOND = 1 << 20
BYTES = 8 << 20
"""For all who ask together."""


class Answering:
    """Tells how far we are, and the updates of our log."""

    def __init__(self, tell: Callable[[str, bytes], None], random: Random) -> None:
        """`tell` sends a payload to a peer."""
        self._tell = tell
        self._random = random
        self._allowance = Allowance(BYTES_PER_SECOND, BYTES)
        self._timers: set[asyncio.TimerHandle] = set()

    def hear(self, joiner: str, question: AnyMessage, ledger: Ledger) -> None:
        """A peer asks."""
        if isinstance(question, Latest) and ledger.version > question.version:
            self._later(joiner, plain(Reached(ledger.version, ledger.precedence[0])))
        elif isinstance(question, CatchUp):
            for payload in self._page(ledger.log, question.version):
                self._tell(joiner, payload)

    def close(self) -> None:
        """Answer nobody any more."""
        for timer in self._timers:
            timer.cancel()

    def _page(self, log: UpdateLog, version: int) -> list[bytes]:
        """Updates from that version on, as many as one answer may have."""
        if not log.base <= version < log.version:
            return []
        end = log.page_end(version, UPDATES, AT_ONCE)
        return log.updates(version, end) if self._may_have(log.size(version, end)) else []

    def _later(self, joiner: str, payload: bytes) -> None:
        def answer() -> None:
            self._timers.discard(timer)
            if self._may_have(len(payload)):
                self._tell(joiner, payload)

        delay = self._random.uniform(0.0, WITHIN)
        timer = asyncio.get_running_loop().call_later(delay, answer)
        self._timers.add(timer)

    def _may_have(self, size: int) -> bool:
        return self._allowance.take(size, now())
