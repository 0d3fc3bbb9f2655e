"""The tasks that a session holds, from the coordinator's word to result or refusal. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.messages import MAX_DIRECTION, Task
from protocol.spec import RunSpec

MOST_HELD = 64
"""Tasks held at once: the highest credit that a worker can announce."""
REMEMBERED = 4096
"""Tasks that are known when they come again."""
MAX_CENTRE_EPISODES = 65_536
"""Episodes of one version's centre: their seeds are numbered version * 65536 + episode."""


@dataclass(slots=True)
class Lease:
    """A task in our hands.

    Attributes:
        running: it is with the evaluation processes.
        worked: seconds for which it has been, those left out that this machine slept.
        finished: directions, or episodes of the centre, whose returns are known.
        ending: why it is to be handed back once the evaluation processes have let go of it; empty
            while it is not.
    """

    task: Task
    since: float
    running: bool = False
    worked: float = 0.0
    finished: int = 0
    ending: str = ""


class Leases:
    """What we hold, in the order in which it came."""

    def __init__(self) -> None:
        self._held: dict[int, Lease] = {}
        self._seen: dict[bytes, None] = {}

    @property
    def held(self) -> list[Lease]:
        """All of them."""
        return list(self._held.values())

    @property
    def running(self) -> list[Lease]:
        """Those that are being evaluated."""
        return [lease for lease in self._held.values() if lease.running]

    @property
    def waiting(self) -> list[Lease]:
        """Those that are not, since their version is not here yet."""
        return [lease for lease in self._held.values() if not lease.running]

    def __len__(self) -> int:
        return len(self._held)

    def take(self, task: Task, now: float) -> bool:
        """Hold a task; False where it came before, however that ended."""
        if task.token in self._seen or task.task in self._held:
            return False
        self._seen[task.token] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._held[task.task] = Lease(task, now)
        return True

    def get(self, task: int) -> Lease | None:
        """That of a task; None where we hold none."""
        return self._held.get(task)

    def end(self, task: int) -> None:
        """Hold it no more."""
        del self._held[task]


def unfit(task: Task, spec: RunSpec) -> str:
    """Why a task can't belong to this run, empty where it can."""
    end = task.first + task.count
    if task.kind == "centre":
        if end > MAX_CENTRE_EPISODES:
            return f"centre episodes up to {end}: a version has {MAX_CENTRE_EPISODES}"
        return ""
    if end > MAX_DIRECTION:
        return f"directions up to {end}: they end at {MAX_DIRECTION}"
    if task.episodes != spec.environment.episodes:
        return (
            f"{task.episodes} episodes per member: environment.episodes of the run's spec "
            f"is {spec.environment.episodes}"
        )
    return ""
