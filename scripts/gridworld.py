"""Train 30 Q-learning agents on a grid of 8 x 12, and draw what they think of its cells.

`python scripts/gridworld.py` trains them side by side for 100,000 steps each, with the settings of
the article "Vectorize and Parallelize RL Environments with JAX" (R. Pégoud, 2023): a learning rate
and an epsilon of 0.1, a discount of 0.9, a reward of 1 at the goal in the other corner. It prints
steps per second, and what compiling took; `gridworld.png` shows the value of each cell, the mean of
all agents, and the path that an agent takes.

`python scripts/gridworld.py --pool` searches such hyperparameters instead: a broker, a host and
two workers, real processes on this machine, evolve them for agents that may learn for 8,000 steps
only, each of which costs a little; the article's settings are where the search begins. Other agents
are then trained with what was found, beside some with the article's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parent.parent
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, str(ROOT))

from protocol import learners  # noqa: E402
from protocol.spec import PolicySpec  # noqa: E402

ROWS, COLUMNS = 8, 12
SEARCH_STEPS = 8000
ARTICLES: dict[str, Any] = {"limit": 0}
SEARCHED: dict[str, Any] = {"limit": 200, "step_cost": 0.01}
"""Arguments of the grid: in the search a short way is worth more than a long one."""


def main() -> None:
    """Train, draw, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="Example: python scripts/gridworld.py --agents 30 --out gridworld.png",
    )
    parser.add_argument("--agents", type=int, default=30, help="that learn side by side")
    parser.add_argument("--steps", type=int, default=100_000, help="of each agent")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("gridworld.png"), help="the picture")
    parser.add_argument("--pool", action="store_true", help="search hyperparameters in a pool")
    parser.add_argument("--updates", type=int, default=15, help="of such a search")
    options = parser.parse_args()
    article = PolicySpec(kind="q-learning")
    given = learners.meant(article, np.zeros((1, 4), np.float32))[0]
    grid = ARTICLES
    if options.pool:
        grid, options.steps = SEARCHED, SEARCH_STEPS
        found = searched(options.updates, options.seed)
        for name, these in (("the article's", given), ("found", found)):
            tables = train(these, options, grid).tables
            print(f"{name:13} {described(these)}: {reaching(tables):4.0%} of agents know a way")
        given = found
    trained = train(given, options, grid)
    print(
        f"{options.agents:,} agents took {options.steps:,} steps each in {trained.seconds:.2f} s, "
        f"{options.agents * options.steps / trained.seconds / 1e6:.1f} M steps/s; compiled in "
        f"{trained.compile_seconds:.1f} s"
    )
    path = walked(trained.tables[0])
    draw(trained.values.mean(axis=0), path, options)
    goal = "to the goal" if path[-1] == (0, 0) else "in a circle"
    print(f"values of {trained.values.max():.4f} at most; {len(path) - 1} steps {goal}")
    print(options.out)


class Trained(NamedTuple):
    """What agents have learned, and what it took.

    Attributes:
        values: shape (agents, rows, columns), the largest estimate of each cell.
        tables: shape (agents, cells, actions).
    """

    values: NDArray[Any]
    tables: NDArray[Any]
    seconds: float
    compile_seconds: float


def train(given: NDArray[np.float64], options: argparse.Namespace, grid: dict[str, Any]) -> Trained:
    """Train agents with these hyperparameters."""
    import jax
    import jax.numpy as jnp

    from worker.compiled import bits, grid_world
    from worker.compiled.q_learning import Hyperparameters, Learner

    agents, steps = options.agents, options.steps
    environment = grid_world.make(**grid)
    learner = Learner(environment, limit=environment.limit)
    hyperparameters = Hyperparameters(*(jnp.full(agents, each, jnp.float32) for each in given))
    keys = bits.keys(jnp.uint32(options.seed), agents)
    arguments = learner.begin(hyperparameters, keys), hyperparameters, keys
    span = jnp.uint32(0), jnp.uint32(steps)
    begin = time.perf_counter()
    program = jax.jit(learner.train).lower(*arguments, *span).compile()
    compiled = time.perf_counter()
    trained = jax.block_until_ready(program(*arguments, *span))
    seconds = time.perf_counter() - compiled
    values = np.asarray(learner.value_maps(trained)).reshape(agents, ROWS, COLUMNS)
    tables = np.asarray(trained.tables).reshape(agents, ROWS * COLUMNS, -1)
    return Trained(values, tables, seconds, compiled - begin)


def walked(table: NDArray[Any]) -> list[tuple[int, int]]:
    """The cells of the way that an agent thinks best, up to the goal or where it would turn in a
    circle."""
    from worker.compiled.grid_world import MOVES
    from worker.compiled.grids import destinations

    leads = destinations(ROWS, COLUMNS, MOVES)
    cell, cells = ROWS * COLUMNS - 1, [ROWS * COLUMNS - 1]
    while cell and len(cells) == len(set(cells)):
        cell = int(leads[cell, int(table[cell].argmax())])
        cells.append(cell)
    return [divmod(each, COLUMNS) for each in cells]


def reaching(tables: NDArray[Any]) -> float:
    """The share of agents whose best way leads to the goal."""
    return float(np.mean([walked(table)[-1] == (0, 0) for table in tables]))


def draw(values: NDArray[Any], path: list[tuple[int, int]], options: argparse.Namespace) -> None:
    """Write the picture: the value map, and the path over it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 4.2), layout="constrained")
    for axes, title in (
        (left, f"value of each cell, mean of {options.agents} agents"),
        (right, f"way of one agent, {len(path) - 1} steps"),
    ):
        image = axes.imshow(values, cmap="viridis")
        axes.set(title=title, xlabel="column", ylabel="row")
        axes.set_xticks(range(COLUMNS))
    for (row, column), value in np.ndenumerate(values):
        shade = "black" if value > 0.6 * values.max() else "white"
        left.text(column, row, f"{value:.2f}", ha="center", va="center", color=shade, fontsize=7)
    rows, columns = zip(*path, strict=True)
    right.plot(columns, rows, color="white", linewidth=2.5)
    right.scatter(columns[0], rows[0], color="white", s=90, label="start", zorder=3)
    right.scatter(0, 0, color="red", marker="*", s=160, label="goal", zorder=3)
    right.legend(loc="lower left")
    figure.colorbar(image, ax=[left, right], label="discounted return")
    figure.suptitle(f"Q-learning, {options.steps:,} steps of each agent")
    figure.savefig(options.out, dpi=120)
    pyplot.close(figure)


SEARCH = f"""
name = "gridworld"
seed = %(seed)d
[environment]
id = "jax:GridWorld-v0"
kwargs = {{step_cost = {SEARCHED["step_cost"]}, limit = {SEARCHED["limit"]}}}
[policy]
kind = "q-learning"
training_steps = {SEARCH_STEPS}
sigma_scale = {{optimism = 0.1}}
[strategy]
population = 32
sigma = 0.5
[optimizer]
learning_rate = 0.5
[centre]
episodes = 4
screening = 4
[stop]
updates = %(updates)d
"""


def searched(updates: int, seed: int) -> NDArray[np.float64]:
    """The hyperparameters that a pool found, whose processes are started here."""
    with tempfile.TemporaryDirectory(prefix="shoal-gridworld-") as folder:
        file, run = Path(folder) / "gridworld.toml", Path(folder) / "run"
        file.write_text(SEARCH % {"updates": updates, "seed": seed})
        command = [sys.executable, "-m", "shoal", "demo", str(file), "--run-dir", str(run)]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
        return hyperparameters(run)


def hyperparameters(run: Path) -> NDArray[np.float64]:
    """Those that the newest policy of a run directory stands for."""
    from safetensors.numpy import load_file

    from coordinator.directory import spec_in

    tensors = load_file(run / "policy.safetensors")
    theta = np.concatenate([tensors[name] for name in learners.HYPERPARAMETERS])
    return learners.meant(spec_in(run).policy, theta[np.newaxis])[0]


def described(given: NDArray[np.float64]) -> str:
    """Hyperparameters as one line."""
    return ", ".join(
        f"{name.replace('_', ' ')} {value:.3g}"
        for name, value in zip(learners.HYPERPARAMETERS, given, strict=True)
    )


if __name__ == "__main__":
    main()
