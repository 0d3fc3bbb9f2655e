"""Whether a candidate is kept: the centre's episodes of it against those of what it came from.

Where a strategy needs acceptance, the version after a step is a candidate: no member is leased
around it before its centre is judged. One that is better is built on. One that is not, or that
could not be judged, is reverted: the next version is the accepted one again, with fresh episodes of
its own. So what is accepted is judged anew with every candidate that fails, and all its episodes
count together: luck that made it the accepted one wears off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.pool.events import CentreJudged


class Evidence(NamedTuple):
    """Episodes of one policy's centre, of whatever version, and their mean return."""

    episodes: int = 0
    mean: float = 0.0

    def with_more(self, judged: CentreJudged) -> Evidence:
        """These and those of an evaluation."""
        episodes = self.episodes + judged.episodes
        mean = self.mean + (judged.mean - self.mean) * judged.episodes / episodes
        return Evidence(episodes, mean)

    def beats(self, other: Evidence) -> bool:
        """Whether both are known, and this mean is higher."""
        return self.episodes > 0 and other.episodes > 0 and self.mean > other.mean


UNKNOWN = Evidence()


@dataclass(frozen=True, slots=True)
class Standing:
    """What a pool has to know of the past to go on.

    Attributes:
        candidate: whether the current version is one.
        accepted: of the accepted policy.
        own: of the candidate.
    """

    candidate: bool = False
    accepted: Evidence = UNKNOWN
    own: Evidence = UNKNOWN


BEGINNING = Standing()


class Acceptance:
    """Judges candidates, in a run whose strategy needs it; else every version is accepted."""

    def __init__(self, needed: bool, version: int, standing: Standing) -> None:
        self._needed = needed
        self._version = version
        self.candidate = standing.candidate
        """whether the current version is one"""
        self._accepted = standing.accepted
        self._own = standing.own
        self._kept: bool | None = self._verdict() if standing.own.episodes else None
        """the verdict on a candidate, once there is one"""

    @property
    def awaits(self) -> bool:
        """Whether the current version is a candidate without a verdict."""
        return self.candidate and self._kept is None

    @property
    def rejected(self) -> bool:
        """Whether the current version is a candidate that is to be reverted."""
        return self.candidate and self._kept is False

    @property
    def accepted_version(self) -> int:
        """The last version that is the accepted policy; the current one, where that is kept."""
        return self._version - (self.candidate and not self._kept)

    def judge(self, judged: CentreJudged) -> None:
        """The centre of a version was evaluated."""
        if self.candidate and judged.version == self._version:
            self._own = self._own.with_more(judged)
            if self._kept is None:
                self._kept = self._verdict()
        elif judged.version == self._version - self.candidate:
            self._accepted = self._accepted.with_more(judged)

    def give_up(self) -> None:
        """The candidate will never be judged."""
        self._kept = False

    def reach(self, version: int, reverts: bool) -> None:
        """The run reached its next version, by an update that `reverts`, or by a step."""
        if not reverts and self.candidate:
            self._accepted = self._own
        self._version = version
        self.candidate = self._needed and not reverts
        self._own = UNKNOWN
        self._kept = None

    def _verdict(self) -> bool:
        return self._own.beats(self._accepted)


def standing(
    version: int, candidate: bool, reverts: Iterator[bool], judged: Mapping[int, CentreJudged]
) -> Standing:
    """How a run stands at a version, by its log.

    Args:
        candidate: whether the version is one.
        reverts: whether the update that led to the version was a revert; then that before it, and
            so on, as far back as is known.
        judged: evaluations, by version.
    """
    own = accepted = UNKNOWN
    if candidate:
        next(reverts, None)
        own = _with(own, judged.get(version))
        version -= 1
    while True:
        accepted = _with(accepted, judged.get(version))
        if not next(reverts, False):
            return Standing(candidate, accepted, own)
        next(reverts, None)  # to the candidate that failed
        version -= 2


def _with(evidence: Evidence, judged: CentreJudged | None) -> Evidence:
    return evidence if judged is None else evidence.with_more(judged)
