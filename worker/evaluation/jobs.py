"""What is asked of an evaluation and what comes back: plain values, cut into parts and merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from protocol import normalizer
from protocol.errors import ShoalError
from protocol.messages import TaskKind
from protocol.normalizer import NormalizerState, ObservationSums


class EnvironmentUnavailable(ShoalError):  # noqa: N818 - a state of this machine
    """This machine can't run the environment of the run; the message says why and what to do."""


class WorkerFailure(Exception):  # noqa: N818 - the word of the protocol
    """A job came to nothing through this machine's fault, not through that of an episode."""


@dataclass(frozen=True)
class EvaluationJob:
    """Consecutive members, or fresh episodes of the centre, to be evaluated at one version.

    Attributes:
        first: first direction; for the centre the first episode.
        count: directions; for the centre episodes.
        episodes: per member; the centre's are counted by `count` alone.
        sigma: size of the perturbation, in standard deviations of the noise.
        cap: steps after which its episodes are cut if nothing cuts them before; 0 for never.
        per_direction: members of a direction: 2, mirrored, or 1.
    """

    kind: TaskKind
    version: int
    first: int
    count: int
    episodes: int = 1
    sigma: float = 0.0
    cap: int = 0
    per_direction: int = 2

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its returns and lengths: (count, per_direction), + first, or (count,) for the
        centre."""
        return (self.count, self.per_direction) if self.kind == "members" else (self.count,)

    @property
    def episodes_per_return(self) -> int:
        """Episodes of a member; an episode of the centre stands for itself."""
        return self.episodes if self.kind == "members" else 1


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a job, or some consecutive directions or episodes of it, gave.

    Attributes:
        first: first direction; for the centre the first episode.
        returns: float64, of the job's shape: mean of a member's episodes; NaN where one failed.
        lengths: int64, same shape: steps, summed over its episodes; 0 where one failed.
        observed: sums over the frames of the directions that did not fail; None without normaliser
            and for the centre.
        failed: (direction or centre episode, reason of at most `MAX_FAILURE_REASON` characters) of
            each that failed, in order.
    """

    first: int
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    observed: ObservationSums | None = None
    failed: tuple[tuple[int, str], ...] = ()

    @property
    def end(self) -> int:
        """The direction, or episode, after its last."""
        return self.first + len(self.returns)


@dataclass(frozen=True, eq=False)
class Normalization:
    """How one version's policy sees observations, and how its frames are measured; (dims,) each.

    Attributes:
        mean, inverse_deviation: float32; see `NormalizerState.policy_input`.
        shift, scale: float64; see `NormalizerState.measure`.
    """

    mean: NDArray[np.float32]
    inverse_deviation: NDArray[np.float32]
    shift: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def of(cls, state: NormalizerState) -> Normalization:
        """That of the version which `state` belongs to."""
        return cls(*state.policy_input(), *state.measure())

    @classmethod
    def from_bytes(cls, columns: tuple[bytes, bytes, bytes, bytes]) -> Normalization:
        """What `to_bytes` gave.

        Writable arrays, as those of `of` are: for others every kernel would be compiled anew.
        """
        mean, inverse_deviation, shift, scale = columns
        return cls(
            np.frombuffer(mean, np.float32).copy(),
            np.frombuffer(inverse_deviation, np.float32).copy(),
            np.frombuffer(shift, np.float64).copy(),
            np.frombuffer(scale, np.float64).copy(),
        )

    def to_bytes(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The four columns, for another process of this machine."""
        return (
            np.ascontiguousarray(self.mean, np.float32).tobytes(),
            np.ascontiguousarray(self.inverse_deviation, np.float32).tobytes(),
            np.ascontiguousarray(self.shift, np.float64).tobytes(),
            np.ascontiguousarray(self.scale, np.float64).tobytes(),
        )


def split(job: EvaluationJob, parts: int) -> list[EvaluationJob]:
    """`job` as up to `parts` consecutive jobs of nearly equal count, none of them empty."""
    parts = min(parts, job.count)
    bounds = [job.count * part // parts for part in range(parts + 1)]
    return [
        replace(job, first=job.first + begin, count=end - begin) for begin, end in pairwise(bounds)
    ]


def join(parts: Sequence[Evaluation]) -> Evaluation:
    """The evaluation of a job from those of its parts, in order; the same for any cut.

    Raises `ValueError` where one does not begin at the end of another.
    """
    if any(part.end != following.first for part, following in pairwise(parts)):
        raise ValueError(f"parts from {[part.first for part in parts]} do not join")
    observed = [part.observed for part in parts if part.observed is not None]
    return Evaluation(
        first=parts[0].first,
        returns=np.concatenate([part.returns for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        observed=normalizer.merge(observed) if observed else None,
        failed=tuple(failure for part in parts for failure in part.failed),
    )
