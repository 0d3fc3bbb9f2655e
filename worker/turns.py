"""Gives the runs of a worker their turns: the clock and the calls around `Sharing`."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic as now  # it stands still while the machine sleeps, as evaluation does

from worker.sharing import Sharing

Begin = Callable[[], bool]
"""Begins one task more of a run; whether there was one."""


class Turns:
    """Lets tasks begin, of one run at a time."""

    def __init__(self, cores: int) -> None:
        """`cores`: that evaluation has."""
        self.sharing = Sharing(cores)
        self._begins: dict[str, Begin] = {}
        self._looked = now()
        self._dealing = False
        self._changed: float | None = None
        """when the turn went to another run, none of whose tasks has come to a process yet"""

    def look(self) -> None:
        """Book what the run at work has had until now."""
        moment = now()
        self.sharing.passed(moment - self._looked)
        self._looked = moment

    def join(self, run: str, weight: float, begin: Begin) -> None:
        """A run takes part from now on."""
        self.look()
        self._begins[run] = begin
        self.sharing.join(run, weight)

    def leave(self, run: str) -> None:
        """A run takes part no more."""
        self.look()
        self._begins.pop(run, None)
        self.sharing.leave(run)
        self._deal()

    def offer(self, run: str, tasks: int) -> None:
        """So many tasks of a run could begin."""
        if tasks == self.sharing.offered(run):
            return  # nobody's turn has come by that, and this is asked all the time
        self.look()
        self.sharing.offer(run, tasks)
        self._deal()

    def ended(self, run: str) -> None:
        """A task of a run is evaluated, or given up."""
        self.look()
        self.sharing.ended(run)
        self._deal()

    def arrived(self) -> None:
        """The task that began is with the evaluation processes: what a change of turns took."""
        if self._changed is not None:
            self.sharing.switched(now() - self._changed)
            self._changed = None

    def _deal(self) -> None:
        """Begin whatever may; what is offered meanwhile is dealt with here too."""
        if self._dealing:
            return
        self._dealing = True
        try:
            before = self.sharing.turn
            while run := self.sharing.begin():
                if run != before:
                    before, self._changed = run, now()
                if not self._begins[run]():
                    self.sharing.offer(run, 0)
                    self.sharing.ended(run)
        finally:
            self._dealing = False
