"""The film: a process makes it while somebody watches, and never longer."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import psutil
import pytest

from coordinator.dashboard import film
from coordinator.dashboard.film import Film
from protocol import spec as run_spec
from tests.worker.test_play import SPEC, kept_run

DEADLINE = 120.0
"""Seconds: the process has the least priority, on a machine that tests keep busy."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film, "LINGER_SECONDS", 0.2)


def players(run_dir: Path) -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if str(run_dir) in child.cmdline():
                found.append(child)
    return found


async def test_frames_come_while_somebody_watches(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("pygame")
    kept_run(tmp_path)
    shown = Film(tmp_path, ())
    assert players(tmp_path) == []
    async with asyncio.timeout(DEADLINE):
        watchers = [shown.frames() for _ in range(2)]
        for frames in watchers:
            part = await anext(frames)
            assert part.startswith(b"--frame\r\nContent-Type: image/jpeg") and b"\xff\xd8" in part
        assert len(players(tmp_path)) == 1  # for both
        while "version" not in shown.news:
            await anext(watchers[0])
        assert shown.news["version"] == 7
        await watchers[0].aclose()
        await anext(watchers[1])
        await watchers[1].aclose()
        while players(tmp_path):
            await asyncio.sleep(0.05)
        again = shown.frames()
        await anext(again)  # who comes back sees it again, from its last frame on
        await again.aclose()
        await shown.close()
    assert players(tmp_path) == []


async def test_who_watches_when_it_is_over_is_told(tmp_path: Path) -> None:
    shown = Film(tmp_path, ())  # there is nothing to see
    watching = asyncio.ensure_future(anext(shown.frames(), b"over"))
    async with asyncio.timeout(DEADLINE):
        while not players(tmp_path):
            await asyncio.sleep(0.05)
        await shown.close()
        assert await watching == b"over"
    assert players(tmp_path) == []


async def test_why_there_is_nothing_to_see_is_told(tmp_path: Path) -> None:
    kept_run(tmp_path)
    spec = run_spec.to_toml(SPEC).replace("CartPole-v1", "NoSuchThing-v1")
    (tmp_path / "spec.toml").write_text(spec)
    shown = Film(tmp_path, ())
    watching = asyncio.ensure_future(anext(shown.frames(), None))
    async with asyncio.timeout(DEADLINE):
        while "error" not in shown.news:
            await asyncio.sleep(0.05)
    assert "no environment 'NoSuchThing-v1' is registered here" in shown.news["error"]
    assert str(tmp_path) not in shown.news["error"]
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await shown.close()


async def test_a_process_that_says_too_much_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loud = tmp_path / "loud.py"
    loud.write_text(
        "import sys, struct, time\n"
        "sys.stdout.buffer.write(struct.pack('>cI', b'F', 1 << 30) + b'x' * 1000)\n"
        "sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(film, "MODULE", "loud")
    shown = Film(tmp_path, ())
    watching = asyncio.ensure_future(anext(shown.frames(), None))
    async with asyncio.timeout(DEADLINE):
        while "error" not in shown.news:
            await asyncio.sleep(0.05)
    assert players(tmp_path) == []
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await shown.close()


async def test_a_process_that_hangs_within_a_frame_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stuck.py").write_text(
        "import sys, time\n"
        "from protocol.film import FRAME, HEAD\n"
        "sys.stdout.buffer.write(HEAD.pack(FRAME, 1000) + b'half')\n"
        "sys.stdout.buffer.flush()\n"
        "time.sleep(1000)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(film.__file__).parents[2]}")
    monkeypatch.setattr(film, "MODULE", "stuck")
    monkeypatch.setattr(film, "SILENT_SECONDS", 1.0)
    shown = Film(tmp_path, ())
    watching = asyncio.ensure_future(anext(shown.frames(), None))
    async with asyncio.timeout(DEADLINE):
        while "error" not in shown.news or players(tmp_path):
            await asyncio.sleep(0.05)
    assert "hung" in shown.news["error"]
    await shown.close()
    await watching
