"""What is counted of a run while it is led: work, outcomes, and who can't take part."""

from __future__ import annotations

from pathlib import Path

from coordinator.tallies import MOST_REASONS, MOST_UNABLE, OTHER, Tallies
from protocol import replay
from tests.coordinator.runs import contribution, led, spec_of


def test_work_is_summed_up_by_worker() -> None:
    spec, tallies = spec_of(), Tallies()
    part = contribution(spec, replay.initial_state(spec), 0, 5)
    worker = part.session.worker
    for _ in range(2):
        tallies.used([part], spec.members_per_direction, {worker: ("ann", "cpu x1")})
    assert list(tallies.work) == [worker]
    work = tallies.work[worker]
    assert (work.name, work.device, work.members) == ("ann", "cpu x1", 20)
    assert work.steps == 2 * part.steps


def test_who_says_again_that_it_cannot_counts_once() -> None:
    tallies = Tallies()
    for worker in ("a", "b", "a"):
        tallies.cannot(worker, "no environment")
    tallies.cannot("c", "too large")
    assert tallies.unable == (("no environment", 2), ("too large", 1))


def test_strangers_cannot_fill_memory_with_reasons() -> None:
    tallies = Tallies()
    for number in range(3 * MOST_REASONS):
        tallies.cannot(f"w{number}", f"reason {number}")
    for number in range(2 * MOST_UNABLE):
        tallies.cannot(f"k{number}", "reason 0")
    counts = dict(tallies.unable)
    assert len(counts) == MOST_REASONS + 1
    assert counts["reason 0"] == MOST_UNABLE and counts[OTHER] == 2 * MOST_REASONS


async def test_a_led_run_tells_who_did_what_and_who_cannot(tmp_path: Path) -> None:
    async with led(spec_of(), tmp_path) as run, run.worker() as worker:
        unable = run.worker(credit=0)
        unable.unable = "no environment 'X'"
        async with unable:
            await run.outcome()
            shown = run.server.overview()
    assert shown.unable == (("no environment 'X'", 1),)
    assert [each.worker for each in shown.contributions] == [worker.identity.worker]
    assert shown.contributions[0].members == 5 * 32 and shown.contributions[0].name == "scripted"
    assert shown.outcomes["accepted"] > 0
    assert any("can't take part: no environment 'X'" in line for line in run.lines)
    assert not any(unable.identity.worker in each.worker for each in shown.workers)
