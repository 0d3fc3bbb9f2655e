"""Where a run spec comes from: a preset or a TOML file, what the environment says, and flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator import preset_files
from coordinator.describing import Question, as_json, ask
from protocol import backends, strategies
from protocol import spec as run_spec
from protocol.errors import ShoalError
from protocol.spec import RunSpec, SpecError, StrategySpec

if TYPE_CHECKING:
    from protocol.state import State

AROUND_OPTIMIZERS = ("l2", "clip_norm", "lookahead_steps", "lookahead_alpha", "schedule")
"""Settings of an optimizer that mean the same for another kind."""
SHAPING_SPACES = ("wrappers", "kwargs")
"""Fields of an environment that its spaces depend on."""
SPACES = ("observation", "action")
"""What an environment says of itself."""
DESCRIBE_TIMEOUT = 60.0
"""Seconds that an environment may take to tell its spaces."""


class Composed(NamedTuple):
    """A run that can be made."""

    spec: RunSpec
    first: State | None
    told: str = ""
    """a line for people about what it begins with; may be empty"""


def compose(
    source: str | Mapping[str, Any] | None,
    flags: Mapping[str, Any],
    assignments: Iterable[str] = (),
    allowed: Sequence[str] = (),
    pool: str | None = None,
    init: Path | None = None,
    preset: str | None = None,
) -> Composed:
    """The spec of a run, and its version 0 where the spec names it by a digest only.

    `pool` names a preset of how stragglers are dealt with; `source` is a TOML file, the values of
    one, or an environment id, None where an objective is given; `flags` are nested values,
    `assignments` are `section.field=value` texts; later ones win. `preset` names the environment
    whose preset is taken, in place of its own, or is "none". Spaces that nobody gave are read from
    the environment, in a process of its own: the coordinator never imports one. `allowed` modules
    may register environments there, and hold the policy's class or the objective. `init` is a file
    that holds the parameters to begin with.

    Raises `SpecError` with the field, the value, the rule and the remedy.
    """
    given = run_spec.merge(flags, run_spec.settings(assignments))
    named = source if isinstance(source, str) else "the run"
    if preset is not None and (named is not source or named.endswith(".toml")):
        raise SpecError(
            f"--preset {preset[:80]}: {named if source else 'an objective'} takes none: leave "
            "--preset out"
        )
    base: dict[str, Any]
    if source is None:
        base = {}
    elif not isinstance(source, str):
        base = dict(source)
    elif source.endswith(".toml"):
        base = run_spec.load(Path(source))
    else:
        base = _without_stale_choices(_preset(source, preset), given)
    if pool is not None:
        base = _with_pool(pool, base, named)
    fitting = _without_other_optimizer(_without_stale_spaces(base, given), given)
    raw = run_spec.merge(fitting, given)
    usual = _strategy_defaults(_strategy(raw))
    raw = run_spec.merge(_without_other_optimizer(usual, raw), raw)
    if raw.get("objective") is not None:
        from coordinator import objectives

        raw = objectives.begin(raw, allowed)
    environment = raw.get("environment")
    if not isinstance(environment, dict) or not isinstance(environment.get("id"), str):
        raise SpecError(f"{named} names no environment: add [environment] with its id")
    if "backend" not in environment and backends.of(environment["id"]) == backends.JAX:
        raw = run_spec.merge(raw, {"environment": {"backend": backends.JAX}})
        environment = raw["environment"]
    if not set(SPACES) <= set(environment):
        raw = run_spec.merge(_described(environment, allowed), raw)
    raw.setdefault("name", default_name(environment["id"]))
    composed = Composed(*_begun(raw, allowed))
    if init is None:
        return composed
    if "initialisation" in given.get("policy", {}):
        raise SpecError(
            f"--init {init} and policy.initialisation say both how the parameters begin: leave one "
            "out"
        )
    from coordinator import initial  # compiled code, which only these runs need so early

    return Composed(*initial.begin(composed.spec, init))


def _begun(raw: Mapping[str, Any], allowed: Sequence[str]) -> tuple[RunSpec, State | None]:
    if _is_module(raw):
        from coordinator import modules

        return modules.begin(raw, allowed)
    return run_spec.parse(raw), None


def default_name(environment: str) -> str:
    """A run name made of an environment id."""
    return re.sub(r"[^a-z0-9]+", "-", environment.lower()).strip("-")[:40].strip("-") or "run"


def _preset(environment: str, named: str | None) -> dict[str, Any]:
    """What a run of this environment begins with. Raises `SpecError` for an unknown name."""
    if named == preset_files.NO_PRESET:
        return {"environment": {"id": environment}}
    if named is None or named == environment:
        own = preset_files.find(environment)
        return {"environment": {"id": environment}} if own is None else own.values
    other = preset_files.named(named).values
    other.pop("stop", None)  # that environment's target
    around = {key: value for key, value in other["environment"].items() if key not in SPACES}
    return {**other, "environment": {**around, "id": environment}}


def _without_stale_choices(base: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A preset's values, less those that were found for what the user replaces."""
    stale = set()
    if _is_module(given):
        stale |= {"policy"}  # it is of another kind
    if _strategy(given) not in (None, _strategy(base) or StrategySpec().kind):
        stale |= {"strategy", "optimizer"}
    left = {table: values for table, values in base.items() if table not in stale}
    changed = given.get("policy")
    if (
        isinstance(changed, Mapping)
        and "hidden" in changed
        and "hidden" not in base.get("policy", {})
    ):
        # Layers were asked for, and the preset's kind has none.
        kept = {key: value for key, value in left.get("policy", {}).items() if key != "kind"}
        left["policy"] = kept
    return left


def _is_module(raw: Mapping[str, Any]) -> bool:
    policy = raw.get("policy")
    return isinstance(policy, Mapping) and policy.get("kind") == "module"


def _strategy(raw: Mapping[str, Any]) -> str | None:
    """The kind of strategy, where it is said."""
    strategy = raw.get("strategy")
    kind = strategy.get("kind") if isinstance(strategy, Mapping) else None
    return kind if isinstance(kind, str) else None


def _strategy_defaults(kind: str | None) -> Mapping[str, Any]:
    """What a run with that strategy has unless told otherwise; the spec judges unknown names."""
    try:
        return {} if kind is None else strategies.get(kind).defaults
    except ShoalError:
        return {}


def _with_pool(name: str, base: Mapping[str, Any], source: str) -> dict[str, Any]:
    """`base` laid over the preset of the pool with that name. Raises `SpecError`."""
    from coordinator.pool.presets import PRESETS

    values = PRESETS.get(name)
    if values is None:
        raise SpecError(f"--pool {name[:40]!r}: must be one of {', '.join(PRESETS)}")
    said = base.get("pool", {})
    if isinstance(said, Mapping) and set(values) <= set(said):
        raise SpecError(
            f"--pool {name} would change nothing: {source} says {', '.join(values)} itself; leave "
            "--pool out, or those lines"
        )
    return run_spec.merge({"pool": values}, base)


def _without_stale_spaces(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """`base`, less the spaces of its environment where that gets other wrappers or arguments."""
    around, within = changes.get("environment"), base.get("environment")
    if not (isinstance(around, Mapping) and isinstance(within, Mapping)):
        return base
    if all(around.get(field, within.get(field)) == within.get(field) for field in SHAPING_SPACES):
        return base
    left = {key: value for key, value in within.items() if key not in SPACES}
    return {**base, "environment": left}


def _without_other_optimizer(
    base: Mapping[str, Any], changes: Mapping[str, Any]
) -> Mapping[str, Any]:
    """`base`, less what is good for its own kind of optimizer where that gets another."""
    changed, within = changes.get("optimizer"), base.get("optimizer")
    if not (isinstance(changed, Mapping) and isinstance(within, Mapping)):
        return base
    if changed.get("kind", within.get("kind")) == within.get("kind"):
        return base
    left = {key: value for key, value in within.items() if key in AROUND_OPTIMIZERS}
    return {**base, "optimizer": left}


def _described(environment: Mapping[str, Any], allowed: Sequence[str]) -> dict[str, Any]:
    """Spaces and usual target of the environment, as spec values; asks a process of its own."""
    name = environment["id"]
    said = _ask(name, environment, allowed)
    described: dict[str, Any] = {
        "environment": {"observation": said["observation"], "action": said["action"]}
    }
    if said.get("max_episode_steps") is None and not environment.get("max_steps"):
        raise SpecError(
            f"{name} has no time limit of its own, so an episode might never end: give one, for "
            "example --set environment.max_steps=1000"
        )
    if said.get("reward_threshold") is not None:
        described["stop"] = {"target": said["reward_threshold"]}
    return described


def _ask(name: str, environment: Mapping[str, Any], allowed: Sequence[str]) -> dict[str, Any]:
    """What the environment says of itself."""
    arguments = [
        f"--{field}={as_json(f'environment.{field}', environment.get(field, otherwise))}"
        for field, otherwise in (("kwargs", {}), ("wrappers", []))
    ]
    if environment.get("backend") == backends.JAX:
        arguments.append(f"--backend={backends.JAX}")
    return ask(
        Question(
            "worker.describe",
            f"the environment {name}",
            [*arguments, "--", name],
            DESCRIBE_TIMEOUT,
            "give environment.observation and environment.action in a run file",
            allowed,
        )
    )
