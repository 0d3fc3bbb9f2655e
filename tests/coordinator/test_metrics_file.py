"""What is read of `metrics.jsonl`, though a host was killed as it wrote."""

from __future__ import annotations

from pathlib import Path

from coordinator.metrics_file import METRICS, all_lines, amended, last_lines, latest_update


def test_lines_are_read_though_some_are_damaged(tmp_path: Path) -> None:
    first, last = {"kind": "update", "version": 1}, {"kind": "centre", "version": 2}
    (tmp_path / METRICS).write_bytes(
        b'{"kind": "update", "version": 1}\n\xff\n[]\n{"kind": "centre", "version": 2}\n{"ki'
    )
    assert list(all_lines(tmp_path)) == [first, last]
    assert latest_update(tmp_path) == first


def test_the_last_lines_begin_with_a_whole_one(tmp_path: Path) -> None:
    assert last_lines(tmp_path) == [] and latest_update(tmp_path) == {}
    (tmp_path / METRICS).write_bytes(b"".join(b'{"version": %d}\n' % n for n in range(10, 30)))
    assert last_lines(tmp_path, 40) == [{"version": 28}, {"version": 29}]
    assert len(last_lines(tmp_path)) == 20


def test_settings_that_were_changed_are_told_as_they_hold(tmp_path: Path) -> None:
    assert amended(tmp_path) == {}
    (tmp_path / "metrics.jsonl").write_text(
        '{"kind": "update", "version": 1, "amendments": {"stop.target": 480.0}}\n'
        '{"kind": "update", "version": 2}\n{"amendments": torn\n{"amendments": {"a": "b"}}\n'
        '{"kind": "update", "amendments": {"strategy.population": 512, "stop.target": 490.0}}\n'
    )
    assert amended(tmp_path) == {"stop.target": 490.0, "strategy.population": 512.0}
