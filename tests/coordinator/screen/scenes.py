"""Pictures of runs that nobody leads, for screens that nobody looks at."""

from __future__ import annotations

from coordinator.overview import BatchView, CentreView, Overview, WorkerView
from coordinator.screen.history import History

DEVICES = ("cpu x1", "cpu x7", "cpu x15, cuda", "cpu x2 at 50 %")
NAMES = ("calm-otter", "lab-17", "ann's laptop", "spot-a81f", "", "メイのPC")


def worker(number: int = 0, /, **changes: object) -> WorkerView:
    fields: dict[str, object] = {
        "worker": f"{number:04d}abcdefghijkl".translate(str.maketrans("0189", "efgh")),
        "session": "abcdef",
        "name": NAMES[number % len(NAMES)],
        "device": DEVICES[number % len(DEVICES)],
        "numeric": "0a1b",
        "standing": ("established", "new", "trusted", "quarantined", "banned")[number % 5],
        "state": ("working", "working", "waiting", "resting", "paused")[number % 5],
        "speed": 120_000.0 / (number + 1),
        "share": 0.4 / (number + 1),
        "tasks": number % 3,
        "results": 1000 - number,
        "silent_seconds": 0.3,
        "trouble": "" if number % 4 else "lease of task 12 ran out after 8.1 s",
    }
    return WorkerView(**{**fields, **changes})  # type: ignore[arg-type]


def overview(workers: int = 12, /, **changes: object) -> Overview:
    fields: dict[str, object] = {
        "run": "cartpole-v1-1a2b3c4d",
        "environment": "CartPole-v1",
        "parameters": 4610,
        "epoch": 1,
        "state": "running",
        "version": 120,
        "updating": False,
        "paused": False,
        "seconds": 754.0,
        "population": 256,
        "target": 475.0,
        "episodes": 31_820,
        "steps": 4_810_112,
        "mean": 310.4,
        "centre": CentreView(118, 10, 402.6, 88.1),
        "wire_bytes": 1_240_000,
        "audited": 812,
        "quiet": "",
        "busy": "",
        "batch": BatchView(120, 128, 71, 40, 17, 0, 0),
        "workers": tuple(map(worker, range(workers))),
    }
    return Overview(**{**fields, **changes})  # type: ignore[arg-type]


def history(versions: int = 120) -> History:
    """A run that learns, by a formula."""
    made = History()
    for version in range(1, versions + 1):
        mean = 480.0 * version / (version + 60.0) + 25.0 * ((version * 7) % 5 - 2)
        made.measure(
            {
                "kind": "update",
                "version": version,
                "mean_return": mean,
                "learning_rate": 0.05,
                "update_seconds": 0.031,
            }
        )
        if version % 4 == 0:
            judged = {"kind": "centre", "version": version, "mean_return": mean * 1.2}
            made.measure(judged)
    for number in range(8):
        made.tell(f"21:0{number}:12 abcdefghijklmnop/abcdef (lab-{number}, cpu x7): joined")
    for second in range(10):
        made.rates.count(float(second), 245 * second, 25_181 * second)
    return made
