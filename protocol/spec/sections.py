"""The tables of a run spec, each with its fields, their bounds and defaults."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from protocol import strategies
from protocol.errors import ShoalError
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
from protocol.section import Section, fields
from protocol.spaces import Space
from protocol.strategies import Strategy
from protocol.wrappers import Wrappers

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
        "lowest_return",
        "highest_return",
        "equivalent_backends",
    )

    id: EnvironmentId
    backend: Literal["gymnasium", "jax", "objective"] = "gymnasium"
    """Whose environment `id` means: Gymnasium's; or one that JAX compiles together with the policy,
    `gymnax:NAME`, `brax:NAME`, `playground:NAME`, or `jax:NAME` for one of ours or a user's.
    `objective`: none, but
    the function of `[objective]`, which `id` names too."""
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
    lowest_return: Annotated[float, msgspec.Meta(ge=-1e150, le=1e150)] | None = None
    highest_return: Annotated[float, msgspec.Meta(ge=-1e150, le=1e150)] | None = None
    """No episode returns less or more: the host refuses what does. It can't tell where nothing is
    said."""
    equivalent_backends: bool = False
    """Whether a worker that only has Gymnasium's environment of that name may play it where the
    backend is `jax`, and one that only has JAX's where it is `gymnasium`. They have to be the same
    task with the same spaces; seeds give other episodes."""

    def alive_bonus_at(self, version: int) -> float:
        """What is taken off in the update of this version."""
        return self.alive_bonus * self.alive_bonus_schedule.factor(version)


class PolicySpec(Section, frozen=True, kw_only=True):
    """A built-in policy, `linear`, `mlp` with its hidden layers, `gru` or `lstm`, which remember,
    `cnn` for images, or a `tabular` one; any PyTorch `module` that volunteers allow; or a learner,
    which learns within an episode."""

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
        "agents",
        "training_steps",
        "trial_episodes",
        "exploration",
        "learning_rate",
        "discount",
        "epsilon",
        "temperature",
        "optimism",
    )

    kind: Literal[
        "linear",
        "mlp",
        "gru",
        "lstm",
        "cnn",
        "tabular",
        "module",
        "parameters",
        "q-learning",
        "expected-sarsa",
        "double-q",
    ] = "mlp"
    """`gru`, `lstm`: recurrent units in layers, whose states are zero when an episode begins, and a
    linear readout of the states of all layers. `cnn`: convolutions, and an `mlp` over what they
    leave. `tabular`: a row of outputs for each observation, all of which are choices. `module`: a
    `torch.nn.Module`. `q-learning`, `expected-sarsa`, `double-q`: learners, whose members are
    hyperparameters; see docs/policies.md."""
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
    agents: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 30
    """Of a learner: how many learn side by side, each for itself; a member's return is the mean of
    theirs."""
    training_steps: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_EPISODE)] = 10_000
    """Of a learner: steps that each of its agents learns in, over as many episodes as they are."""
    trial_episodes: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Of a learner: episodes that each agent then plays, without learning or exploring; their
    returns alone count."""
    exploration: Literal["epsilon-greedy", "softmax"] = "epsilon-greedy"
    """Of a learner: how an agent explores. `epsilon-greedy`: what it thinks best, one of them by
    lot where several are, or with probability epsilon any action; `softmax`: each with the
    probability that the softmax of estimates / temperature gives it."""
    learning_rate: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)] = 0.1
    """Of a learner: where the search begins, as the next four: what parameters of 0 stand for."""
    discount: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)] = 0.9
    epsilon: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)] = 0.1
    """Of `epsilon-greedy`."""
    temperature: Annotated[float, msgspec.Meta(gt=0.0, le=1e6)] = 0.1
    """Of `softmax`, in units of return."""
    optimism: Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)] = 0.0
    """What each estimate is at the start, in units of return."""


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
        optional = [f.name for f in fields(type(self)) if f.default is None]
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

    later: ClassVar[tuple[str, ...]] = ("audit_share",)

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
    audit_share: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0
    """Share of the directions that a second worker evaluates as well, to find who returns what is
    not true; results of newcomers count then once others confirm them. 0: everybody is believed.
    For strangers: 0.035."""


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
