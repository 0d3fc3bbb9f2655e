"""Makes the run specs of a sweep: its base, what all points have, a point's own, and a seed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from coordinator.composing import SPACES, Composed, compose
from coordinator.pool.presets import PRESETS
from coordinator.sweep.file import TO_TARGET, SweepError, SweepFile
from coordinator.sweep.judging import rung_versions
from coordinator.sweep.measures import Aim
from coordinator.sweep.points import Point, Settings, fixed, nested, point
from protocol import spec as run_spec

if TYPE_CHECKING:
    from protocol.spec import RunSpec

LONGEST_NAME = 40
NO_SETTINGS: Settings = {}


class Specs:
    """The specs of a sweep's runs.

    Attributes:
        aim: what runs are measured by.
    """

    def __init__(self, said: SweepFile, source: str, allowed: Sequence[str] = ()) -> None:
        """`source`: the base, as `shoal host` takes it; `allowed` modules may register its
        environment. Raises `ShoalError` where the base or `[set]` is wrong."""
        self._said = said
        self._source = source
        self._allowed = allowed
        self._fixed = fixed(said)
        self._spaces: dict[str, dict[str, Any]] = {}
        self.aim = Aim(said.metric)
        base = self._composed(point(NO_SETTINGS), 0, {}).spec
        target = said.budget.target
        if target is None and said.metric in TO_TARGET:
            target = base.stop.target
        if target is None and said.metric in TO_TARGET:
            raise SweepError(
                f"metric = {said.metric!r} needs a target, and {said.base} has none: give "
                "budget.target"
            )
        self.aim = Aim(said.metric, target, base.stop.confidence)
        if not base.centre.evaluate_every:
            raise SweepError(
                f"{said.base} never evaluates its centre, by which a sweep judges: give "
                "set.centre.evaluate_every"
            )

    def of(self, at: Point, seed: int) -> Composed:
        """The spec of the run of a point with this seed. Raises `ShoalError`."""
        budget = self._said.budget
        stop = {
            "target": self.aim.target,
            "updates": budget.updates,
            "episodes": budget.episodes,
            "steps": None,
            "seconds": budget.seconds,
        }
        return self._composed(at, seed, {"stop": stop})

    def rungs(self, spec: RunSpec) -> list[int]:
        """The versions at which a run with this spec is compared with others."""
        stop, budget = self._said.stop, self._said.budget
        if stop is None:
            return []
        lengths = [] if budget.updates is None else [budget.updates]
        if budget.episodes is not None:
            each = spec.strategy.population * spec.environment.episodes
            lengths.append(math.ceil(budget.episodes / each))
        every = spec.centre.evaluate_every
        return rung_versions(stop.rule, stop.rungs, stop.factor, min(lengths), every)

    def _composed(self, at: Point, seed: int, more: dict[str, Any]) -> Composed:
        settings = {**self._fixed, **at.settings}
        flags = run_spec.merge(self._pool(), nested(settings))
        flags = run_spec.merge(flags, {"name": self._name(at, seed), "seed": seed, **more})
        around = {name: value for name, value in settings.items() if name.startswith("environment")}
        key = json.dumps(around, sort_keys=True, default=str)
        known = self._spaces.get(key)
        if known is not None:  # asking an environment takes a process
            flags = run_spec.merge({"environment": known}, flags)
        composed = compose(self._source, flags, (), self._allowed)
        if composed.spec.objective is None:
            plain = run_spec.to_plain(composed.spec)["environment"]
            self._spaces[key] = {name: plain[name] for name in SPACES}
        return composed

    def _pool(self) -> dict[str, Any]:
        return {} if self._said.pool == "base" else {"pool": dict(PRESETS[self._said.pool])}

    def _name(self, at: Point, seed: int) -> str:
        """A name that no other run of the sweep has: all have its key."""
        own = f"-{at.name}-{seed}"
        name = self._said.name or "sweep"
        return name[: LONGEST_NAME - len(own)].rstrip("-") + own
