"""How much of what two workers evaluate in one run they evaluate in a sweep, in one session.

    PYTHONPATH=. python scripts/bench_sweep.py [--points 24] [--seeds 3] [--updates 30]

Workers that were told a broker alone serve, one after the other: some of the sweep's runs, and one
with batches that are LARGER, each led by itself by `shoal host`; the sweep; the same runs once
more. Of a run that is led by itself counts what was evaluated from its first update to the end, of
the sweep from the first update of all to the end of the last: so that what it takes to begin and
to end runs is the sweep's loss alone. A line of JSON for each, and a last one with the sweep's
episodes and steps a second over those of its runs led alone, and its steps over those of large
batches, in which workers wait less for one another, and fill more lanes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from coordinator.log import LogReader
from protocol.envelope import peek_signed
from protocol.messages import Update
from tests.chaos.processes import running, worker
from tests.protocol.mosquitto import Mosquitto

TARGET = 0.9
"""Of what the same workers evaluate in one run."""
LARGER = 16
"""Times as many members as the sweep's runs have."""
ALONE = 6
"""Runs of the sweep that are led by themselves, before it and after it."""
SWEEP = """
base = "{environment}"
name = "bench"
seeds = {seeds}
[random]
strategy.sigma = {{ log-uniform = [0.05, 0.2] }}
optimizer.learning_rate = {{ log-uniform = [0.2, 1.0] }}
[budget]
updates = {updates}
"""


@dataclass(frozen=True)
class Counted:
    """What was evaluated: each piece at a Unix time, as (time, episodes, steps)."""

    pieces: tuple[tuple[float, int, int], ...]

    @property
    def first(self) -> float:
        """When the first was there."""
        return min(at for at, _, _ in self.pieces)

    @property
    def seconds(self) -> float:
        """From the first to the last."""
        return max(at for at, _, _ in self.pieces) - self.first

    def total(self) -> tuple[int, int]:
        """Episodes and steps after the first."""
        later = [piece for piece in self.pieces if piece[0] > self.first]
        return sum(piece[1] for piece in later), sum(piece[2] for piece in later)


def counted(run_dir: Path) -> Counted:
    """By the log of a run."""
    pieces = []
    with LogReader(run_dir / "log.sqlite") as log:
        for row in log.rows():
            update = peek_signed(row.payload)
            assert isinstance(update, Update)
            pieces.append((row.made_at, update.episodes, update.steps))
        pieces += [(row.judged_at, row.episodes, row.steps) for row in log.evaluations()]
    return Counted(tuple(pieces))


def alone(what: str, specs: list[Path], url: str, folder: Path) -> dict[str, float]:
    """What the workers evaluate while these runs are led one after the other."""
    episodes = steps = 0
    seconds = 0.0
    for number, spec in enumerate(specs):
        run_dir = folder / f"{number}"
        command = ["shoal", "host", str(spec), "--broker", url, "--run-dir", str(run_dir)]
        with running(*command) as process:
            if process.await_end():
                raise SystemExit("\n".join(process.lines))
        run = counted(run_dir)
        episodes, steps = episodes + run.total()[0], steps + run.total()[1]
        seconds += run.seconds
    return rates(what, episodes, steps, seconds)


def rates(what: str, episodes: int, steps: int, seconds: float) -> dict[str, float]:
    """Printed, and returned."""
    found = {"episodes_per_second": episodes / seconds, "steps_per_second": steps / seconds}
    print(json.dumps({"what": what, "seconds": round(seconds, 1), **found}), flush=True)
    return found


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--points", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--parallel", type=int, default=3)
    parser.add_argument("--environment", default="CartPole-v1")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        broker = Mosquitto(folder)
        broker.start()
        stack.callback(broker.kill)
        text = f"points = {options.points}\n" + SWEEP.format(**vars(options))
        file = folder / "bench.toml"
        file.write_text(text)
        sweep = folder / "sweep"
        command = ["shoal", "sweep", str(file), "--dir", str(sweep), "--broker", broker.url]
        command += ["--parallel", str(options.parallel), "--quiet"]
        specs, large = written(file, folder)
        for number in range(options.workers):
            joined = stack.enter_context(worker(broker.url, folder / f"home-{number}"))
            joined.await_line("broker reached")
        url = broker.url
        before = alone("alone", specs, url, folder / "before")
        most = [alone("large", [large], url, folder / "large")]
        with running(*command) as process:
            if process.await_end():
                raise SystemExit("\n".join(process.lines))
        runs = [counted(path) for path in (sweep / "runs").iterdir()]
        whole = Counted(tuple(piece for run in runs for piece in run.pieces))
        found = rates("sweep", *whole.total(), whole.seconds)
        most.append(alone("large", [large], url, folder / "large-after"))
        after = alone("alone", specs, url, folder / "after")
    used = {what: found[what] / (0.5 * (before[what] + after[what])) for what in found}
    steps = "steps_per_second"
    of_large = found[steps] / (0.5 * sum(each[steps] for each in most))
    print(json.dumps({"runs": len(runs), "of_one_run": used, "of_large_batches": of_large}))
    return int(min(used.values()) < TARGET)


def written(file: Path, folder: Path) -> tuple[list[Path], Path]:
    """Run files of some runs of the sweep, from all over it, and of one with large batches."""
    from coordinator.sweep.file import load, parse
    from coordinator.sweep.points import all_points
    from coordinator.sweep.specs import Specs
    from protocol import spec as run_spec

    said = parse(load(file), file)
    points, specs = all_points(said), Specs(said, said.base)
    found = []
    for number in range(0, len(points), max(1, len(points) // ALONE)):
        spec = specs.of(points[number], said.all_seeds[number % len(said.all_seeds)]).spec
        found.append(folder / f"alone-{number}.toml")
        found[-1].write_text(run_spec.to_toml(spec))
    strategy = replace(spec.strategy, population=LARGER * spec.strategy.population)
    large = folder / "large.toml"
    large.write_text(run_spec.to_toml(replace(spec, strategy=strategy)))
    return found, large


if __name__ == "__main__":
    sys.exit(main())
