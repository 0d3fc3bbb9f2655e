"""Points of a sweep: settings by dotted name, from a grid, a list or by lot; pure."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.sweep.file import MOST_POINTS, SweepError, SweepFile

NAME_BYTES = 4
RESERVED = ("name", "seed", "stop", "protocol")
"""What a sweep says itself of each run."""

Settings = Mapping[str, Any]
"""Values of fields of the run spec by their dotted names, in the order of these."""


@dataclass(frozen=True, slots=True)
class Point:
    """Settings, and the name that is made of them alone: eight hexadecimal digits."""

    name: str
    settings: Settings

    @property
    def label(self) -> str:
        """For people."""
        return " ".join(f"{name}={text(value)}" for name, value in self.settings.items())


@dataclass(frozen=True, slots=True)
class Range:
    """What a field is drawn from: `choices`; or from `low` to `high`, evenly or evenly in the
    logarithm, whole numbers or not."""

    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False
    step: int = 1


def point(settings: Settings) -> Point:
    """The point with these settings."""
    ordered = {name: settings[name] for name in sorted(settings)}
    data = json.dumps(ordered, sort_keys=True, separators=(",", ":"), default=str)
    return Point(hashlib.blake2b(data.encode(), digest_size=NAME_BYTES).hexdigest(), ordered)


def text(value: Any) -> str:
    """A value for people."""
    if isinstance(value, float):
        return f"{value:.6g}"
    plain = isinstance(value, str) and value.isprintable()  # lines stay lines
    return str(value) if plain else json.dumps(value, default=str)


def nested(settings: Settings) -> dict[str, Any]:
    """The settings as tables within tables. Raises `SweepError` where one lies in another."""
    tables: dict[str, Any] = {}
    for name, value in settings.items():
        *above, last = name.split(".")
        table = tables
        for key in above:
            table = table.setdefault(key, {})
        table[last] = value
    return tables


def all_points(said: SweepFile) -> list[Point]:
    """All points of a sweep whose sampler needs no results, in their order. Raises `SweepError`.

    Of points that are the same the first counts.
    """
    match said.sampled:
        case "grid":
            found = _grid(said)
        case "list":
            found = iter(_entry(entry, number) for number, entry in enumerate(said.list, 1))
        case _:
            ranges = drawn_from(said)
            found = iter(drawn(ranges, said.seed, number) for number in range(said.points or 0))
    points: dict[str, Point] = {}
    for settings in found:
        made = point(settings)
        points.setdefault(made.name, made)
    return list(points.values())


def drawn_from(said: SweepFile) -> dict[str, Range]:
    """What each field of `[random]` is drawn from, in the order of names. Raises `SweepError`."""
    fields = _fields(said.random, "random", _DRAWN)
    return {name: _range(name, value) for name, value in fields.items()}


def fixed(said: SweepFile) -> Settings:
    """What `[set]` says of all points. Raises `SweepError`."""
    return _fields(said.set, "set")


def drawn(ranges: Mapping[str, Range], seed: int, number: int) -> Settings:
    """The settings of the point with this number: each field's depends on its name and these
    alone."""
    return {name: _draw(range_, _share(seed, number, name)) for name, range_ in ranges.items()}


def _share(seed: int, number: int, name: str) -> float:
    """A number, at least 0 and below 1, that is named by these."""
    digest = hashlib.blake2b(f"{seed} {number} {name}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / (1 << 53)


def _draw(range_: Range, share: float) -> Any:
    """The value at this share, at least 0 and below 1, of the way."""
    if range_.choices:
        return range_.choices[int(share * len(range_.choices))]
    if range_.whole and not range_.log:
        steps = int(range_.high - range_.low) // range_.step + 1
        return int(range_.low) + range_.step * int(share * steps)
    if range_.log:
        low, high = math.log(range_.low), math.log(range_.high)
        # Six digits say as much as anybody can read, and are the same by every libm.
        value = float(f"{math.exp(low + share * (high - low)):.6g}")
        return min(max(value, range_.low), range_.high)
    return float(f"{range_.low + share * (range_.high - range_.low):.6g}")


def _grid(said: SweepFile) -> Iterator[Settings]:
    factors = _fields(said.grid, "grid")
    for name, values in factors.items():
        if not isinstance(values, list) or not values:
            raise SweepError(
                f"grid.{name} is {text(values)[:60]}: must be a list of values, at least one"
            )
    count = math.prod(len(values) for values in factors.values())
    if count > MOST_POINTS:
        raise SweepError(f"[grid] has {count:,} points: at most {MOST_POINTS:,} are possible")
    for values in itertools.product(*factors.values()):
        yield dict(zip(factors, values, strict=True))


def _entry(entry: Mapping[str, Any], number: int) -> Settings:
    settings = _fields(entry, f"list[{number}]")
    if not settings:
        raise SweepError(f"[[list]] number {number} says nothing: give it a field, or leave it out")
    return settings


_DRAWN = ("uniform", "log-uniform", "integer", "choice")
"""What a table of `[random]` has one of that says what a field is drawn from."""


def _fields(table: Mapping[str, Any], where: str, ends: Sequence[str] = ()) -> Settings:
    """What lies in tables within tables, by dotted names and in their order; a table with a key of
    `ends` is a value. Raises `SweepError`."""
    found: dict[str, Any] = {}
    for name, value in _leaves(table, where, ends, ""):
        if name.partition(".")[0] in RESERVED:
            raise SweepError(
                f"{where}.{name}: the sweep says this of each run itself, by `name`, `seeds` and "
                "[budget]: leave it out"
            )
        if name in found:
            raise SweepError(f"{where}.{name} is there twice: leave one out")
        found[name] = value
    for name in found:
        if above := next((other for other in found if name.startswith(f"{other}.")), None):
            raise SweepError(f"{where} has both {above} and {name}: leave one of them out")
    return dict(sorted(found.items()))


def _leaves(
    table: Mapping[str, Any], where: str, ends: Sequence[str], above: str
) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = f"{above}.{key}" if above else key
        if re.fullmatch(r"[A-Za-z0-9_.-]+", key) is None or "" in key.split("."):
            raise SweepError(
                f"{where}.{name[:60]!r} is no name of a field: must be letters, digits, _ and -, "
                "with dots between"
            )
        if isinstance(value, Mapping) and not set(ends) & set(value):
            if not value:
                raise SweepError(f"{where}.{name} is an empty table: give it a value")
            yield from _leaves(value, where, ends, name)
        else:
            yield name, value


def _range(name: str, value: Any) -> Range:
    """What a table such as `{ uniform = [0.1, 1] }` means. Raises `SweepError`."""
    where = f"random.{name}"
    kinds = [key for key in value if key in _DRAWN] if isinstance(value, Mapping) else []
    if len(kinds) != 1:
        raise SweepError(
            f"{where} is {text(value)[:60]}: must be a table with one of {', '.join(_DRAWN)}, "
            "such as { uniform = [0.1, 1.0] }"
        )
    (kind,) = kinds
    known = {kind, "step"} if kind == "integer" else {kind}
    if strange := sorted(set(value) - known):
        raise SweepError(f"{where} has {strange[0]!r} beside {kind}: leave it out")
    ends = value[kind]
    if kind == "choice":
        if not isinstance(ends, list) or not ends:
            raise SweepError(f"{where}.choice must be a list of values, at least one")
        return Range(choices=tuple(ends))
    kinds_of_number = (int,) if kind == "integer" else (int, float)
    if not (
        isinstance(ends, list)
        and len(ends) == 2
        and all(isinstance(end, kinds_of_number) and not isinstance(end, bool) for end in ends)
        and all(math.isfinite(end) and abs(end) <= 2**53 for end in ends)
        and ends[0] < ends[1]
    ):
        raise SweepError(
            f"{where}.{kind} is {text(ends)[:60]}: must be two {'whole ' * (kind == 'integer')}"
            "numbers, the lower one first"
        )
    if kind == "log-uniform" and ends[0] <= 0:
        raise SweepError(f"{where}.log-uniform begins at {text(ends[0])}: must be above 0")
    step = value.get("step", 1)
    if not isinstance(step, int) or isinstance(step, bool) or not 1 <= step <= ends[1] - ends[0]:
        if kind == "integer":
            raise SweepError(
                f"{where}.step is {text(step)[:60]}: must be a whole number, at least 1 and no "
                "longer than the way"
            )
        step = 1
    low, high = float(ends[0]), float(ends[1])
    return Range(low=low, high=high, log=kind == "log-uniform", whole=kind == "integer", step=step)
