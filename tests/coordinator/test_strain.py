"""When the coordinator does not keep up: what it notices, says, and asks of workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from coordinator import strain as strain_module
from coordinator.pool.events import SessionId
from coordinator.strain import (
    ASKED_AT_ONCE,
    CALM_AFTER,
    FIRM_AFTER,
    SLOW_DOWN_SECONDS,
    Load,
    SlowDown,
    Strain,
)
from protocol.state import params_hash
from tests.coordinator.runs import Led, begun, broker, led, spec_of, states_of
from tests.coordinator.scripted import DEADLINE

STRAINED = Load(late=0.8, unsent=3_000_000, unkept=9_000, hellos=5_120)
STEP = 0.25


def looks(strain: Strain, load: Load, seconds: float, now: float = 0.0) -> float:
    """The same figures for so long; when that is over."""
    for step in range(round(seconds / STEP) + 1):
        strain.look(load, now + step * STEP)
    return now + seconds


def test_a_moment_is_no_strain_and_what_lasts_is() -> None:
    strain = Strain()
    for now in range(10):
        strain.look(STRAINED, float(now))
        strain.look(Load(), now + 0.5)
    assert (strain.busy, strain.holds) == ("", "")
    looks(strain, STRAINED, FIRM_AFTER, 10.0)
    assert strain.busy and strain.holds


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (Load(late=0.8), "the coordinator is 0.8 s behind"),
        (Load(answer=1.24), "the broker answers after 1.2 s"),
        (Load(unsent=700_000), "the broker has yet to take 0.7 MB"),
        (Load(unkept=9_000), "9,000 results wait for the disk"),
        (Load(hellos=5_120), "5,120 workers wait for a welcome"),
    ],
)
def test_every_figure_has_its_words_and_its_unit(load: Load, words: str) -> None:
    strain = Strain()
    looks(strain, load, 2 * FIRM_AFTER)
    assert strain.busy == words
    assert strain.holds == ""


def test_only_what_the_broker_must_take_first_holds_leases_back() -> None:
    strain = Strain()
    looks(strain, Load(late=60.0, unkept=1_000_000, hellos=10_000), 10.0)
    assert strain.holds == "" and strain.asks
    strain = Strain()
    looks(strain, Load(unsent=3_000_000), 10.0)
    assert strain.holds == "the broker has yet to take 3.0 MB"
    assert not strain.asks, "nobody can be asked over a line that is full"


def test_nobody_is_asked_to_slow_down_because_it_is_far_to_the_broker() -> None:
    strain = Strain()
    looks(strain, Load(answer=5.0), 10.0)
    assert (strain.busy, strain.holds, strain.asks) == ("the broker answers after 5.0 s", "", False)
    looks(strain, Load(answer=5.0, late=1.0), 10.0, 10.0)
    assert strain.asks


def test_all_is_well_only_after_a_while_well_under_the_mark() -> None:
    strain = Strain()
    now = looks(strain, Load(hellos=strain_module.HELLOS), 2 * FIRM_AFTER)
    now = looks(strain, Load(hellos=strain_module.HELLOS // 2 + 1), 100.0, now)
    assert strain.busy
    now = looks(strain, Load(), CALM_AFTER - STEP, now)
    assert strain.busy
    looks(strain, Load(), STEP, now)
    assert strain.busy == ""


def test_everybody_is_asked_to_slow_down_once_within_that_time() -> None:
    here = [SessionId(f"worker{number}", "s") for number in range(1000)]
    slow_down, asked = SlowDown(Random(1)), dict[SessionId, tuple[float, float]]()
    now, most = 0.0, 0
    while now < 100.0:
        due = slow_down.due(here, now)
        most = max(most, len(due))
        for id, seconds in due:
            assert 0.75 * SLOW_DOWN_SECONDS <= seconds <= 1.25 * SLOW_DOWN_SECONDS
            assert id not in asked or now >= sum(asked[id]), "asked again too soon"
            asked[id] = now, seconds
        now += 0.5
    assert len(asked) == len(here)
    assert min(then for then, _ in asked.values()) > 60.0, "nobody is asked again"
    assert most == ASKED_AT_ONCE


# The real thing.


async def heard(run: Led, words: str) -> None:
    async with asyncio.timeout(DEADLINE):
        while not any(words in line for line in run.lines):
            await asyncio.sleep(0.02)


async def test_workers_are_asked_to_slow_down_and_the_host_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strain_module, "LATE", -1.0)
    monkeypatch.setattr(strain_module, "FIRM_AFTER", 0.1)
    monkeypatch.setattr("coordinator.watch.WATCH_SECONDS", 0.05)
    async with led(spec_of(), tmp_path) as run, run.worker(busy=False) as worker:
        await worker.until(lambda: bool(worker.heard.notices))
        await heard(run, "busy: the coordinator is")
        assert "behind" in run.server.progress.busy
        await asyncio.sleep(0.2)
        (notice,) = worker.heard.notices
        assert notice.code == "slow-down" and "behind" in notice.text
        assert 15.0 <= notice.seconds <= 25.0


class Slow:
    """A line to a broker that takes nothing unless it is `free`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.free = asyncio.Event()
        self.free.set()

    def jam(self) -> None:
        self.free.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.port)
        with contextlib.suppress(OSError):
            await asyncio.gather(self.pass_on(reader, ours, True), self.pass_on(theirs, writer))
        for end in (writer, ours):
            end.close()

    async def pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, slow: bool = False
    ) -> None:
        while True:
            if slow:
                await self.free.wait()
            data = await reader.read(1 << 16)
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()


@contextlib.asynccontextmanager
async def slow_line(url: str) -> AsyncIterator[tuple[Slow, str]]:
    slow = Slow(int(url.rsplit(":", 1)[1]))
    server = await asyncio.start_server(slow.serve, "127.0.0.1", 0, limit=1 << 14)
    try:
        yield slow, f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
async def test_a_broker_that_takes_nothing_is_given_no_tasks_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(strain_module, "FIRM_AFTER", 0.1)
    monkeypatch.setattr(strain_module, "CALM_AFTER", 0.1)
    monkeypatch.setattr("coordinator.watch.WATCH_SECONDS", 0.05)
    monkeypatch.setattr("coordinator.server.BEAT_SECONDS", 0.1)
    spec = spec_of(stop={"updates": 5})
    async with broker(tmp_path / "broker", kind) as url, slow_line(url) as (slow, slow_url):
        run = Led(begun(spec, tmp_path / "run"), slow_url)
        run.url = url
        try:
            async with run.worker(pause_at=2) as worker:
                await worker.until(lambda: worker.version == 2 and bool(worker.held))
                slow.jam()
                link = run.server._link
                while link.unsent < 4_000_000:
                    assert link.publish("nobody/listens", bytes(200_000))
                    await asyncio.sleep(0)
                await heard(run, "nothing new is leased: the broker has yet to take")
                tasks = run.server._pool._leases.next_task
                worker.resume()
                async with asyncio.timeout(DEADLINE):
                    while run.server._pool.progress[0] < 16 and run.server._pool.version == 2:
                        await asyncio.sleep(0.01)
                assert run.server._pool._leases.next_task == tasks, "leased into the void"
                worker.pause_at = 3  # the run is not over before that is said
                slow.free.set()
                await heard(run, "no longer busy")
                worker.resume()
                outcome = await run.outcome()
        finally:
            await run.end()
    assert outcome.params_hash == params_hash(states_of(spec, 5)[-1].theta)
