"""The run spec: everything that defines a run, in one validated model that never changes."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from protocol import (
    factors,
    networks,
    objective,
    optimizers,
    policies,
    section,
    spaces,
    strategies,
    wrappers,
)
from protocol.errors import ShoalError
from protocol.mistakes import explain
from protocol.networks import Image, Tensor
from protocol.objective import ObjectiveSpec
from protocol.packing import WireError, pack, unpack
from protocol.policies import (
    Activation,
    Arguments,
    Convolution,
    ModulePath,
    NamePattern,
    Parameter,
    Scalar,
)
from protocol.schedules import Schedule
from protocol.section import Section
from protocol.spaces import Box, Space
from protocol.strategies import Strategy
from protocol.wrappers import Wrappers

PROTOCOL_VERSION = 1
MAX_PARAMETERS = 1 << 28
"""More than this many parameters (1 GiB of float32) is refused by every peer."""
MAX_POPULATION = 120_000
MAX_DIRECTIONS = 60_000
"""Members and directions of a batch: the update's message has four bytes for each direction of a
large one."""
LARGEST_SEEN = float.fromhex("0x1.fffffep127")
"""The largest float32."""
MAX_STATISTICS = 150_000
"""Bytes that the observation sums of one result or update must stay below."""
STATISTIC_BYTES = 16 + 16
"""Of one observation's sum and sum of squares in them, at most; see `normalizer.to_bytes`."""

LONGEST_EPISODE = 10_000_000
"""Steps after which any episode is cut: workers play and coordinators take no longer one, so that
the counters of steps in updates and snapshots never overflow."""

NAME_PATTERN = r"^[a-z0-9][a-z0-9-]{0,39}\Z"
Name = Annotated[
    str,
    msgspec.Meta(
        pattern=NAME_PATTERN,
        description="lower-case letters, digits and dashes, at most 40, not a dash first",
    ),
]
EnvironmentId = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9_./:-]{1,128}\Z",
        description="letters, digits and _ . / : -, at most 128",
    ),
]

Kind = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}\Z",
        description="a name of lower-case letters, digits and _ . -, at most 64",
    ),
]
Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Share = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class SpecError(ShoalError):
    """A run spec that breaks a rule; the message names field, value, rule and remedy."""


class EnvironmentSpec(Section, frozen=True, kw_only=True):
    """What is evaluated. The spaces are read from the environment once, when the run is made."""

    later: ClassVar[tuple[str, ...]] = (
        "wrappers",
        "cap",
        "cap_minimum",
        "fixed_versions",
        "alive_bonus",
        "alive_bonus_schedule",
    )

    id: EnvironmentId
    backend: Literal["gymnasium", "objective"] = "gymnasium"
    """`objective`: none, but the function of `[objective]`, which `id` names too."""
    kwargs: Annotated[dict[str, Scalar], msgspec.Meta(max_length=64)] = {}  # noqa: RUF012
    observation: Space
    action: Space
    max_steps: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_EPISODE)] = 0
    """Steps after which an episode is cut; 0 leaves it to the environment's own limit."""
    episodes: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Episodes per member, averaged."""
    seeding: Literal["pair", "member", "version", "fixed"] = "pair"
    """`pair`: fresh seeds for each mirrored pair; `member`: for each member; `version`: all members
    of a version share theirs; `fixed`: the same seeds for ever."""
    wrappers: Wrappers = ()
    """What lies around the environment, the innermost first; the spaces are those outside."""
    cap: Annotated[float, msgspec.Meta(ge=0.0, le=1000.0)] = 0.0
    """Members' episodes are cut after so many times the mean length of those that counted in the
    last update; version 0 knows none. Above 1, or 0 for no such cap. The centre's are never cut."""
    cap_minimum: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_EPISODE)] = 100
    """Steps that such a cap leaves an episode at least."""
    fixed_versions: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0
    """Members of so many versions, from version 0 on, play the `fixed` seeds, whatever `seeding`
    says of those after them."""
    alive_bonus: Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)] = 0.0
    """Taken off the reward of each step before members are compared: what the environment pays for
    being alive. Returns that are told, and the centre's, keep it."""
    alive_bonus_schedule: Schedule = Schedule()
    """How much of `alive_bonus` is taken off from update to update."""

    def alive_bonus_at(self, version: int) -> float:
        """What is taken off in the update of this version."""
        return self.alive_bonus * self.alive_bonus_schedule.factor(version)


class PolicySpec(Section, frozen=True, kw_only=True):
    """A built-in policy, `linear`, `mlp` with its hidden layers, `gru` or `lstm`, which remember,
    `cnn` for images, or a `tabular` one; or any PyTorch `module` that volunteers allow."""

    later: ClassVar[tuple[str, ...]] = (
        "choice",
        "convolutions",
        "module",
        "arguments",
        "parameters",
        "final_scale",
        "action_noise",
        "action_deviation",
        "centre_noise",
        "frozen",
        "sigma_scale",
    )

    kind: Literal["linear", "mlp", "gru", "lstm", "cnn", "tabular", "module", "parameters"] = "mlp"
    """`gru`, `lstm`: recurrent units in layers, whose states are zero when an episode begins, and a
    linear readout of the states of all layers. `cnn`: convolutions, and an `mlp` over what they
    leave. `tabular`: a row of outputs for each observation, all of which are choices. `module`: a
    `torch.nn.Module`."""
    hidden: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=1, le=1 << 16)], ...], msgspec.Meta(max_length=8)
    ] = (32,)
    """Widths of the hidden layers of an `mlp`, units of the layers of a `gru` or `lstm`, widths
    between the convolutions and the outputs of a `cnn`."""
    activation: Activation = "tanh"
    """Between the layers of an `mlp` or `cnn`: PyTorch's of that name, with its defaults."""
    convolutions: Annotated[tuple[Convolution, ...], msgspec.Meta(max_length=8)] = (
        (16, 8, 4),
        (32, 4, 2),
    )
    """Of a `cnn`, each as channels, kernel, stride; without padding."""
    module: ModulePath = ""
    """Of a `module`: where its class is, as `package.module:Class`. Volunteers take part who allow
    the package with `--allow-module`."""
    arguments: Arguments = {}  # noqa: RUF012
    """Of a `module`: what its class is called with."""
    parameters: Annotated[tuple[Parameter, ...], msgspec.Meta(max_length=1024)] = ()
    """Of a `module`: names and shapes of its parameters, read from it when the run is made."""
    squash: Literal["clip", "tanh"] = "clip"
    """How outputs become continuous actions: clipped to the bounds, or tanh scaled to them."""
    initialisation: Literal["zero", "scaled", "orthogonal", "given"] = "scaled"
    """`zero`; `scaled`: normal noise divided by the square root of a layer's inputs; `orthogonal`:
    weights whose rows, or columns where these are fewer, are orthonormal; `given`: the
    snapshot of version 0 that `initial_digest` proves, as `shoal fork` writes it. A `module`'s
    own initial parameters are `given`, and the default there."""
    initial_digest: Annotated[
        str, msgspec.Meta(pattern=r"^([0-9a-f]{32})?\Z", description="32 hexadecimal digits")
    ] = ""
    """Of `given`: digest of the state of version 0."""
    initial_scale: Annotated[float, msgspec.Meta(gt=0.0, le=100.0)] = 1.0
    """Factor of `scaled` and `orthogonal` weights."""
    final_scale: Annotated[float, msgspec.Meta(ge=0.0, le=100.0)] = 1.0
    """Factor of the weights of the last layer besides; 0: it begins with zeros."""
    choice: Literal["argmax", "sample"] = "argmax"
    """How outputs become discrete actions: the largest wins, or one is drawn with the probabilities
    that their softmax gives, by a stream of the episode's seed."""
    action_noise: Literal["none", "fixed", "learned", "predicted"] = "none"
    """Normal noise on the outputs for continuous actions, before they are clipped or squashed, by a
    stream of the episode's seed. `fixed`: of `action_deviation`; `learned`: of that times the
    exponential of a parameter for each; `predicted`: of that times the exponential of one more
    output for each."""
    action_deviation: Annotated[float, msgspec.Meta(gt=0.0, le=1000.0)] = 0.1
    """Of the noise of actions."""
    centre_noise: bool = False
    """Whether the centre acts with such noise too."""
    frozen: Annotated[tuple[NamePattern, ...], msgspec.Meta(max_length=64)] = ()
    """Parameters that stay as they begin, by names or patterns of them such as `layers.0.*`."""
    sigma_scale: Annotated[
        dict[NamePattern, Annotated[float, msgspec.Meta(gt=0.0, le=1000.0)]],
        msgspec.Meta(max_length=64),
    ] = {}  # noqa: RUF012
    """Factors of the perturbations and steps of parameters, likewise by names or patterns."""


class StrategySpec(Section, frozen=True, kw_only=True):
    """The evolution strategy, by name: `docs/strategies.md` lists them. A field that is left out
    has the strategy's own default; one that the strategy does not have is refused."""

    later: ClassVar[tuple[str, ...]] = (
        "mirrored",
        "shaping",
        "elites",
        "sigma_rate",
        "sigma_change",
        "extra_noise",
        "extra_noise_updates",
        "elite_weights",
        "keep",
        "sigma_better",
        "sigma_worse",
        "sigma_least",
        "sigma_most",
        "arguments",
        "schedule",
    )

    kind: Kind = "openai-es"
    noise: Literal["rademacher", "gaussian"] = "rademacher"
    population: Annotated[int, msgspec.Meta(ge=2, le=MAX_POPULATION)] = 64
    """Members of a batch; even where they are mirrored."""
    sigma: Annotated[float, msgspec.Meta(gt=0.0, le=1e6)] = 0.1
    """Size of the perturbations; where they are adapted, of the first ones."""
    mirrored: bool = True
    """Whether a direction has two members, at +sigma and -sigma, or only that at +sigma."""
    shaping: Kind | None = None
    """How returns become utilities: `centred-ranks`, `z-score`, `sign`, `raw`, `normalised`."""
    elites: Annotated[float, msgspec.Meta(gt=0.0, le=MAX_POPULATION)] | None = None
    """Of `ars`, `cem` and `hill-climbing`: share of the best that count, directions in the first,
    members in the others; in the last, above 1, their number."""
    sigma_rate: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] | None = None
    """Of `pgpe` and `snes`: learning rate of the perturbations' sizes."""
    sigma_change: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)] | None = None
    """Of `pgpe`: how much of itself a size changes in an update at most."""
    extra_noise: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] | None = None
    """Of `cem`: deviation that is added to the elites' own at first."""
    extra_noise_updates: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    """Of `cem`: after so many updates none is added; it falls in a line until then."""
    elite_weights: Literal["equal", "returns"] | None = None
    """Of `hill-climbing`: whether elites count alike, or by how far they are above the worst."""
    keep: Literal["better", "always"] | None = None
    """Of `hill-climbing`: whether a step is reverted unless the centre evaluates better."""
    sigma_better: Annotated[float, msgspec.Meta(gt=0.0, le=10.0)] | None = None
    """Of `hill-climbing` and `random-search`: factor of sigma after a step that was kept."""
    sigma_worse: Annotated[float, msgspec.Meta(gt=0.0, le=10.0)] | None = None
    """Likewise after one that was not."""
    sigma_least: Annotated[float, msgspec.Meta(gt=0.0, le=1e6)] | None = None
    sigma_most: Annotated[float, msgspec.Meta(gt=0.0, le=1e6)] | None = None
    """As sigma_least: bounds of a sigma that these factors move."""
    arguments: Annotated[dict[str, Scalar], msgspec.Meta(max_length=64)] = {}  # noqa: RUF012
    """Of a strategy that a package registers: its fields."""
    schedule: Schedule = Schedule()

    def sigma_at(self, version: int) -> float:
        """The size of that version's perturbations, where the strategy does not adapt it."""
        return self.sigma * self.schedule.factor(version)

    def make(self, discount: int) -> Strategy:
        """The strategy, for a `PoolSpec.discount`. Raises `ShoalError` if it refuses a field."""
        return strategies.make(self.kind, {**self.own, **self.arguments, "discount": discount})

    @property
    def own(self) -> dict[str, Any]:
        """What only some strategies have and is given here, by name."""
        optional = [f.name for f in msgspec.structs.fields(self) if f.default is None]
        return {name: v for name in optional if (v := getattr(self, name)) is not None}


class OptimizerSpec(Section, frozen=True, kw_only=True):
    """How a gradient becomes a step; fields that a kind does not use are ignored by it. In a run
    file that leaves them out, the first six after `kind` have what docs/optimizers.md has of it."""

    later: ClassVar[tuple[str, ...]] = (
        "l2",
        "clip_norm",
        "lookahead_steps",
        "lookahead_alpha",
        "maximum_speed",
        "arguments",
        "schedule",
    )

    kind: Kind = "normalised"
    """`normalised`, `sgd`, `nesterov`, `adam`, `adamw`, `adabelief`, `amsgrad`, `radam`,
    `novograd`, `clipup`, or one that an installed package adds; see docs/optimizers.md."""
    learning_rate: Annotated[float, msgspec.Meta(gt=0.0, le=1e6)] = 0.5
    """Length of a step; of `normalised`, its norm before momentum."""
    momentum: Share = 0.8
    """Of `normalised`, `sgd`, `nesterov` and `clipup`."""
    beta1: Share = 0.9
    beta2: Share = 0.999
    epsilon: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1e-8
    """As beta1 and beta2: of those with moments, `adam` to `novograd`."""
    weight_decay: Share = 0.0
    """Decoupled: so many times the learning rate and the parameters are taken off them beside each
    step; of `novograd`, within its moment."""
    l2: Share = 0.0
    """L2 penalty: this times the parameters is taken off the gradient, of `normalised` and `clipup`
    off its unit vector."""
    clip_norm: Annotated[float, msgspec.Meta(ge=0.0, le=1e12)] = 0.0
    """Longer gradients are cut to this length; 0 for none."""
    lookahead_steps: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """LookAhead: after so many steps the parameters go back part of the way; 0 for none."""
    lookahead_alpha: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.5
    """The part of the way that they keep then."""
    maximum_speed: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 0.0
    """Of `clipup`: the longest step; 0 for twice the learning rate."""
    arguments: Annotated[dict[str, float], msgspec.Meta(max_length=64)] = {}  # noqa: RUF012
    """Further hyperparameters, of an optimizer that a package adds."""
    schedule: Schedule = Schedule()

    def learning_rate_at(self, version: int) -> float:
        """The learning rate of the update that changes this version."""
        return self.learning_rate * self.schedule.factor(version)


class NormalizerSpec(Section, frozen=True, kw_only=True):
    """Whether observations are shifted and scaled by their running mean and deviation; images,
    which are boxes of bytes, are not."""

    enabled: bool = False
    clip: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 10.0
    """Normalised observations are clipped to +-clip deviations; 0: not at all."""

    @property
    def bound(self) -> float:
        """What normalised observations stay within."""
        return self.clip or LARGEST_SEEN


class PoolSpec(Section, frozen=True, kw_only=True):
    """How the pool behaves; `quorum = 1.0` with `max_staleness = 0` is classic synchronous ES."""

    quorum: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1.0
    """Share of a batch that must have arrived before stragglers may be left behind."""
    max_staleness: Annotated[int, msgspec.Meta(ge=0, le=16)] = 0
    """How many versions old a late return may be and still count, with a discount."""
    discount: Annotated[int, msgspec.Meta(ge=0, le=3)] = 2
    """Returns of age a (versions) weigh 1 / (1 + a)^discount of fresh ones; 0: as much."""
    patience: Annotated[float, msgspec.Meta(ge=0.0, le=100.0)] = 1.0
    """Times the time it should have taken that what is missing is waited for once the quorum is
    there; 0: the batch closes with the quorum."""
    copies: Annotated[int, msgspec.Meta(ge=0, le=4)] = 2
    """Overdue leases at the end of a batch are given to so many others as well."""
    stale_share: Fraction = 0.25
    """Share of an update's members that may be of earlier versions, where staleness is allowed: no
    more are begun one version early than leave room for what may come late."""
    task_seconds: Annotated[float, msgspec.Meta(gt=0.0, le=600.0)] = 2.0
    """Seconds of work that a task has at most."""
    minimum_task_seconds: Annotated[float, msgspec.Meta(ge=0.0, le=60.0)] = 0.2
    """Tasks are not cut shorter than this: below it the messages would cost more than the work."""
    lease_floor: Annotated[float, msgspec.Meta(ge=0.1, le=3600.0)] = 2.0
    """No lease is shorter than this many seconds."""


class CentreSpec(Section, frozen=True, kw_only=True):
    """How the unperturbed policy is judged."""

    evaluate_every: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1
    """Every how many updates; 0 never."""
    episodes: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 100
    """Fresh episodes of a full evaluation."""
    screening: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 10
    """Episodes run first and alone: where they are clearly below the target the rest is saved."""


class StopSpec(Section, frozen=True, kw_only=True):
    """When the run ends: at the first rule that is met; with none it goes on until stopped."""

    later: ClassVar[tuple[str, ...]] = ("confidence", "steps")

    target: Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)] | None = None
    """Mean return of the centre over a full evaluation."""
    confidence: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.0
    """Where it is above 0, the lower end of the mean's confidence interval of this probability has
    to reach the target: 0.95, for example. 0: the mean."""
    updates: Annotated[int, msgspec.Meta(ge=0, le=2**40)] | None = None
    """Updates made; the centre is judged once more then."""
    episodes: Annotated[int, msgspec.Meta(ge=1, le=2**50)] | None = None
    """Members' episodes that counted."""
    steps: Annotated[int, msgspec.Meta(ge=1, le=2**60)] | None = None
    """Steps of such episodes."""
    seconds: Annotated[float, msgspec.Meta(gt=0.0, le=1e9)] | None = None
    """Seconds since the coordinator's start."""


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
    def versions_kept(self) -> int:
        """Versions of theta that every worker keeps: what late and centre evaluations may need.

        All that may still count, and up to 8 for centre evaluations where they fit 256 MiB.
        """
        return 1 + self.pool.max_staleness + max(1, min(8, (1 << 28) // (4 * self.size)))

    @property
    def digest(self) -> bytes:
        """16 bytes that name this spec."""
        return hashlib.blake2b(to_bytes(self), digest_size=16).digest()


def tensors(policy: PolicySpec, environment: EnvironmentSpec) -> tuple[Tensor, ...]:
    """What the parameters of a policy in this environment are, in the order of theta."""
    if policy.kind == "module":
        return policies.tensors(policy.parameters)
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


def parse(raw: Mapping[str, Any]) -> RunSpec:
    """The validated spec of plain values (from TOML, flags or the wire). Raises `SpecError`."""
    spoken = raw.get("protocol", PROTOCOL_VERSION)
    if spoken != PROTOCOL_VERSION:
        raise SpecError(
            f"the run speaks protocol {spoken!r}, this Shoal speaks {PROTOCOL_VERSION}: "
            "install the version of Shoal that the run needs"
        )
    try:
        raw = _with_own_values(completed(raw))
        spec = msgspec.convert(raw, RunSpec)
    except msgspec.ValidationError as error:
        raise SpecError(explain(str(error), raw, RunSpec)) from None
    except RecursionError:
        raise SpecError(
            "the run spec has tables too deep in one another: use fewer levels"
        ) from None
    _check_together(spec)
    return spec


def completed(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Plain values with what an objective, where there is one, has in the place of an environment
    and a policy."""
    if raw.get("objective") is None:
        return raw
    said: dict[str, Any] = dict(raw)
    for table, values in objective.around(raw).items():
        given = raw.get(table, {})
        said[table] = {**values, **given} if isinstance(given, Mapping) else given
    return said


def from_bytes(data: bytes) -> RunSpec:
    """The spec that `to_bytes` packed, validated anew. Raises `SpecError`."""
    try:
        raw = unpack(data)
    except WireError as error:
        raise SpecError(f"the run spec can't be read ({error}): the host must mend it") from None
    if not isinstance(raw, dict):
        raise SpecError("the run spec is not a table: the host must mend it")
    try:
        return parse(raw)
    except SpecError as error:
        raise SpecError(
            f"this Shoal can't take part in the run: {error} (the host may use a newer Shoal: "
            "upgrade, or tell the host)"
        ) from None


def to_bytes(spec: RunSpec) -> bytes:
    """Canonical msgpack form; specs with the same values of the same types give equal bytes."""
    return pack(to_plain(spec))


def to_plain(spec: RunSpec) -> dict[str, Any]:
    """Plain nested values: every field in its declared order, but `Section.later` ones at their
    default."""
    table: dict[str, Any] = section.plain(spec)
    return table


def to_toml(spec: RunSpec) -> str:
    """The spec as a TOML file that `load` reads back to an equal spec."""
    lines: list[str] = []
    _write_table(lines, (), {k: v for k, v in to_plain(spec).items() if k != "protocol"})
    return "\n".join(lines).lstrip("\n") + "\n"


def load(path: Path) -> dict[str, Any]:
    """The plain values of a TOML file; `parse` judges them. Raises `SpecError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"no run file {path}; give a TOML file or an environment id") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"can't read the run file {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path} is not valid TOML: {error}; mend that line") from None


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, table by table."""
    merged = dict(base)
    for key, value in changes.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def settings(assignments: Iterable[str]) -> dict[str, Any]:
    """Nested values of `section.field=value` texts (`--set`); a value is TOML, else text."""
    changes: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(re.fullmatch(r"\w+", key, re.ASCII) for key in keys):
            raise SpecError(
                f"--set {assignment!r} is not of the form section.field=value, "
                "for example --set strategy.sigma=0.05"
            )
        nested = _toml_or_text(text.strip())
        for key in reversed(keys):
            nested = {key: nested}
        changes = merge(changes, nested)
    return changes


def _toml_or_text(text: str) -> Any:
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return table["value"] if len(table) == 1 else text


def _with_own_values(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """`raw`, with what the kind of optimizer has of its own where `raw` says nothing.

    Of fields alone that are always written: what is read back must be what was written.
    """
    said = raw.get("optimizer", {})
    if not isinstance(said, Mapping) or not isinstance(said.get("kind"), str):
        return raw
    try:
        own = optimizers.own_values(optimizers.get(said["kind"]))
    except ShoalError:
        return raw  # told with the other mistakes
    always = set(OptimizerSpec.__struct_fields__) - set(OptimizerSpec.later)
    known = {name: value for name, value in own.items() if name in always}
    return {**raw, "optimizer": {**known, **said}}


def _check_together(spec: RunSpec) -> None:
    """Rules that tie fields to each other, and those that a type can't tell."""
    _check_environment(spec.environment)
    _check_objective(spec)
    _check_policy(spec.policy, spec.environment)
    _check_mirrors(spec)
    _check_strategy(spec)
    _check_optimizer(spec.optimizer)
    _check_schedules(spec)
    if (spec.policy.initialisation == "given") != bool(spec.policy.initial_digest):
        raise SpecError(
            f"policy.initialisation is {spec.policy.initialisation!r} with policy.initial_digest "
            f"{spec.policy.initial_digest!r}: the two go together; `shoal fork` makes "
            "them, and `shoal host` for a policy.module: leave both out"
        )
    if spec.size > MAX_PARAMETERS:
        raise SpecError(
            f"the policy has {spec.size:.3g} parameters, over the limit of {MAX_PARAMETERS:,}: "
            "use smaller layers in policy.hidden, or an environment with smaller observations"
        )
    if spec.policy.initialisation == "orthogonal":
        for tensor in spec.tensors:
            if networks.products(tensor) > networks.MOST_PRODUCTS:
                raise SpecError(
                    f'policy.initialisation is "orthogonal" with {tensor.name} of shape '
                    f"{tensor.shape}, which would take minutes on each machine: use "
                    '"scaled", or narrower layers in policy.hidden'
                )
    parts = list(spaces.leaves(spec.environment.action))
    if spec.policy.choice == "sample" and all(isinstance(part, Box) for part in parts):
        raise SpecError(
            f'policy.choice is "sample" but the actions of {spec.environment.id} are real numbers, '
            'which are never drawn: use "argmax", and the perturbed parameters explore'
        )
    if wrong := factors.fault(spec.tensors, spec.policy.frozen, spec.policy.sigma_scale):
        raise SpecError(wrong)
    if spec.policy.action_noise != "none" and not policies.reals(spec.environment.action):
        raise SpecError(
            f'policy.action_noise is "{spec.policy.action_noise}" but the actions of '
            f'{spec.environment.id} are choices: use "none", and policy.choice = "sample"'
        )
    if spec.policy.action_noise == "learned" and spec.policy.kind == "module":
        raise SpecError(
            'policy.action_noise is "learned", but the parameters of a policy.module are its own: '
            'use "predicted", and give a parameter among the outputs'
        )
    if spec.normalizer.enabled and spec.policy.kind == "tabular":
        raise SpecError(
            'normalizer.enabled is true with policy.kind "tabular", which looks its observations '
            "up: set it to false"
        )
    seen = spec.environment.observation
    if spec.normalizer.enabled and isinstance(seen, Box) and seen.dtype == "uint8":
        raise SpecError(
            f"normalizer.enabled is true but the observations of {spec.environment.id} are images "
            "(a box of bytes), which policies read as 0 to 1: set it to false, or "
            'environment.observation.dtype to "float32" to have each pixel normalised all the same'
        )
    observed = seen.size
    if spec.normalizer.enabled and 7 + observed * STATISTIC_BYTES >= MAX_STATISTICS:
        raise SpecError(
            f"normalizer.enabled is true with {observed:,} observations, whose sums would not fit "
            f"a message: at most {(MAX_STATISTICS - 8) // STATISTIC_BYTES:,} can be normalised, "
            "set it to false, or wrap the environment so that its observations are fewer"
        )
    if spec.centre.screening > spec.centre.episodes:
        raise SpecError(
            f"centre.screening is {spec.centre.screening}, more than centre.episodes "
            f"({spec.centre.episodes}): screening is the first part of an evaluation, give fewer"
        )
    if spec.stop.target is not None and spec.centre.evaluate_every == 0:
        raise SpecError(
            f"stop.target is {spec.stop.target} but centre.evaluate_every is 0, so the centre "
            "would never be judged: set centre.evaluate_every to 1 or more"
        )
    if spec.stop.confidence and spec.centre.episodes < 2:
        raise SpecError(
            f"stop.confidence is {spec.stop.confidence} but centre.episodes is 1, and one return "
            "has no interval: give centre.episodes 2 or more, or leave stop.confidence out"
        )


def _check_mirrors(spec: RunSpec) -> None:
    population, staleness = spec.strategy.population, spec.pool.max_staleness
    if population % spec.members_per_direction:
        raise SpecError(
            f"strategy.population is {population}: must be even, two members a direction; give "
            f"{population + 1}, or set strategy.mirrored to false"
        )
    if spec.directions > MAX_DIRECTIONS:
        raise SpecError(
            f"strategy.population is {population:,} with strategy.mirrored = false: must be at "
            f"most {MAX_DIRECTIONS:,}, one direction each, for an update to fit a message"
        )
    if not spec.strategy.mirrored and staleness:
        raise SpecError(
            f"pool.max_staleness is {staleness} with strategy.mirrored = false: without its mirror "
            "a member of an earlier version tells more of that version than of its direction; set "
            "pool.max_staleness to 0, or strategy.mirrored to true"
        )


def _check_strategy(spec: RunSpec) -> None:
    chosen = spec.strategy
    try:
        kind = strategies.get(chosen.kind)
    except ShoalError as error:
        raise SpecError(str(error)) from None
    own = strategies.hyperparameters(kind)
    strange = [name for name in (*chosen.own, *chosen.arguments) if name not in own]
    if chosen.shaping is not None and not kind.shapes:
        strange.append("shaping")
    if strange:
        raise SpecError(
            f'strategy.{strange[0]} is given but strategy.kind "{chosen.kind}" has no such '
            f"setting: leave it out (it has {', '.join(kind.settings()) or 'none'})"
        )
    if chosen.shaping is not None:
        try:
            strategies.SHAPINGS.find(chosen.shaping)
        except ShoalError as error:
            raise SpecError(str(error)) from None
    for name, value in chosen.arguments.items():
        _check_argument("strategy.arguments", name, value)
    try:
        chosen.make(spec.pool.discount)
    except ShoalError as error:
        raise SpecError(str(error)) from None
    if kind.needs_gaussian and chosen.noise != "gaussian":
        raise SpecError(
            f'strategy.kind is "{chosen.kind}", which adapts sigma by the squares of the noise, '
            f'but strategy.noise is "{chosen.noise}", whose squares are all 1: use "gaussian"'
        )
    if spec.needs_acceptance and spec.centre.evaluate_every != 1:
        raise SpecError(
            f"centre.evaluate_every is {spec.centre.evaluate_every} but strategy.kind "
            f'"{chosen.kind}" keeps a step only where the centre is better, so each version is '
            "judged: set it to 1"
        )
    if kind.needs_gaussian and spec.directions > MAX_DIRECTIONS // 2:
        raise SpecError(
            f'strategy.kind is "{chosen.kind}", whose updates tell two weights for a direction, '
            f"with {spec.directions:,} directions: at most {MAX_DIRECTIONS // 2:,} fit a message, "
            "give a lower strategy.population"
        )
    if kind.needs_mirrors and not chosen.mirrored:
        raise SpecError(
            f'strategy.kind is "{chosen.kind}", which compares mirrored members, but '
            "strategy.mirrored is false: leave it out"
        )
    if spec.pool.max_staleness and not kind.accepts_stale:
        raise SpecError(
            f"pool.max_staleness is {spec.pool.max_staleness} but strategy.kind "
            f'"{chosen.kind}" counts only returns of its own version: set it to 0'
        )
    if kind.own_step and (bend := _bend(spec.optimizer)):
        raise SpecError(
            f'strategy.kind is "{chosen.kind}", which makes its own step, but optimizer.{bend}: '
            'use kind "sgd" with momentum 0 and nothing else, whose learning_rate 1.0 takes the '
            "step as it is"
        )


def _bend(optimizer: OptimizerSpec) -> str:
    """What of an optimizer changes more of a step than its length, empty for nothing."""
    if optimizer.kind != "sgd":
        return f'kind is "{optimizer.kind}"'
    names = ("momentum", "weight_decay", "l2", "clip_norm", "lookahead_steps")
    return next((f"{n} is {getattr(optimizer, n)}" for n in names if getattr(optimizer, n)), "")


def _check_objective(spec: RunSpec) -> None:
    environment, policy = spec.environment, spec.policy
    if spec.objective is None:
        if environment.backend == objective.BACKEND or policy.kind == objective.KIND:
            raise SpecError(
                f'environment.backend is "{environment.backend}" and policy.kind '
                f'"{policy.kind}" without an objective: name a function in objective.function, or '
                "leave both out"
            )
        return
    if wrong := spec.objective.fault():
        raise SpecError(wrong)
    expected = objective.around({"objective": {"function": spec.objective.function}})
    plain = section.plain(environment)
    same = all(
        section.plain(msgspec.convert(value, Space)) == plain[name]
        if name in ("observation", "action")
        else value == plain[name]
        for name, value in expected["environment"].items()
    )
    if not same or environment.wrappers or environment.kwargs or policy.kind != objective.KIND:
        raise SpecError(
            f"objective.function is {spec.objective.function!r} beside an environment or a policy "
            f'({environment.id}, policy.kind "{policy.kind}"): an objective takes the place of '
            "both, leave them out, or the objective"
        )
    if policy.initialisation not in ("zero", "given") or spec.normalizer.enabled:
        raise SpecError(
            f'policy.initialisation is "{policy.initialisation}" and normalizer.enabled is '
            f"{str(spec.normalizer.enabled).lower()} with an objective, which has neither layers "
            "nor observations: leave both out, and begin with objective.start"
        )


def _check_policy(policy: PolicySpec, environment: EnvironmentSpec) -> None:
    if policy.kind in ("mlp", "gru", "lstm") and not policy.hidden:
        raise SpecError('policy.hidden is empty: give its layers, or use policy.kind = "linear"')
    if policy.kind == "cnn":
        wrong = policies.convolutions_fault(seen_image(environment), policy.convolutions)
        if wrong:
            raise SpecError(wrong)
    if (policy.kind == "module") != bool(policy.module):
        raise SpecError(
            f'policy.kind is "{policy.kind}" with policy.module {policy.module!r}: a policy of '
            'kind "module" names its class as "package.module:Class", others name none'
        )
    if policy.kind == "module":
        if wrong := policies.parameters_fault(policy.module, policy.parameters):
            raise SpecError(wrong)
        for name, value in policies.plain_arguments(policy.arguments):
            _check_argument("policy.arguments", name, value)


def _check_optimizer(optimizer: OptimizerSpec) -> None:
    for name, value in optimizer.arguments.items():
        _check_argument("optimizer.arguments", name, value)
    try:
        optimizers.make(optimizer.kind, msgspec.structs.asdict(optimizer))
    except ShoalError as error:
        raise SpecError(str(error)) from None


def _check_schedules(spec: RunSpec) -> None:
    scheduled = {
        "optimizer.schedule": spec.optimizer.schedule,
        "strategy.schedule": spec.strategy.schedule,
        "environment.alive_bonus_schedule": spec.environment.alive_bonus_schedule,
    }
    for table, value in scheduled.items():
        if wrong := value.fault(table):
            raise SpecError(wrong)
    schedule = spec.strategy.schedule
    strategy = spec.strategy.make(spec.pool.discount)
    if schedule != Schedule() and (strategy.needs_gaussian or strategy.judges_sigma):
        raise SpecError(
            f'strategy.schedule.kind is "{schedule.kind}" but strategy.kind '
            f'"{spec.strategy.kind}" adapts sigma itself: leave strategy.schedule out'
        )
    if schedule.kind != "constant" and spec.strategy.sigma * schedule.floor == 0.0:
        raise SpecError(
            f"strategy.schedule.floor is {schedule.floor}, and perturbations of no size tell "
            "nothing: give the share of strategy.sigma that is always left, such as 0.1"
        )


def _check_environment(environment: EnvironmentSpec) -> None:
    for name, space in (("observation", environment.observation), ("action", environment.action)):
        if wrong := spaces.fault(space):
            raise SpecError(f"environment.{name} {wrong}")
    for part in spaces.leaves(environment.action):
        if isinstance(part, Box):
            _check_bounds(environment.id, part)
    for place, wrapper in enumerate(environment.wrappers):
        if wrong := wrappers.fault(wrapper):
            raise SpecError(f"environment.wrappers[{place}] {wrong}")
    if 0.0 < environment.cap <= 1.0:
        raise SpecError(
            f"environment.cap is {environment.cap}: must be above 1, since episodes that are all "
            "cut could never last longer again, or 0 for no cap"
        )
    for name, value in environment.kwargs.items():
        _check_argument("environment.kwargs", name, value)


def _check_bounds(environment: str, action: Box) -> None:
    if action.dtype != "float32":
        raise SpecError(
            f"environment.action has a box of {action.dtype}: policies act with real numbers, use "
            "one of float32"
        )
    if not len(action.low) == len(action.high) == action.size:
        raise SpecError(
            f"environment.action has {action.size:,} elements but {len(action.low)} low and "
            f"{len(action.high)} high bounds: give one of each per element"
        )
    for element, (low, high) in enumerate(zip(action.low, action.high, strict=True)):
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise SpecError(
                f"element {element} of the actions of {environment} has the bounds "
                f"{low} .. {high}: built-in policies need finite ones, the lower first; "
                "wrap the environment with a rescaled action space"
            )


def _check_argument(table: str, name: str, value: Scalar) -> None:
    """An argument in a table: a name that Python takes, a value that travels unchanged."""
    if not (name.isascii() and name.isidentifier() and len(name) <= 64):
        raise SpecError(
            f"{table} has the name {name[:80]!a}: "
            "must be a Python name of at most 64 ASCII characters"
        )
    where = f"{table}.{name}"
    if isinstance(value, str):
        try:
            encoded = value.encode()
        except UnicodeEncodeError:
            raise SpecError(f"{where} is {value[:80]!a}: must be valid Unicode text") from None
        if len(encoded) > 256:
            raise SpecError(f"{where} is {len(encoded)} bytes long: must be at most 256")
    elif isinstance(value, float) and not math.isfinite(value):
        raise SpecError(f"{where} is {value}: must be finite")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise SpecError(f"{where} is {str(value)[:40]}: must fit 64 bits")


def _write_table(lines: list[str], path: tuple[str, ...], table: Mapping[str, Any]) -> None:
    plain = {k: v for k, v in table.items() if not isinstance(v, Mapping) and v is not None}
    if path and (plain or not table):
        lines.append(f"\n[{'.'.join(path)}]")
    lines.extend(f"{_toml_key(key)} = {_toml_value(value)}" for key, value in plain.items())
    for key, value in table.items():
        if isinstance(value, Mapping):
            _write_table(lines, (*path, key), value)


def _toml_key(key: str) -> str:
    """A key as it is, or quoted where it has more than letters, digits and dashes."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's too, but for one character that only TOML must escape.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {_toml_value(item)}' for key, item in value.items())}}}"
    return repr(value)
