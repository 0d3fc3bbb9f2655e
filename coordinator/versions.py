"""The run's state, and of the last versions what tasks, late evaluations and the end still need."""

from __future__ import annotations

import dataclasses

from coordinator.pool.events import CentreJudged
from protocol import state
from protocol.state import State


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A version without what only the next update needs, and the digest of its parameters."""

    point: State
    digest: bytes


class Versions:
    """Keeps as many versions as workers do, and the one before for an update that is under way."""

    def __init__(self, first: State, kept: int) -> None:
        self.current = first
        self._kept = kept
        self._versions: dict[int, Version] = {}
        self._judged: dict[int, CentreJudged] = {}
        self.add(first, state.params_digest(first.theta))

    @property
    def digest(self) -> bytes:
        """Of the current parameters."""
        return self._versions[self.current.version].digest

    def add(self, reached: State, digest: bytes) -> None:
        """The run reached its next version."""
        self.current = reached
        point = dataclasses.replace(reached, slots={}, memory={}, accepted=None)
        self._versions[reached.version] = Version(point, digest)
        for old in [v for v in self._versions if v < reached.version - self._kept]:
            del self._versions[old]
            self._judged.pop(old, None)

    def get(self, version: int) -> Version:
        """One of the last versions. Raises KeyError for an older one."""
        return self._versions[version]

    def cap(self, version: int) -> int:
        """Steps after which members' episodes of a version are cut; 0 for never, and for an older
        one than those kept, whose results can't count any more."""
        known = self._versions.get(version)
        return (known.point.cap or 0) if known else 0

    def judge(self, judged: CentreJudged) -> None:
        """Keep the evaluation of one of the last versions."""
        if judged.version in self._versions:
            self._judged[judged.version] = judged

    def judged(self, version: int) -> CentreJudged | None:
        """The evaluation of a version, if there was one."""
        return self._judged.get(version)
