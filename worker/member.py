"""One member of a run, to be watched: its name, and the episodes that it was evaluated in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ShoalError
from protocol.noise import DIRECTION_LIMIT
from protocol.spec import RunSpec
from protocol.state import State
from worker.evaluation.blocks import member_seeds
from worker.evaluation.jobs import EvaluationJob

NAME = re.compile(r"(\d{1,12}):([+-])(\d{1,19})", re.ASCII)
SIGNS = {"+": 1, "-": -1}


@dataclass(frozen=True)
class MemberName:
    """Which member: direction `direction` of a version, at +sigma (`sign` 1) or -sigma (-1)."""

    version: int
    direction: int
    sign: int


def parse(text: str) -> MemberName:
    """What VERSION:+DIRECTION or VERSION:-DIRECTION names, such as 812:+40961.

    Raises `ShoalError`.
    """
    match = NAME.fullmatch(text)
    if match is None or int(match[3]) >= DIRECTION_LIMIT:
        raise ShoalError(
            f"--member {text[:60]!r}: must be a version, a colon, and a direction with its sign, "
            "such as 812:+40961 or 812:-40961"
        )
    return MemberName(int(match[1]), int(match[3]), SIGNS[match[2]])


@dataclass(frozen=True, eq=False)
class Perturbed:
    """A member, with what it is made of besides the parameters of its version.

    Attributes:
        sigma: size of the perturbation; below 0 of a mirrored member.
        sigmas: float32, shape (size,), where each parameter has its own; likewise.
        cap: steps after which its episodes are cut; 0 for never.
    """

    name: MemberName
    sigma: float
    sigmas: NDArray[np.float32] | None
    cap: int

    @classmethod
    def of(cls, spec: RunSpec, state: State, name: MemberName) -> Perturbed:
        """The member of a version. Raises `ShoalError` where the run has none at -sigma."""
        if name.sign < 0 and spec.members_per_direction == 1:
            raise ShoalError(
                f"direction {name.direction} at -sigma: the members of this run are not mirrored: "
                f"give {name.version}:+{name.direction}"
            )
        sigmas = None if state.sigmas is None else state.sigmas.astype(np.float32) * name.sign
        return cls(name, state.sigma * name.sign, sigmas, state.cap or 0)

    @property
    def job(self) -> EvaluationJob:
        """An episode of it, as the only member of its direction."""
        name = self.name
        return EvaluationJob(
            "members",
            name.version,
            name.direction,
            1,
            sigma=self.sigma,
            cap=self.cap,
            per_direction=1,
        )

    def seeds(self, spec: RunSpec, episodes: int) -> Iterator[int]:
        """Of its first episodes: it was evaluated in `spec.environment.episodes` of them."""
        name, each = self.name, spec.members_per_direction
        whole = EvaluationJob(
            "members", name.version, name.direction, 1, episodes=episodes, per_direction=each
        )
        return iter(member_seeds(spec, whole)[0 if name.sign > 0 else 1].tolist())
