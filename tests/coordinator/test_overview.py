"""The picture of a led run: whole, consistent, and the same for screens, pages and metrics."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from coordinator.overview import Overview, WorkerView, classes
from tests.coordinator.runs import led, spec_of


async def test_a_led_run_is_shown_as_it_stands(tmp_path: Path) -> None:
    async with led(spec_of(), tmp_path) as run, run.worker() as worker:
        first = run.server.overview()
        assert first.run == run.run_id and first.version == 0 and first.mean is None
        assert first.batch.free + first.batch.leased + first.batch.settled == 16
        await worker.until(lambda: run.server.progress.workers == 1)
        shown = run.server.overview()
        assert [each.worker for each in shown.workers] == [worker.identity.worker]
        assert math.isclose(sum(each.share for each in shown.workers), 1.0)
        await run.outcome()
        last = run.server.overview()
    assert last.state == "finished" and last.version == 5
    assert last.mean is not None and last.centre is not None and last.centre.version == 5
    assert last.episodes >= 5 * 32 and last.wire_bytes > 0
    assert not any(isinstance(value, float) and math.isnan(value) for value in _values(last))


async def test_metrics_go_to_who_watches_and_to_the_disk_alike(tmp_path: Path) -> None:
    async with led(spec_of(), tmp_path) as run, run.worker():
        await run.outcome()
    written = run.directory.path / "metrics.jsonl"
    assert len(run.metrics) == len(written.read_text().splitlines())
    assert [line["version"] for line in run.metrics if line["kind"] == "update"] == [1, 2, 3, 4, 5]


def test_classes_are_counted_the_largest_first() -> None:
    views = [_view(numeric) for numeric in ("b", "a", "b", "", "a", "b")]
    assert list(classes(views).items()) == [("b", 3), ("a", 2), ("", 1)]


def _view(numeric: str) -> WorkerView:
    return WorkerView("w", "s", "", "", numeric, "new", "working", 1.0, 0.1, 1, 0, 0.0, "")


def _values(overview: Overview) -> list[object]:
    return list(dataclasses.asdict(overview).values())
