"""The arms of the benchmark are runs that can be made, and are what they are called."""

from __future__ import annotations

import itertools

from coordinator.composing import compose
from scripts.bench_hill_climbing import ARMS, ENVIRONMENT


def test_arms_are_what_they_are_called() -> None:
    for arm, flags in ARMS.items():
        assignments = [value for flag, value in itertools.pairwise(flags) if flag == "--set"]
        given = dict(zip(flags[::2], flags[1::2], strict=True))
        strategy = {"population": int(given["--population"])}
        if "--sigma" in given:
            strategy["sigma"] = float(given["--sigma"])
        spec = compose(ENVIRONMENT, {"strategy": strategy}, assignments).spec
        assert spec.strategy.kind == arm.partition(",")[0]
        assert spec.needs_acceptance is (arm == "hill-climbing, only better")
        assert (spec.stop.target, spec.centre.episodes) == (195.0, 100)
        if spec.strategy.kind == "hill-climbing":
            assert (spec.strategy.population, spec.strategy.elites) == (20, 0.4)
        else:
            assert spec.strategy.population == 50
