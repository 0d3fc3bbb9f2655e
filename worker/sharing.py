"""Whose task a worker of several runs evaluates next: a weighted fair queue. Pure.

Start-time fair queueing (Goyal, Vin and Cheng, 1996) over what evaluation really takes: each run
has a tag, the core-seconds that it had divided by its weight, and of the runs that have a task at
hand that with the least tag is next. Tasks are not interrupted, and one run has all cores at a
time, which it keeps for a quantum, or longer where it has had less than the others.
"""

from __future__ import annotations

from dataclasses import dataclass

AT_WORK = 2
"""Tasks of a run that are with the evaluation processes while others wait: the last episodes of
one, and the next."""
CREDIT = 8.0
"""Turns that a run may lag behind and catch up with after it had no task at hand: between two
updates every run has none for a moment, and somebody else's turn."""
FORGET = 0.9
"""What a longer turn before counts of its length at each change."""
SHORTEST, LONGEST = 0.1, 10.0
"""Core-seconds, for each core, of a quantum."""
WORTH = 20.0
"""How many times as long as a switch takes a quantum is at least."""
HALF = 60.0
"""Seconds of work after which what a run had counts half in the share that is shown."""
MEMORY = 0.2
"""What the last switch counts in the mean of what they take."""


@dataclass(slots=True)
class _Run:
    weight: float
    tag: float
    """core-seconds that it had, or let pass, by its weight"""
    at_hand: int = 0
    """tasks that could begin"""
    had: float = 0.0
    """core-seconds"""
    lately: float = 0.0
    """the same, each weighing half after `HALF` seconds of work"""


class Sharing:
    """Decides for one worker, and books what its runs have had."""

    def __init__(self, cores: int) -> None:
        """`cores`: that evaluation has."""
        self._cores = cores
        self._runs: dict[str, _Run] = {}
        self._turn = ""
        """the run at work"""
        self._at_work = 0
        """its tasks that are being evaluated"""
        self._in_turn = 0.0
        """core-seconds of this turn"""
        self._longest = 0.0
        """core-seconds of the longest turn lately"""
        self._virtual = 0.0
        """the least tag of those who had a task at hand as one began last: whoever keeps its turn
        may be far ahead of it"""
        self._switch = 0.0
        """core-seconds that a change of turns takes"""

    @property
    def quantum(self) -> float:
        """Core-seconds for which a run keeps its turn: long where changes of turns are dear."""
        seconds = WORTH * self._switch / self._cores
        return self._cores * min(LONGEST, max(SHORTEST, seconds))

    @property
    def credit(self) -> float:
        """Core-seconds that a run may lag behind after it had no task at hand."""
        return CREDIT * max(self.quantum, self._longest)

    @property
    def turn(self) -> str:
        """The run that had a task begun last; empty where none has."""
        return self._turn

    @property
    def busy(self) -> bool:
        """Whether anything is being evaluated."""
        return self._at_work > 0

    def join(self, run: str, weight: float) -> None:
        """A run takes part from now on; one of weight 0 never has a turn."""
        self._runs[run] = _Run(weight, self._virtual)

    def leave(self, run: str) -> None:
        """A run takes part no more, whatever of it is at work."""
        self._runs.pop(run, None)
        if run == self._turn:
            self._turn, self._at_work = "", 0

    def offer(self, run: str, tasks: int) -> None:
        """So many tasks of a run could begin."""
        queued = self._runs.get(run)
        if queued is None:
            return
        if tasks and not queued.at_hand and queued.weight:
            queued.tag = max(queued.tag, self._virtual - self.credit / queued.weight)
        queued.at_hand = tasks

    def offered(self, run: str) -> int:
        """How many tasks of a run could begin as far as is known."""
        queued = self._runs.get(run)
        return 0 if queued is None else queued.at_hand

    def begin(self) -> str:
        """The run of which a task begins now, which counts as begun; empty where none may."""
        run = self._next()
        if not run:
            return ""
        queued = self._runs[run]
        if run != self._turn or self._is_over(queued):
            self._longest = max(self._in_turn, FORGET * self._longest)
            self._in_turn = 0.0
        self._turn = run
        tags = [each.tag for each in self._runs.values() if each.at_hand and each.weight]
        self._virtual = max(self._virtual, min(tags))
        self._at_work += 1
        queued.at_hand -= 1
        return run

    def ended(self, run: str) -> None:
        """A task of a run is evaluated, or given up."""
        if run == self._turn and self._at_work:
            self._at_work -= 1

    def passed(self, seconds: float) -> None:
        """Time went by, in which what is at work had all cores."""
        queued = self._runs.get(self._turn)
        if queued is None or not self._at_work:
            return
        spent = seconds * self._cores
        faded = 0.5 ** (seconds / HALF)
        for run in self._runs.values():
            run.lately *= faded
        queued.lately += spent
        queued.had += spent
        queued.tag += spent / queued.weight
        self._in_turn += spent

    def switched(self, seconds: float) -> None:
        """A change of turns took so long, in which nothing was evaluated."""
        self._switch += MEMORY * (seconds * self._cores - self._switch)

    def wanted(self, run: str) -> float:
        """The share that a run is to have while all have tasks, 0 to 1."""
        total = sum(queued.weight for queued in self._runs.values())
        queued = self._runs.get(run)
        return queued.weight / total if queued is not None and total else 0.0

    def lately(self, run: str) -> float:
        """The share that a run had in the last minutes, 0 to 1, of those that take part."""
        total = sum(queued.lately for queued in self._runs.values())
        queued = self._runs.get(run)
        return queued.lately / total if queued is not None and total else 0.0

    def had(self, run: str) -> float:
        """Core-seconds that a run had since it joined."""
        queued = self._runs.get(run)
        return queued.had if queued is not None else 0.0

    def _next(self) -> str:
        waiting = [run for run, queued in self._runs.items() if queued.at_hand and queued.weight]
        if not waiting:
            return ""
        turn = self._runs.get(self._turn)
        if turn is not None and self._turn in waiting:
            others = [self._runs[run].tag for run in waiting if run != self._turn]
            if not others or not self._is_over(turn) or turn.tag <= min(others):
                full = len(self._runs) > 1 and self._at_work >= AT_WORK
                return "" if full else self._turn
        if self._at_work:
            return ""
        return min(waiting, key=lambda run: self._runs[run].tag)

    def _is_over(self, turn: _Run) -> bool:
        """Whether the run at work has had its quantum."""
        return self._in_turn >= self.quantum
