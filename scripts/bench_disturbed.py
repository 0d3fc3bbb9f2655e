"""What a slow and a dying worker cost a pool: time to a target, per core-second offered.

Two pools of four workers (`shoal join` with one evaluation process each) train the same run with
the same seed, in turns, over a broker and a coordinator of the same machine:

- undisturbed: every worker may use `--share` of a core, and they all stay;
- disturbed: one of them may use a tenth of that, and another one is killed (-9) every 10 s and at
  once replaced by a newcomer, who has to start, join and catch up.

Offered are core-seconds: the sum over workers of the share that each may use, times the time from
the moment when all four have joined to the end of the run. The killed one and those that come in
its place count as one worker that was always there, as the machine that lends it was; so a
disturbed pool offers (1 + 1 + 1 + 0.1) / 4 of an undisturbed one in the same time. The shares make
the arms comparable: four workers that took what they get would share two cores with each other,
and the others would profit from a throttled one. At 25 % each they leave a core for broker,
coordinator and the start of newcomers, which no share bounds. What the processes really used is
told beside.

`ratio`: core-seconds offered to reach the target, disturbed by undisturbed, median over the seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.chaos.processes import Running, host, worker

WORKERS = 4
SLOWED = 0.1
"""Of its share that the throttled worker may use."""
KILL_EVERY = 10.0
"""Seconds."""
LOOK_SECONDS = 0.2
RUN = ("CartPole-v1", "--population", "256", "--learning-rate", "0.003")
"""Steps so small that the target takes half a minute or more."""


@dataclass(frozen=True)
class Reached:
    """A run to its target.

    Attributes:
        seconds: from when all workers had joined to the end of the run.
        offered: core-seconds that the workers offered meanwhile.
        used: core-seconds that their processes used from their start on, start-up included.
        killed: workers.
    """

    solved: bool
    seconds: float
    offered: float
    used: float
    killed: int
    updates: int
    episodes: int


def train(seed: int, share: float, disturbed: bool, limit: float, extra: list[str]) -> Reached:
    """One run, to its target or the limit in seconds."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        room = Path(directory)
        flags = (*RUN, "--seed", str(seed), "--seconds", str(limit), *extra)
        leader, url = stack.enter_context(host(*flags, run_dir=room / "run", broker="auto"))

        def join(name: str, share: float) -> Running:
            flags = ("--cpu-share", f"{share:.4f}", "--name", name)
            return stack.enter_context(worker(url, room / name, *flags))

        slowest = SLOWED * share if disturbed else share
        workers = [join("slow", slowest)]
        workers += [join(f"steady-{number}", share) for number in range(1, WORKERS)]
        leader.await_line("joined", WORKERS)
        began = time.monotonic()
        victim, killed = workers[-1], 0
        while leader.process.poll() is None:
            time.sleep(LOOK_SECONDS)
            for process in workers:
                process.cpu_seconds()
            if disturbed and time.monotonic() - began > (killed + 1) * KILL_EVERY:
                victim.process.kill()
                killed += 1
                victim = join(f"newcomer-{killed}", share)
                workers.append(victim)
        seconds = time.monotonic() - began
        leader.await_end()
        outcome = leader.last_json()
        return Reached(
            solved=outcome["solved"],
            seconds=round(seconds, 2),
            offered=round(seconds * ((WORKERS - 1) * share + slowest), 3),
            used=round(sum(process.cpu_seconds() for process in workers), 2),
            killed=killed,
            updates=outcome["updates"],
            episodes=outcome["episodes"],
        )


def main() -> None:
    """Run both arms for each seed, and print a line for each run and one of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0-4", help="first-last")
    parser.add_argument("--pool", default="quorum", help="sync, quorum or async")
    parser.add_argument("--share", type=float, default=0.25, help="of a core, for each worker")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds a run may train")
    options, extra = parser.parse_known_args()
    first, _, last = options.seeds.partition("-")
    extra = ["--pool", options.pool, *extra]
    rows = []
    for seed in range(int(first), int(last or first) + 1):
        arms = [False, True] if seed % 2 else [True, False]
        row = {
            "disturbed" if arm else "undisturbed": train(
                seed, options.share, arm, options.limit, extra
            )
            for arm in arms
        }
        for name, run in sorted(row.items(), reverse=True):
            print(
                f"seed {seed} {name:>11}: {'solved' if run.solved else 'NOT SOLVED'} in "
                f"{run.seconds:.1f} s, {run.offered:.1f} core-seconds offered, {run.used:.1f} "
                f"used, {run.updates} updates, {run.episodes:,} episodes, {run.killed} killed",
                flush=True,
            )
        rows.append({"seed": seed, **{name: asdict(run) for name, run in row.items()}})
    ratios = [row["disturbed"]["offered"] / row["undisturbed"]["offered"] for row in rows]
    print(
        json.dumps(
            {
                "benchmark": "disturbed",
                "pool": options.pool,
                "ratio": round(statistics.median(ratios), 3),
                "worst_ratio": round(max(ratios), 3),
                "all_solved": all(
                    row[arm]["solved"] for row in rows for arm in ("disturbed", "undisturbed")
                ),
                "runs": rows,
            }
        )
    )


if __name__ == "__main__":
    main()
