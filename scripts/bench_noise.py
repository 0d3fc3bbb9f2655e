"""Time exact sums of noise against drawing normal vectors with NumPy, on one core, in one run.

`python scripts/bench_noise.py` prints a line for each figure, then one line of JSON. Ratios are
medians over rounds that take turns, so that another load on the machine slows both sides alike.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np

from protocol import noise, optimizers
from protocol.state import Arithmetic, CohortTerms, UpdateTerms, apply, initial_state

TARGETS = {"rademacher": 40.0, "gaussian": 3.0}
MEMORY_TARGET_MIB = 64.0
UPDATE_SIZE, UPDATE_PAIRS, UPDATE_TARGET_MS = 100_000, 500, 20.0
RUN_SEED = 1


def main() -> None:
    """Measure, print, and exit with 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1_000_000, help="parameters")
    parser.add_argument("--directions", type=int, default=500, help="directions in a sum")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all sides in turn")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    weights = np.arange(options.directions) * 7919 % 1999 - 999
    figures = sums(weights, options.size, options.rounds)
    # A process of its own for each: a peak never comes down again.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for kind in noise.KINDS:
            peak = pool.apply(mib_above_result, (kind, weights, options.size))
            figures[f"{kind}_mib_above_result"] = peak
    updates = {kind: 1e3 * taken for kind, taken in update_seconds().items()}
    slowest = max(updates, key=updates.__getitem__)
    figures["update_ms"] = updates["adam"]
    figures["slowest_update_ms"] = updates[slowest]
    met = updates[slowest] < UPDATE_TARGET_MS
    for kind, target in TARGETS.items():
        met &= figures[f"{kind}_ratio"] >= target
        met &= figures[f"{kind}_mib_above_result"] < MEMORY_TARGET_MIB
    report(figures, options.directions, options.size, slowest)
    print(json.dumps(vars(options) | {k: round(v, 4) for k, v in figures.items()} | {"met": met}))
    raise SystemExit(0 if met else 1)


def sums(weights: np.ndarray, size: int, rounds: int) -> dict[str, float]:
    """Seconds and ratios of a weighted sum of each kind, against drawn normal vectors."""
    sides: dict[str, Callable[[], object]] = {
        "normal": lambda: drawn_sum(weights.size, size),
        "rademacher": lambda: noise.weighted_sum("rademacher", RUN_SEED, 0, weights, size),
        "gaussian": lambda: noise.weighted_sum("gaussian", RUN_SEED, 0, weights, size),
    }
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            spent[name].append(seconds(side))
    figures = {f"{name}_seconds": statistics.median(times) for name, times in spent.items()}
    for kind in TARGETS:
        ratios = [drawn / own for drawn, own in zip(spent["normal"], spent[kind], strict=True)]
        figures[f"{kind}_ratio"] = statistics.median(ratios)
    return figures


def drawn_sum(directions: int, size: int) -> np.ndarray:
    """Draw a float32 normal vector for each direction and add it; weighting it would cost more."""
    generator = np.random.Generator(np.random.SFC64(RUN_SEED))
    total = np.zeros(size, dtype=np.float32)
    for _ in range(directions):
        total += generator.standard_normal(size, dtype=np.float32)
    return total


def mib_above_result(kind: str, weights: np.ndarray, size: int) -> float:
    """By how much the peak memory of this process grows in a sum, less the result itself."""
    noise.weighted_sum(kind, RUN_SEED, 0, weights[:8], 100)
    before = peak_bytes()
    result = noise.weighted_sum(kind, RUN_SEED, 0, weights, size)
    return max(0.0, (peak_bytes() - before - result.nbytes) / 2**20)


def peak_bytes() -> int:
    """The largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def update_seconds() -> dict[str, float]:
    """A whole update with each optimizer: 100,000 parameters, 1,000 members, rademacher noise; the
    best of seven that take turns."""
    weights = np.arange(UPDATE_PAIRS) * 7919 % 1999 - 999
    terms = UpdateTerms([CohortTerms(0, 0, weights, 60)], 1e-6, 0.01, 0.1)
    theta = np.zeros(UPDATE_SIZE, dtype=np.float32)
    best = dict.fromkeys(optimizers.OPTIMIZERS, float("inf"))
    for _ in range(7):
        for kind in best:
            optimizer = optimizers.make(kind, {})
            arithmetic = Arithmetic("rademacher", RUN_SEED, optimizer, UPDATE_SIZE)
            state = initial_state(arithmetic, theta, sigma=0.1)
            taken = seconds(lambda: apply(arithmetic, state, terms))  # noqa: B023
            best[kind] = min(best[kind], taken)
    return best


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def report(figures: dict[str, float], directions: int, size: int, slowest: str) -> None:
    """The figures for people."""
    normal = figures["normal_seconds"]
    print(f"{directions} directions x {size:,} parameters, one core")
    print(f"  drawn normals (SFC64) {normal:8.3f} s")
    for kind, target in TARGETS.items():
        print(
            f"  {kind:<21} {figures[f'{kind}_seconds']:8.3f} s   "
            f"{figures[f'{kind}_ratio']:6.1f} times as fast (target {target:g})   "
            f"{figures[f'{kind}_mib_above_result']:.1f} MiB above its result"
        )
    print(
        f"update of {UPDATE_SIZE:,} parameters, {2 * UPDATE_PAIRS} members: "
        f"{figures['update_ms']:.1f} ms with adam, {figures['slowest_update_ms']:.1f} ms with "
        f"{slowest} (target {UPDATE_TARGET_MS:g})"
    )


if __name__ == "__main__":
    main()
