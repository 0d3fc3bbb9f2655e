"""The run spec: everything that defines a run, in one validated model that never changes."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from protocol.errors import ShoalError
from protocol.packing import WireError, pack, unpack

PROTOCOL_VERSION = 1
MAX_PARAMETERS = 1 << 28
"""More than this many parameters (1 GiB of float32) is refused by every peer."""

NAME_PATTERN = r"^[a-z0-9][a-z0-9-]{0,39}$"

Positive = Annotated[float, msgspec.Meta(gt=0.0, le=1e12)]
Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Scalar = bool | int | float | str


class SpecError(ShoalError):
    """A run spec that breaks a rule; the message names field, value, rule and remedy."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections: immutable, keyword only, a misspelt field is an error."""


class Box(Section, frozen=True, kw_only=True, tag="box", tag_field="kind"):
    """A space of real vectors: `shape`, and for actions the bounds `low` and `high` per element."""

    shape: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=1, le=1 << 24)], ...], msgspec.Meta(max_length=8)
    ]
    low: Annotated[tuple[float, ...], msgspec.Meta(max_length=4096)] = ()
    high: Annotated[tuple[float, ...], msgspec.Meta(max_length=4096)] = ()

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class Discrete(Section, frozen=True, kw_only=True, tag="discrete", tag_field="kind"):
    """A space of `n` actions or observations, numbered from `start`."""

    n: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
    start: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31)] = 0

    @property
    def size(self) -> int:
        """Number of elements of the one-hot form."""
        return self.n


Space = Box | Discrete


class EnvironmentSpec(Section, frozen=True, kw_only=True):
    """What is evaluated. The spaces are read from the environment once, when the run is made."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_./:-]+$")]
    backend: Literal["gymnasium"] = "gymnasium"
    kwargs: dict[Annotated[str, msgspec.Meta(max_length=64)], Scalar] = {}
    observation: Space
    action: Space
    max_steps: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0
    """Steps after which an episode is cut; 0 leaves it to the environment's own limit."""
    episodes: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Episodes per member, averaged."""
    seeding: Literal["pair", "version", "fixed"] = "pair"
    """`pair`: fresh seeds for each mirrored pair; `version`: all members of a version share theirs;
    `fixed`: the same seeds for ever."""


class PolicySpec(Section, frozen=True, kw_only=True):
    """A built-in policy: `linear`, or `mlp` with its hidden layers."""

    kind: Literal["linear", "mlp"] = "mlp"
    hidden: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=1, le=1 << 16)], ...], msgspec.Meta(max_length=8)
    ] = (32,)
    activation: Literal["tanh", "relu"] = "tanh"
    squash: Literal["clip", "tanh"] = "clip"
    """How outputs become continuous actions: clipped to the bounds, or tanh scaled to them."""
    initialisation: Literal["zero", "scaled"] = "scaled"
    """`zero`, or normal noise divided by the square root of a layer's inputs."""
    initial_scale: Annotated[float, msgspec.Meta(gt=0.0, le=100.0)] = 1.0


class StrategySpec(Section, frozen=True, kw_only=True):
    """The evolution strategy: mirrored OpenAI-ES (Salimans et al. 2017)."""

    kind: Literal["openai-es"] = "openai-es"
    noise: Literal["rademacher", "gaussian"] = "rademacher"
    population: Annotated[int, msgspec.Meta(ge=2, le=65_536, multiple_of=2)] = 64
    """Members of a batch; two per direction."""
    sigma: Annotated[float, msgspec.Meta(gt=0.0, le=1e6)] = 0.1


class OptimizerSpec(Section, frozen=True, kw_only=True):
    """How a gradient becomes a step; fields that a kind does not use are ignored by it."""

    kind: Literal["normalised", "sgd", "adam"] = "normalised"
    learning_rate: Annotated[float, msgspec.Meta(gt=0.0, le=1e6)] = 0.5
    momentum: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.8
    beta1: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.9
    beta2: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.999
    epsilon: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1e-8
    weight_decay: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.0


class NormalizerSpec(Section, frozen=True, kw_only=True):
    """Whether observations are shifted and scaled by their running mean and deviation."""

    enabled: bool = False
    clip: Annotated[float, msgspec.Meta(gt=0.0, le=1e6)] = 10.0
    """Normalised observations are clipped to +-clip deviations."""


class PoolSpec(Section, frozen=True, kw_only=True):
    """How the pool behaves; `quorum = 1.0` with `max_staleness = 0` is classic synchronous ES."""

    quorum: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1.0
    """Share of a batch that must have arrived before stragglers may be left behind."""
    max_staleness: Annotated[int, msgspec.Meta(ge=0, le=16)] = 0
    """How many versions old a late return may be and still count, with a discount."""
    stale_share: Fraction = 0.25
    """Share of a batch that may be evaluated ahead, one version early, where staleness is allowed."""
    task_seconds: Annotated[float, msgspec.Meta(gt=0.0, le=600.0)] = 2.0
    """Seconds of work that a task aims at most at."""
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

    target: Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)] | None = None
    """Mean return of the centre over a full evaluation."""
    updates: Annotated[int, msgspec.Meta(ge=0, le=2**40)] | None = None
    episodes: Annotated[int, msgspec.Meta(ge=1, le=2**50)] | None = None
    seconds: Annotated[float, msgspec.Meta(gt=0.0, le=1e9)] | None = None


class RunSpec(Section, frozen=True, kw_only=True):
    """One training, whole. `seed` names every random number that the run will ever use."""

    protocol: Literal[1] = 1
    name: Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
    seed: Seed = 0
    environment: EnvironmentSpec
    policy: PolicySpec = PolicySpec()
    strategy: StrategySpec = StrategySpec()
    optimizer: OptimizerSpec = OptimizerSpec()
    normalizer: NormalizerSpec = NormalizerSpec()
    pool: PoolSpec = PoolSpec()
    centre: CentreSpec = CentreSpec()
    stop: StopSpec = StopSpec()

    @property
    def directions(self) -> int:
        """Directions of a batch: B in `[k*B, (k+1)*B)`."""
        return self.strategy.population // 2

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of each dense layer; its parameters are weights (outputs, inputs), row
        by row, then biases (outputs,)."""
        return layers(self.policy, self.environment)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(inputs * outputs + outputs for inputs, outputs in self.layers)

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


def layers(policy: PolicySpec, environment: EnvironmentSpec) -> tuple[tuple[int, int], ...]:
    """(inputs, outputs) of each dense layer of a built-in policy in this environment."""
    hidden = policy.hidden if policy.kind == "mlp" else ()
    widths = (environment.observation.size, *hidden, environment.action.size)
    return tuple(itertools.pairwise(widths))


def parse(raw: Mapping[str, Any]) -> RunSpec:
    """The validated spec of plain values (from TOML, flags or the wire). Raises `SpecError`."""
    try:
        spec = msgspec.convert(raw, RunSpec)
    except msgspec.ValidationError as error:
        raise SpecError(_explain(str(error), raw)) from None
    _check_together(spec)
    return spec


def from_bytes(data: bytes) -> RunSpec:
    """The spec that `to_bytes` packed, validated anew. Raises `SpecError`."""
    try:
        raw = unpack(data)
    except WireError as error:
        raise SpecError(f"the run spec can't be read ({error}): the host must mend it") from None
    if not isinstance(raw, dict):
        raise SpecError("the run spec is not a table: ask the host for a fresh one")
    return parse(raw)


def to_bytes(spec: RunSpec) -> bytes:
    """Canonical msgpack form; equal specs give equal bytes."""
    return pack(to_plain(spec))


def to_plain(spec: RunSpec) -> dict[str, Any]:
    """Plain nested values, every field in its declared order, no field left out."""
    plain: dict[str, Any] = msgspec.to_builtins(spec)
    return plain


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
        if not equals or not all(re.fullmatch(r"[a-z_0-9]+", key) for key in keys):
            raise SpecError(
                f"--set {assignment!r} is not of the form section.field=value, "
                "for example --set strategy.sigma=0.05"
            )
        try:
            value = tomllib.loads(f"value = {text.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        nested: Any = value
        for key in reversed(keys):
            nested = {key: nested}
        changes = merge(changes, nested)
    return changes


def _check_together(spec: RunSpec) -> None:
    """Rules that tie fields to each other."""
    environment, action = spec.environment, spec.environment.action
    if isinstance(action, Box):
        if not len(action.low) == len(action.high) == action.size:
            raise SpecError(
                f"environment.action has {action.size} elements but {len(action.low)} low and "
                f"{len(action.high)} high bounds: give one of each per element"
            )
        if not all(
            math.isfinite(low) and math.isfinite(high) and low < high
            for low, high in zip(action.low, action.high, strict=True)
        ):
            raise SpecError(
                f"the actions of {environment.id} are not bounded "
                f"(low {action.low}, high {action.high}): built-in policies need finite bounds; "
                "wrap the environment with a rescaled action space"
            )
    if spec.size > MAX_PARAMETERS:
        raise SpecError(
            f"the policy has {spec.size:,} parameters, over the limit of {MAX_PARAMETERS:,}: "
            "use smaller layers in policy.hidden"
        )
    if spec.policy.kind == "mlp" and not spec.policy.hidden:
        raise SpecError('policy.hidden is empty: give its layers, or use policy.kind = "linear"')
    if spec.centre.screening > spec.centre.episodes:
        raise SpecError(
            f"centre.screening is {spec.centre.screening}, more than centre.episodes "
            f"({spec.centre.episodes}): screening is the first part of an evaluation"
        )
    if spec.stop.target is not None and spec.centre.evaluate_every == 0:
        raise SpecError(
            f"stop.target is {spec.stop.target} but centre.evaluate_every is 0, so the centre "
            "would never be judged: set centre.evaluate_every to 1 or more"
        )
    for name, value in environment.kwargs.items():
        if isinstance(value, str) and len(value) > 256:
            raise SpecError(
                f"environment.kwargs.{name} is {len(value)} characters long: 256 at most"
            )
    if len(environment.kwargs) > 64:
        raise SpecError(f"environment.kwargs has {len(environment.kwargs)} entries: 64 at most")


def _explain(message: str, raw: Mapping[str, Any]) -> str:
    """msgspec's message as: field, value, rule, remedy."""
    rule, _, where = message.partition(" - at `$")
    path = where.rstrip("`").strip(".")
    value: Any = raw
    annotation: Any = RunSpec
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        annotation = _field_type(annotation, part)
    unknown = re.match(r"Object contains unknown field `(.*)`", rule)
    if unknown:
        known = sorted(_field_names(annotation))
        close = difflib.get_close_matches(unknown[1], known, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"known here: {', '.join(known)}"
        where = f"{path}.{unknown[1]}" if path else unknown[1]
        return f"unknown field `{where}` in the run spec: {hint}"
    missing = re.match(r"Object missing required field `(.*)`", rule)
    if missing:
        where = f"{path}.{missing[1]}" if path else missing[1]
        return f"the run spec has no `{where}`: add it"
    choices = _choices(annotation)
    if choices and "Invalid enum value" in rule:
        return f"{path} is {value!r}: it must be one of {', '.join(map(repr, choices))}"
    shown = repr(value)
    return f"{path or 'the run spec'} is {shown[:80]}: {rule[:1].lower()}{rule[1:]}"


def _field_names(annotation: Any) -> tuple[str, ...]:
    """Field names of a section, of every section of a union, or none."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return tuple(annotation.__struct_fields__)
    return tuple(name for part in get_args(annotation) for name in _field_names(part))


def _field_type(annotation: Any, field: str) -> Any:
    """The declared type of a field of a section, else None."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return get_type_hints(annotation, include_extras=True).get(field)
    return None


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The values that a Literal admits, else none."""
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _write_table(lines: list[str], path: tuple[str, ...], table: Mapping[str, Any]) -> None:
    plain = {k: v for k, v in table.items() if not isinstance(v, Mapping) and v is not None}
    if path and (plain or not table):
        lines.append(f"\n[{'.'.join(path)}]")
    lines.extend(f"{key} = {_toml_value(value)}" for key, value in plain.items())
    for key, value in table.items():
        if isinstance(value, Mapping):
            _write_table(lines, (*path, key), value)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(item) for item in value)}]"
    return repr(value)
