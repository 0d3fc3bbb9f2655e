"""What a volunteer's machine does for a run at most, whatever strangers ask of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.allowance import Allowance
from protocol.spec import LONGEST_EPISODE, MAX_PARAMETERS, RunSpec

TASK_SECONDS = 3600.0
HEARD_PER_SECOND, HEARD_AT_ONCE = 2_000.0, 20_000.0
"""Messages of the coordinator that are looked at; a newcomer that catches up gets many at once."""
ASKED_PER_SECOND, ASKED_AT_ONCE = 100.0, 1_000.0
"""The same of peers: anybody may ask everybody."""
SERVED_PER_SECOND, SERVED_AT_ONCE = 1_000.0, 1_000.0
"""The same of each peer that we asked for a snapshot: chunks of 192 KiB."""
MOST_SERVERS = 64
"""Of whom it is remembered how much they sent."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the volunteer chose.

    Attributes:
        parameters: of the policy, which are kept a few times over.
        episode: steps of one episode; looked after where episodes are played.
        task_seconds: that one task is worked on; what is finished of it by then is sent.
    """

    parameters: int = MAX_PARAMETERS
    episode: int = LONGEST_EPISODE
    task_seconds: float = TASK_SECONDS

    def misfit(self, spec: RunSpec) -> str:
        """Why this machine does not take part in a run, empty where it does."""
        if spec.size > self.parameters:
            return (
                f"the policy of {spec.name} has {spec.size:,} parameters, this worker takes at "
                f"most {self.parameters:,}: raise --parameter-limit, or join another run"
            )
        return ""


def too_long(environment: str, steps: int, most: int) -> str:
    """Why episodes of so many steps at most are not played here, empty where they are; 0 steps:
    nothing cuts them."""
    if 0 < steps <= most or most >= LONGEST_EPISODE:
        return ""
    length = f"{steps:,} steps" if steps else "any number of steps"
    return (
        f"episodes of {environment} may last {length}, this worker plays at most {most:,}: "
        "raise --episode-limit, or join another run"
    )


class Hearing:
    """Which messages are looked at: all, until somebody sends more than any honest one would, by
    each kind of topic: a flood of one hides nothing of another."""

    def __init__(self) -> None:
        self._kinds: dict[str, Allowance] = {"ask": Allowance(ASKED_PER_SECOND, ASKED_AT_ONCE)}
        self._servers: dict[str, Allowance] = {}

    def takes(self, kind: str, now: float) -> bool:
        """Whether a message on that kind of topic is looked at."""
        allowance = self._kinds.get(kind)
        if allowance is None:
            allowance = self._kinds[kind] = Allowance(HEARD_PER_SECOND, HEARD_AT_ONCE)
        return allowance.take(1.0, now)

    def takes_of(self, server: str, now: float) -> bool:
        """Whether what a peer serves, whom we asked, is looked at."""
        allowance = self._servers.get(server)
        if allowance is None:
            allowance = self._servers[server] = Allowance(SERVED_PER_SECOND, SERVED_AT_ONCE)
            if len(self._servers) > MOST_SERVERS:
                del self._servers[next(iter(self._servers))]
        return allowance.take(1.0, now)
