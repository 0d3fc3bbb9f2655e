"""Times compiled lanes beside evosax with gymnax on CartPole-v1, in turns in one process; and brax.

    python scripts/bench_jax.py                       # needs evosax and gymnax, and six
    python scripts/bench_jax.py --brax halfcheetah    # needs brax

Both sides play gymnax's CartPole-v1 with the same members of an MLP 4-32-2. `untrained` members are
drawn around zero and fall soon; `balancing` ones stay up for all 500 steps. Useful steps are those
before an episode's end: evosax goes on to the 500th whatever happened before. Compile times are
told apart. Only ratios within a round mean something on a machine that others use.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from protocol import noise
from protocol.section import plain
from protocol.spec import RunSpec, parse
from worker.compiled import devices
from worker.compiled.environment import functional
from worker.compiled.lanes import CompiledLanes
from worker.evaluation.jobs import EvaluationJob

HIDDEN, LIMIT = 32, 500
TURN_SECONDS = 0.3
"""That each side is timed for, at least: some ten times what caches and clocks take to settle."""
KINDS = {"untrained": 0.5, "balancing": 1e-3}
"""With the size of the perturbations."""
Evaluate = Callable[[int], int]
"""Useful steps of a pass with that number."""


def run(environment_id: str, hidden: int, population: int) -> tuple[RunSpec, Any]:
    """A run in an environment, and the environment."""
    found = functional(environment_id, {})
    spec = parse(
        {
            "name": "bench",
            "environment": {
                "id": environment_id,
                "backend": "jax",
                "observation": plain(found.observation),
                "action": plain(found.action),
            },
            "policy": {"hidden": [hidden]},
            "strategy": {"population": population},
        }
    )
    return spec, found


def centre(kind: str, spec: RunSpec) -> NDArray[np.float32]:
    """Zeros; or parameters that balance the pole, by one hidden unit."""
    theta = np.zeros(spec.size, dtype=np.float32)
    if kind == "balancing":
        theta[:4] = 0.05, 0.1, 0.5, 0.5
        first_output = 4 * HIDDEN + HIDDEN
        theta[first_output], theta[first_output + HIDDEN] = -1.0, 1.0
    return theta


def ours(kind: str, population: int, lanes: int) -> tuple[Evaluate, float]:
    """What evaluates the members in compiled lanes, and the seconds to compile that."""
    spec, found = run("gymnax:CartPole-v1", HIDDEN, population)
    begin = time.perf_counter()
    made = CompiledLanes(spec, found, lanes, limit=found.limit)
    made.warm()
    theta = centre(kind, spec)

    def evaluate(number: int) -> int:
        job = EvaluationJob("members", number, 0, population // 2, 1, KINDS[kind])
        return int(made.evaluate(job, theta).lengths.sum())

    evaluate(0)
    return evaluate, time.perf_counter() - begin


def evosax(kind: str, population: int) -> tuple[Evaluate, float]:
    """What evaluates the same members by evosax, and the seconds of its first pass."""
    from evosax.problems import GymnaxProblem
    from evosax.problems.networks import MLP

    spec, _ = run("gymnax:CartPole-v1", HIDDEN, population)
    theta = centre(kind, spec)
    rows = np.empty((population, spec.size), dtype=np.float32)
    order = np.arange(spec.size, dtype=np.int32)
    strategy = spec.strategy.noise, spec.seed
    noise.members(*strategy, 0, population // 2, theta, KINDS[kind], rows, order, 2)
    first, bias, second, last = np.split(rows, np.cumsum([4 * HIDDEN, HIDDEN, 2 * HIDDEN]), axis=1)
    members = {
        "params": {
            "Dense_0": {"kernel": _kernel(first, HIDDEN, 4), "bias": jnp.asarray(bias)},
            "Dense_1": {"kernel": _kernel(second, 2, HIDDEN), "bias": jnp.asarray(last)},
        }
    }
    policy = MLP(layer_sizes=(HIDDEN, 2), output_fn=lambda x, key=None: jnp.argmax(x, axis=-1))
    problem = GymnaxProblem(
        "CartPole-v1", policy=policy, episode_length=LIMIT, use_normalize_obs=False
    )
    state = problem.init(jax.random.key(0))

    def evaluate(number: int) -> int:
        fitness, *_ = problem.eval(jax.random.key(number), members, state)
        return int(jax.block_until_ready(fitness).sum())

    begin = time.perf_counter()
    evaluate(0)
    return evaluate, time.perf_counter() - begin


def _kernel(rows: NDArray[np.float32], outputs: int, inputs: int) -> Any:
    return jnp.asarray(rows.reshape(-1, outputs, inputs).transpose(0, 2, 1))


def timed(evaluate: Evaluate, number: int) -> tuple[float, float]:
    """Useful steps per second of wall time, and of processor time, over a turn of passes; one
    before them brings memory and caches back from what the other side left."""
    evaluate(number)
    begin, used = time.perf_counter(), time.process_time()
    steps, passes = 0, 0
    while time.perf_counter() - begin < TURN_SECONDS:
        steps += evaluate(number + passes)
        passes += 1
    return steps / (time.perf_counter() - begin), steps / (time.process_time() - used)


def compare(population: int, lanes: int, rounds: int) -> None:
    """Print a line for each kind of members."""
    for kind in KINDS:
        (first, compiled), (second, other) = ours(kind, population, lanes), evosax(kind, population)
        pairs = [(timed(first, n), timed(second, n)) for n in range(1, rounds + 1)]
        wall, processor = zip(*[(a[0] / b[0], a[1] / b[1]) for a, b in pairs], strict=True)
        report(
            work=f"CartPole-v1, {kind} members",
            population=population,
            ours_steps_per_s=max(a[0] for a, _ in pairs),
            evosax_steps_per_s=max(b[0] for _, b in pairs),
            ratio_median=statistics.median(wall),
            ratio_range=[min(wall), max(wall)],
            ratio_of_processor_time_median=statistics.median(processor),
            ours_compile_and_first_s=compiled,
            evosax_compile_and_first_s=other,
        )


def physics(name: str, population: int, steps: int) -> None:
    """Print a line for a population of brax that is evaluated in one call."""
    spec, found = run(f"brax:{name}", HIDDEN, population)
    begin = time.perf_counter()
    made = CompiledLanes(spec, found, population, limit=found.limit)
    made.warm()
    compiled = time.perf_counter() - begin
    job = EvaluationJob("members", 0, 0, population // 2, 1, 0.1, steps)
    begin = time.perf_counter()
    evaluation = made.evaluate(job, np.zeros(spec.size, dtype=np.float32))
    seconds = time.perf_counter() - begin
    report(
        work=f"brax:{name}, {population} members in one call",
        steps_per_s=float(evaluation.lengths.sum()) / seconds,
        steps=int(evaluation.lengths.sum()),
        seconds=seconds,
        compile_s=compiled,
    )


def report(**figures: Any) -> None:
    """A line of JSON."""
    rounded = {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in figures.items()
    }
    print(json.dumps(rounded), flush=True)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--population", type=int, default=1024, help="members")
    parser.add_argument("--lanes", type=int, default=0, help="that step together; 0: all members")
    parser.add_argument("--rounds", type=int, default=5, help="in which both take turns")
    parser.add_argument("--brax", metavar="NAME", help="time this environment of brax instead")
    parser.add_argument("--steps", type=int, default=32, help="of an episode of brax")
    parser.add_argument("--threads", type=int, default=0, help="of XLA; 0 for all cores")
    options = parser.parse_args()
    devices.set_up(devices.CPU, options.threads)
    report(jax=jax.__version__, device=jax.devices()[0].device_kind, threads=options.threads)
    if options.brax:
        physics(options.brax, options.population, options.steps)
        return
    report(evosax=version("evosax"), gymnax=version("gymnax"))
    compare(options.population, options.lanes or options.population, options.rounds)


if __name__ == "__main__":
    main()
