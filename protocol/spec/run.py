"""The run spec as one model, and what follows from it: parameters, directions, bytes."""

from __future__ import annotations

import hashlib
import math
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from protocol import factors, learners, networks, policies, section
from protocol.networks import Image, Tensor
from protocol.objective import ObjectiveSpec
from protocol.packing import pack
from protocol.section import Section
from protocol.spaces import Box
from protocol.spec.sections import (
    LONGEST_EPISODE,
    MAX_PARAMETERS,
    CentreSpec,
    EnvironmentSpec,
    Name,
    NormalizerSpec,
    OptimizerSpec,
    PolicySpec,
    PoolSpec,
    Seed,
    SpecError,
    StopSpec,
    StrategySpec,
)


class RunSpec(Section, frozen=True, kw_only=True):
    """One training, whole. `seed` names every random number that the run will ever use."""

    later: ClassVar[tuple[str, ...]] = ("objective",)

    protocol: Literal[1] = 1
    name: Name
    seed: Seed = 0
    environment: EnvironmentSpec
    policy: PolicySpec = PolicySpec()
    strategy: StrategySpec = StrategySpec()
    optimizer: OptimizerSpec = OptimizerSpec()
    normalizer: NormalizerSpec = NormalizerSpec()
    pool: PoolSpec = PoolSpec()
    centre: CentreSpec = CentreSpec()
    stop: StopSpec = StopSpec()
    objective: ObjectiveSpec | None = None

    @property
    def directions(self) -> int:
        """Directions of a batch: B in `[k*B, (k+1)*B)`."""
        return self.strategy.population // self.members_per_direction

    @property
    def needs_acceptance(self) -> bool:
        """Whether a step is kept only where its centre evaluates better."""
        return self.strategy.make(self.pool.discount).needs_acceptance

    @property
    def members_per_direction(self) -> int:
        """2: at +sigma and mirrored at -sigma; 1: at +sigma alone."""
        return 2 if self.strategy.mirrored else 1

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What the parameters are, in the order of theta."""
        if self.objective is not None:
            return (Tensor("parameters", (self.objective.parameters,)),)
        return tensors(self.policy, self.environment)

    @property
    def factors(self) -> NDArray[np.float64] | None:
        """What each parameter's perturbations and steps are multiplied by; None where by 1."""
        return factors.factors(self.tensors, self.policy.frozen, self.policy.sigma_scale)

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of each tensor of weights."""
        return networks.layers(self.tensors)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(tensor.size for tensor in self.tensors)

    @property
    def basis_size(self) -> int:
        """Numbers that members are made of: parameters, and their sigmas where each has its own."""
        begun = self.strategy.make(self.pool.discount).begin(1, self.strategy.sigma)
        return self.size if begun.sigmas is None else 2 * self.size

    @property
    def longest(self) -> int:
        """Steps of an episode at most; of a learner's those of all its agents."""
        if self.policy.kind in learners.KINDS:
            return learners.episode_steps(self.policy, self.environment)
        return self.environment.max_steps or LONGEST_EPISODE

    @property
    def versions_kept(self) -> int:
        """Versions of theta that every worker keeps: what late and centre evaluations may need.

        All that may still count, and up to 8 for centre evaluations where they fit 256 MiB, with
        their sigmas where each parameter has its own.
        """
        return 1 + self.pool.max_staleness + max(1, min(8, (1 << 28) // (4 * self.basis_size)))

    @property
    def digest(self) -> bytes:
        """16 bytes that name this spec."""
        return hashlib.blake2b(to_bytes(self), digest_size=16).digest()


def tensors(policy: PolicySpec, environment: EnvironmentSpec) -> tuple[Tensor, ...]:
    """What the parameters of a policy in this environment are, in the order of theta."""
    if policy.kind == "module":
        return policies.tensors(policy.parameters)
    if policy.kind in learners.KINDS:
        return learners.tensors()
    network = _network(policy, environment)
    if policy.action_noise != "learned":
        return network
    return (*network, Tensor("action.log_deviation", (policies.reals(environment.action),)))


def outputs(policy: PolicySpec, environment: EnvironmentSpec) -> int:
    """How many numbers a policy's network gives: the actions', and predicted deviations of their
    noise."""
    predicted = policies.reals(environment.action) if policy.action_noise == "predicted" else 0
    return environment.action.size + predicted


def _network(policy: PolicySpec, environment: EnvironmentSpec) -> tuple[Tensor, ...]:
    inputs, many = environment.observation.size, outputs(policy, environment)
    if policy.kind in networks.GATES:
        return networks.recurrent(inputs, policy.hidden, many, policy.kind)
    if policy.kind == "tabular":
        return networks.table(seen_choices(environment), many)
    if policy.kind == "cnn":
        seen = seen_image(environment)
        return networks.convolutional(seen, policy.convolutions, policy.hidden, many)
    hidden = policy.hidden if policy.kind == "mlp" else ()
    return networks.dense((inputs, *hidden, many))


def seen_image(environment: EnvironmentSpec) -> Image:
    """The observations of this environment as images. Raises `SpecError` where they are none."""
    observation = environment.observation
    found = networks.image(observation.shape) if isinstance(observation, Box) else None
    if found is None:
        raise SpecError(
            f'policy.kind is "cnn" but the observations of {environment.id} are no images of two '
            'or three dimensions: use "mlp", or wrap the environment'
        )
    return found


def seen_choices(environment: EnvironmentSpec) -> tuple[int, ...]:
    """Of how many each choice in the observations is one. Raises `SpecError` where not all of them
    are choices."""
    found = policies.choices(environment.observation)
    if found is None:
        raise SpecError(
            f'policy.kind is "tabular" but the observations of {environment.id} are not all '
            'discrete, so a table would have no end of rows: use "mlp" or another kind'
        )
    if math.prod(found) > MAX_PARAMETERS:
        raise SpecError(
            f'policy.kind is "tabular" but the observations of {environment.id} are more than '
            f'{MAX_PARAMETERS:,}, each of which would need a row: use "mlp" or another kind'
        )
    return found


def to_bytes(spec: RunSpec) -> bytes:
    """Canonical msgpack form; specs with the same values of the same types give equal bytes."""
    return pack(to_plain(spec))


def to_plain(spec: RunSpec) -> dict[str, Any]:
    """Plain nested values: every field in its declared order, but `Section.later` ones at their
    default."""
    table: dict[str, Any] = section.plain(spec)
    return table
