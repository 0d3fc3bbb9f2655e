"""The benchmark of the dashboard hears what pages hear."""

from __future__ import annotations

import asyncio
from pathlib import Path

from scripts.bench_dashboard import Listener, watch_metrics
from tests.coordinator.dashboard.pictures import picture, update_line, worker
from tests.coordinator.dashboard.serving import served


async def test_a_listener_notes_the_rows_and_when_it_heard_of_an_update(tmp_path: Path) -> None:
    shown = picture(*(worker(number) for number in range(50)))
    async with served(tmp_path, shown=shown) as site, Listener(site.url) as listener:
        async with asyncio.timeout(10):
            while listener.workers < 50:
                await asyncio.sleep(0.02)
            site.told.on_metrics(update_line(9))
            while 9 not in listener.heard:
                await asyncio.sleep(0.02)
        assert 1000 < listener.bytes < 100_000


async def test_lines_of_metrics_are_seen_as_they_are_written(tmp_path: Path) -> None:
    file, written = tmp_path / "metrics.jsonl", dict[int, float]()
    file.write_text('{"kind": "update", "version": 1}\n')
    watching = asyncio.create_task(watch_metrics(file, written))
    await asyncio.sleep(0.05)
    with file.open("a") as lines:
        lines.write('{"kind": "update", "ver')
        lines.flush()
        await asyncio.sleep(0.05)
        lines.write('sion": 2}\n{"kind": "centre", "version": 2}\n')
    async with asyncio.timeout(10):
        while not written:
            await asyncio.sleep(0.01)
    assert list(written) == [2]
    watching.cancel()
