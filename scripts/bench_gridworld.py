"""Time Q-learning on a grid of 8 x 12 for several numbers of agents, in one process on the CPU.

`python scripts/bench_gridworld.py` prints a line for each number of agents: steps per second, of
all agents, without compiling; the seconds that compiling took; and the memory that the program
needs, which no number of steps adds to. With 30
agents a stand-in for the published loop of jax_rl does the same work in turn, so that another load
on the machine slows both alike: the ratio is the median over rounds. The last line is JSON.

The article "Vectorize and Parallelize RL Environments with JAX" (R. Pégoud, 2023) has 1.83 million
steps per second on its machine; its settings are a learning rate and an epsilon of 0.1, a discount
of 0.9, a reward of 1 at the goal in the other corner, and no limit of steps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, str(Path(__file__).parent.parent))

ARTICLE = 1.83e6
TARGET_OF_ARTICLE, TARGET_OF_PEER = 10.0, 5.0
COMPARED = 30
"""Agents with which the peer works."""
PEER_STEPS = 5_000
"""Of each agent: with 30 of them the peer keeps 230 MB of tables for so many."""
SECONDS = 0.3
"""That a turn of ours takes about."""


def main() -> None:
    """Measure, print, and exit with 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--agents", type=int, nargs="+", default=[1, 30, 256, 1024, 16_384], help="side by side"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all sides in turn")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    best, ratio = 0.0, None
    for agents in options.agents:
        found = measure(agents, options.rounds)
        figures[str(agents)] = found
        best = max(best, found["steps_per_second"])
        line = (
            f"{agents:6,} agents: {found['steps_per_second'] / 1e6:6.1f} M steps/s, compiled in "
            f"{found['compile_seconds']:.1f} s, {found['program_mib']:,.2f} MiB"
        )
        if "peer_ratio" in found:
            line += (
                f"; {found['peer_ratio']:.1f} x the stand-in, "
                f"{found['peer_steps_per_second'] / 1e6:.2f} M steps/s, compiled in "
                f"{found['peer_compile_seconds']:.1f} s"
            )
            ratio = found["peer_ratio"]
        print(line, flush=True)
    met = best >= TARGET_OF_ARTICLE * ARTICLE and (ratio is None or ratio >= TARGET_OF_PEER)
    print(f"at best {best / ARTICLE:.1f} x the article's 1.83 M steps/s (of another machine)")
    print(json.dumps({"agents": figures, "met": met}))
    raise SystemExit(0 if met else 1)


def measure(agents: int, rounds: int) -> dict[str, float]:
    """Figures of so many agents; the peer's beside them where it is compared."""
    turn, found = ours(agents)
    peer: Callable[[], float] | None = None
    if agents == COMPARED:
        peer, found["peer_compile_seconds"] = theirs(agents)
    rates, peers = [], []
    for _ in range(rounds):
        rates.append(turn())
        if peer is not None:
            peers.append(peer())
    found["steps_per_second"] = max(rates)
    if peers:
        found["peer_steps_per_second"] = max(peers)
        ratios = [rate / other for rate, other in zip(rates, peers, strict=True)]
        found["peer_ratio"] = statistics.median(ratios)
    return found


def ours(agents: int) -> tuple[Callable[[], float], dict[str, float]]:
    """What trains so many agents for a while and gives steps per second; figures of its program."""
    import jax
    import jax.numpy as jnp

    from worker.compiled import bits, grid_world
    from worker.compiled.q_learning import Hyperparameters, Learner

    learner = Learner(grid_world.make(limit=0))
    each = (jnp.full(agents, value, jnp.float32) for value in (0.1, 0.9, 0.1, 0.0))
    given, keys = Hyperparameters(*each), bits.keys(jnp.uint32(0), agents)
    trained = learner.begin(given, keys)
    span = jnp.uint32(0), jnp.uint32(1)
    begin = time.perf_counter()
    train = jax.jit(learner.train, donate_argnums=0).lower(trained, given, keys, *span).compile()
    compile_seconds = time.perf_counter() - begin
    needed = train.memory_analysis()
    size = needed.temp_size_in_bytes + needed.argument_size_in_bytes
    figures = {"compile_seconds": compile_seconds, "program_mib": size / 2**20}
    passed, steps = 0, 100

    def go_on() -> float:
        nonlocal trained, passed
        begin = time.perf_counter()
        trained = train(trained, given, keys, jnp.uint32(passed), jnp.uint32(steps))
        jax.block_until_ready(trained)
        passed += steps
        return time.perf_counter() - begin

    go_on()
    steps = max(100, int(steps * SECONDS / go_on()))
    return lambda: agents * steps / go_on(), figures


def theirs(agents: int) -> tuple[Callable[[], float], float]:
    """What has the stand-in do the same; seconds to compile it."""
    import jax

    from scripts.peers.q_learning_history import rollout

    key = jax.random.PRNGKey(0)
    begin = time.perf_counter()
    program = jax.jit(rollout, static_argnums=(1, 2)).lower(key, agents, PEER_STEPS).compile()
    compile_seconds = time.perf_counter() - begin

    def turn() -> float:
        begin = time.perf_counter()
        jax.block_until_ready(program(key))
        return agents * PEER_STEPS / (time.perf_counter() - begin)

    turn()
    return turn, compile_seconds


if __name__ == "__main__":
    main()
