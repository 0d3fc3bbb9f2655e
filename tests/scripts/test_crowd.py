"""Light workers are workers to a real coordinator: what they say counts, in parts too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from scripts import bench_broker
from scripts.crowd.light import Crowd
from tests.coordinator.runs import broker, led, spec_of
from tests.coordinator.scripted import DEADLINE


async def test_a_crowd_makes_updates(tmp_path: Path) -> None:
    spec = spec_of(strategy={"population": 64}, stop={"updates": 3}, pool={"task_seconds": 0.05})
    async with broker(tmp_path / "broker") as url, led(spec, tmp_path, url) as run:
        crowd = Crowd(run.run_id, speed=1e5, parts=0.5)
        workers = await crowd.join(url, 5)
        assert crowd.heard.welcomed == len(workers) == 5
        await run.outcome()
        heard = crowd.heard
        assert heard.results > heard.tasks - 10 > 0
        assert heard.waits and not heard.refused and not heard.lost
        async with asyncio.timeout(DEADLINE):
            for worker in workers:
                worker.leave()
        assert crowd.heard.lost == 0


def test_too_few_open_files_are_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_broker.resource, "getrlimit", lambda which: (100, 200))
    with pytest.raises(SystemExit, match="ulimit -n 1100"):
        bench_broker.allow_files(1100)


def test_the_run_of_a_benchmark_has_tasks_of_the_asked_length() -> None:
    text = bench_broker.run_file(1000, 200.0, 0.02)
    assert "task_seconds = 5.0" in text and "population = 80000" in text
