"""Keeps the evaluation processes of a run that is over for the next one of the same environment.

To start one anew takes as long as many small runs do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protocol.spec import RunSpec
    from worker.evaluation.children import Evaluators

MOST = 2
"""Runs whose processes are kept."""
KEPT_FOR = 30.0
"""Seconds for which they are."""


class Spares:
    """What one worker has kept; the processes sleep meanwhile."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: list[tuple[float, Evaluators]] = []

    def take(self, spec: RunSpec) -> Evaluators | None:
        """Processes that have forgotten a run of the same environment; None where none are here."""
        for kept in reversed(self._kept):
            if kept[1].suits(spec):
                self._kept.remove(kept)
                return kept[1]
        return None

    async def give(self, evaluators: Evaluators, now: float) -> None:
        """A run is over: keep its processes, or end them where they can't be of use."""
        if len(self._kept) < self._most and evaluators.free():
            self._kept.append((now, evaluators))
        else:
            await evaluators.close()

    async def end(self, before: float) -> None:
        """End those that are kept since before that moment."""
        old = [evaluators for since, evaluators in self._kept if since < before]
        self._kept = [kept for kept in self._kept if kept[0] >= before]
        for evaluators in old:
            await evaluators.close()
