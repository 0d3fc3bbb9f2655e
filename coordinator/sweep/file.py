"""The sweep file: what is varied, how often, for how long, and by what it is judged; validated."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from protocol.errors import ShoalError
from protocol.mistakes import explain
from protocol.section import Section
from protocol.spec.sections import NAME_PATTERN, Seed

MOST_POINTS = 10_000
MOST_SEEDS = 1_000
MOST_BYTES = 1 << 20
"""Of a sweep file."""

Metric = Literal["final", "best", "updates-to-target", "episodes-to-target"]
TO_TARGET: tuple[Metric, ...] = ("updates-to-target", "episodes-to-target")
"""Metrics that need a target, and of which less is better."""
Sampler = Literal["grid", "list", "random", "tpe"]


class SweepError(ShoalError):
    """A sweep that can't be: the message names what is wrong, the rule and the remedy."""


class Budget(Section, frozen=True, kw_only=True):
    """When each run ends, in the place of the base's own `[stop]`: at the first that is met."""

    updates: Annotated[int, msgspec.Meta(ge=1, le=2**40)] | None = None
    episodes: Annotated[int, msgspec.Meta(ge=1, le=2**50)] | None = None
    """Members' episodes that counted."""
    seconds: Annotated[float, msgspec.Meta(gt=0.0, le=1e9)] | None = None
    """What a run reaches in them depends on the pool."""
    target: Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)] | None = None
    """Mean return of the centre that ends a run; where the metric counts what a target takes, by
    default the base's."""


class Stop(Section, frozen=True, kw_only=True):
    """How points that do worse than others are stopped early."""

    rule: Literal["halving", "median"]
    rungs: Annotated[int, msgspec.Meta(ge=1, le=20)] = 3
    """Moments of a run at which it is compared."""
    factor: Annotated[int, msgspec.Meta(ge=2, le=100)] = 2
    """Of `halving`: one point of so many goes on at a rung, for so many times as long."""
    least: Annotated[int, msgspec.Meta(ge=1, le=MOST_POINTS)] = 3
    """Of `median`: so many earlier points it takes to compare one with."""


class SweepFile(Section, frozen=True, kw_only=True):
    """A sweep as its file says it; the fields of the run spec in it are judged later, with the
    rest of the spec."""

    base: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    """An environment id, whose preset is taken as `shoal host` takes it, or a run file."""
    name: (
        Annotated[
            str,
            msgspec.Meta(
                pattern=NAME_PATTERN,
                description="lower-case letters, digits and dashes, at most 40, not a dash first",
            ),
        ]
        | None
    ) = None
    """What its runs' names begin with; by default as the file is called."""
    seeds: (
        Annotated[int, msgspec.Meta(ge=1, le=MOST_SEEDS)]
        | Annotated[tuple[Seed, ...], msgspec.Meta(min_length=1, max_length=MOST_SEEDS)]
    ) = 3
    """The seeds of a point's runs, or how many from 0 on."""
    sampler: Sampler | None = None
    """By default as its table: `grid`, `list` or `random`; `tpe` for `[random]`, where each point
    depends on what became of those before."""
    points: Annotated[int, msgspec.Meta(ge=1, le=MOST_POINTS)] | None = None
    """How many `random` and `tpe` draw."""
    seed: Seed = 0
    """Names all that is drawn."""
    metric: Metric = "final"
    """`final`: mean return of the centre at the end; `best`: at its best evaluation; or what its
    target took."""
    pool: Literal["sync", "quorum", "async", "base"] = "sync"
    """`base`: as the base says. With any but `sync` results depend on who is fast."""
    set: dict[str, Any] = {}  # noqa: RUF012
    """Fields that are the same in all points."""
    grid: dict[str, Any] = {}  # noqa: RUF012
    random: dict[str, Any] = {}  # noqa: RUF012
    list: Annotated[tuple[dict[str, Any], ...], msgspec.Meta(max_length=MOST_POINTS)] = ()
    budget: Budget
    stop: Stop | None = None

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds of a point's runs."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def sampled(self) -> Sampler:
        """How points come to be."""
        if self.sampler is not None:
            return self.sampler
        return "grid" if self.grid else "list" if self.list else "random"


def load(path: Path) -> str:
    """The text of a sweep file. Raises `SweepError`."""
    try:
        data = path.read_bytes()
        if len(data) > MOST_BYTES:
            raise SweepError(f"{path} has {len(data):,} bytes: a sweep file has {MOST_BYTES:,}")
        return data.decode()
    except FileNotFoundError:
        raise SweepError(
            f"no sweep file {path}: give a TOML file, or one of the commands that shoal sweep "
            "--help lists"
        ) from None
    except IsADirectoryError:
        raise SweepError(
            f"can't read the sweep file {path}, a directory: give a TOML file; a sweep that was "
            f"begun goes on with shoal sweep resume {path}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SweepError(f"can't read the sweep file {path}: {error}") from None


def parse(text: str, path: Path) -> SweepFile:
    """The sweep that a file says; `path` is where it lies. Raises `SweepError`."""
    try:
        raw = tomllib.loads(text)
    except ValueError as error:
        raise SweepError(f"{path} is not valid TOML: {error}; mend that line") from None
    except RecursionError:
        raise SweepError(f"{path} has values too deep in one another: use fewer levels") from None
    try:
        said = msgspec.convert(raw, SweepFile)
    except msgspec.ValidationError as error:
        raise SweepError(f"{path}: {explain(str(error), raw, SweepFile)}") from None
    if mistake := _mistake(said):
        raise SweepError(f"{path}: {mistake}")
    name = said.name if said.name is not None else default_name(path)
    return msgspec.structs.replace(said, name=name)


def default_name(path: Path) -> str:
    """A name made of that of the file."""
    return re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:40].strip("-") or "sweep"


def _mistake(said: SweepFile) -> str:
    """What of it does not go together; empty where all does."""
    tables: Mapping[str, object] = {"grid": said.grid, "random": said.random, "list": said.list}
    given = [name for name, table in tables.items() if table]
    if len(given) != 1:
        return (
            f"it has {' and '.join(f'[{name}]' for name in given) or 'nothing that varies'}: give "
            "exactly one of [grid], [random] and [[list]]"
        )
    fits = ("random", "tpe") if given == ["random"] else (given[0],)
    if said.sampled not in fits:
        return f"sampler = {said.sampled!r} does not go with [{given[0]}]: leave it out" + (
            ", or give [random] and points" if said.sampled in ("random", "tpe") else ""
        )
    draws = given == ["random"]
    if draws and said.points is None:
        return "`points` is missing: say how many [random] draws, above all tables (points = 24)"
    if not draws and said.points is not None:
        return f"`points` is for [random] alone: [{given[0]}] says by itself how many there are"
    seeds = said.all_seeds
    if len(set(seeds)) != len(seeds):
        twice = next(seed for seed in seeds if seeds.count(seed) > 1)
        return f"`seeds` has {twice} twice: give each once"
    budget = said.budget
    if budget.updates is None and budget.episodes is None and budget.seconds is None:
        return "`budget` ends no run: give budget.updates, budget.episodes or budget.seconds"
    if said.stop is None:
        return ""
    if budget.updates is None and budget.episodes is None:
        return (
            f"stop.rule = {said.stop.rule!r} compares runs after a share of their updates: give "
            "budget.updates or budget.episodes"
        )
    if said.sampled == "tpe" and said.stop.rule == "halving":
        return (
            "stop.rule = 'halving' compares all points at once, and sampler = 'tpe' draws them "
            "one after the other: use 'median', or 'random'"
        )
    return ""
