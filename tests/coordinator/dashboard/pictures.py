"""Made-up pictures of runs, for what shows them."""

from __future__ import annotations

import dataclasses
from typing import Any

from coordinator.overview import BatchView, CentreView, Overview, WorkerView

HOSTILE = (
    "<script>document.title='pwned'</script>",
    "<img src=x onerror=document.title='pwned'>",
    "a" * 10_000,
    "\u202egnp.eman\u2066\u200f",
    "line\nbreak\x1b[31m",
    "'\"&lt;",
)
"""What strangers may call themselves, and worse than the wire lets through."""


def worker(number: int, **changes: Any) -> WorkerView:
    """A session of a worker, each another."""
    name = "".join("abcdefghijklmnopqrstuvwxyz234567"[(number >> 5 * i) % 32] for i in range(16))
    view = WorkerView(
        worker=name,
        session="aaaaaa",
        name=f"worker-{number}",
        device="cpu x1",
        numeric="0123456789abcdef" if number % 3 else "fedcba9876543210",
        standing="established",
        state="working",
        speed=1000.0 + number,
        share=0.1,
        tasks=2,
        results=number,
        silent_seconds=0.3,
        trouble="",
    )
    return dataclasses.replace(view, **changes)


def picture(*workers: WorkerView, **changes: Any) -> Overview:
    """A run with these workers."""
    shown = Overview(
        run="test-12345678",
        environment="CartPole-v1",
        parameters=226,
        epoch=1,
        state="running",
        version=7,
        updating=False,
        paused=False,
        seconds=12.5,
        population=64,
        target=475.0,
        episodes=640,
        steps=12_345,
        mean=123.4,
        centre=CentreView(5, 100, 150.0, 20.0),
        wire_bytes=9_999,
        audited=3,
        quiet="",
        busy="",
        batch=BatchView(7, 32, 10, 12, 10, 2, 0),
        workers=workers,
    )
    return dataclasses.replace(shown, **changes)


def update_line(version: int, **changes: Any) -> dict[str, Any]:
    """A line of metrics, of an update."""
    return {
        "kind": "update",
        "version": version,
        "seconds": 0.5 * version,
        "members": 64,
        "late_members": 1,
        "dropped_directions": 0,
        "mean_return": 10.0 + version,
        "return_deviation": 2.0,
        "best_return": 20.0 + version,
        "update_seconds": 0.004,
        "episodes": 64 * version,
        "env_steps": 1000 * version,
        "workers": 2,
        "wire_bytes": 500 * version,
        "params_hash": f"{version:032x}",
        **changes,
    }
