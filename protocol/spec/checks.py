"""The rules of a run spec that tie fields to each other, and those that a type can't tell."""

from __future__ import annotations

import math

import msgspec

from protocol import (
    backends,
    factors,
    learners,
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
from protocol.policies import Scalar
from protocol.schedules import Schedule
from protocol.spaces import Box, Space
from protocol.spec.run import RunSpec, seen_image
from protocol.spec.sections import (
    LONGEST_EPISODE,
    MAX_DIRECTIONS,
    MAX_PARAMETERS,
    MAX_STATISTICS,
    STATISTIC_BYTES,
    EnvironmentSpec,
    OptimizerSpec,
    PolicySpec,
    SpecError,
)


def check(spec: RunSpec) -> None:
    """Raises `SpecError` for the first rule that the fields break together."""
    _check_environment(spec.environment)
    _check_backend(spec)
    _check_objective(spec)
    _check_policy(spec.policy, spec.environment)
    _check_mirrors(spec)
    _check_strategy(spec)
    _check_optimizer(spec.optimizer)
    _check_schedules(spec)
    _check_parameters(spec)
    _check_actions(spec.policy, spec.environment)
    _check_normalizer(spec)
    _check_ends(spec)


def _check_parameters(spec: RunSpec) -> None:
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
    if wrong := factors.fault(spec.tensors, spec.policy.frozen, spec.policy.sigma_scale):
        raise SpecError(wrong)


def _check_actions(policy: PolicySpec, environment: EnvironmentSpec) -> None:
    parts = list(spaces.leaves(environment.action))
    if policy.choice == "sample" and all(isinstance(part, Box) for part in parts):
        raise SpecError(
            f'policy.choice is "sample" but the actions of {environment.id} are real numbers, '
            'which are never drawn: use "argmax", and the perturbed parameters explore'
        )
    if policy.action_noise != "none" and not policies.reals(environment.action):
        raise SpecError(
            f'policy.action_noise is "{policy.action_noise}" but the actions of '
            f'{environment.id} are choices: use "none", and policy.choice = "sample"'
        )
    if policy.action_noise == "learned" and policy.kind == "module":
        raise SpecError(
            'policy.action_noise is "learned", but the parameters of a policy.module are its own: '
            'use "predicted", and give a parameter among the outputs'
        )


def _check_normalizer(spec: RunSpec) -> None:
    if not spec.normalizer.enabled:
        return
    if spec.policy.kind == "tabular" or spec.policy.kind in learners.KINDS:
        raise SpecError(
            f'normalizer.enabled is true with policy.kind "{spec.policy.kind}", which looks its '
            "observations up: set it to false"
        )
    seen = spec.environment.observation
    if isinstance(seen, Box) and seen.dtype == "uint8":
        raise SpecError(
            f"normalizer.enabled is true but the observations of {spec.environment.id} are images "
            "(a box of bytes), which policies read as 0 to 1: set it to false, or "
            'environment.observation.dtype to "float32" to have each pixel normalised all the same'
        )
    if 7 + seen.size * STATISTIC_BYTES >= MAX_STATISTICS:
        raise SpecError(
            f"normalizer.enabled is true with {seen.size:,} observations, whose sums would not fit "
            f"a message: at most {(MAX_STATISTICS - 8) // STATISTIC_BYTES:,} can be normalised, "
            "set it to false, or wrap the environment so that its observations are fewer"
        )


def _check_ends(spec: RunSpec) -> None:
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
    if policy.kind in learners.KINDS and (
        wrong := learners.fault(policy, environment, LONGEST_EPISODE)
    ):
        raise SpecError(wrong)


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
    low, high = environment.lowest_return, environment.highest_return
    if low is not None and high is not None and low > high:
        raise SpecError(
            f"environment.lowest_return is {low:g}, above environment.highest_return, {high:g}: "
            "exchange them"
        )
    if 0.0 < environment.cap <= 1.0:
        raise SpecError(
            f"environment.cap is {environment.cap}: must be above 1, since episodes that are all "
            "cut could never last longer again, or 0 for no cap"
        )
    for name, value in environment.kwargs.items():
        _check_argument("environment.kwargs", name, value)


def _check_backend(spec: RunSpec) -> None:
    environment = spec.environment
    if wrong := backends.fault(environment.backend, environment.id):
        raise SpecError(wrong)
    if environment.backend != backends.JAX:
        return
    if environment.wrappers:
        raise SpecError(
            'environment.wrappers is not empty with environment.backend "jax", whose environments '
            "are compiled as they are: leave them out, or register a changed environment"
        )
    if spec.policy.kind == "module":
        raise SpecError(
            'policy.kind is "module", a PyTorch module, with environment.backend "jax", which '
            'compiles the policy too: use a built-in one, or backend "gymnasium"'
        )


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
