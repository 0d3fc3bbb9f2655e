"""Who says too much is not listened to for a moment, and nobody else is."""

from __future__ import annotations

from pathlib import Path

from coordinator import patience
from coordinator.patience import AT_ONCE, MOST, PER_SECOND, REFUSED, Patience
from coordinator.pool.events import SessionId
from protocol import topics
from protocol.identity import mac
from protocol.messages import CatchUp, Status
from tests.coordinator.runs import led, spec_of

ANN, BOB = SessionId("a" * 16, "aaaaaa"), SessionId("b" * 16, "aaaaaa")


def test_a_session_may_say_much_at_once_and_then_so_much_a_second() -> None:
    kept = Patience()
    said = next(n for n in range(1, 10_000) if kept.heard(ANN, 7.0))
    assert said == AT_ONCE
    assert not kept.listens(ANN, 7.0) and kept.listens(BOB, 7.0)
    assert not kept.heard(ANN, 7.0), "told once"
    assert kept.listens(ANN, 7.0 + 2.5 / PER_SECOND)
    seconds, heard = 10.0, 0
    for step in range(int(seconds * 10_000)):
        moment = 20.0 + step / 10_000
        if kept.listens(ANN, moment):
            kept.heard(ANN, moment)
            heard += 1
    assert abs(heard - (AT_ONCE + seconds * PER_SECOND)) < 0.02 * heard


def test_results_that_are_refused_cost_more() -> None:
    kept = Patience()
    said = next(n for n in range(1, 10_000) if kept.heard(ANN, 7.0, REFUSED))
    assert said == AT_ONCE / REFUSED


def test_no_more_sessions_are_remembered_than_there_can_be(monkeypatch) -> None:
    monkeypatch.setattr(patience, "MOST", 3)
    kept = Patience()
    for number in range(10):
        kept.heard(SessionId("a" * 16, str(number)), 1.0)
    assert len(kept._allowances) == 3 < MOST


async def test_a_flood_is_let_go_unread_and_forgeries_are_at_nobodys_cost(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(patience, "AT_ONCE", 20.0)
    monkeypatch.setattr(patience, "PER_SECOND", 0.5)
    async with (
        led(spec_of(stop={"updates": 99}), tmp_path) as run,
        run.worker(busy=False) as honest,
        run.worker(credit=0) as mallory,
    ):
        for each in (honest, mallory):
            await each.until(lambda each=each: each.key is not None)
        server, kept = run.server, run.server._reception._patience
        body = b"\x93\x0f\xa4idle\x00"
        forged = b"\x02" + mac(b"x" * 32, "to coordinator", body) + body
        theirs = topics.status(run.run_id, honest.identity.worker, honest.session)
        ours = topics.status(run.run_id, mallory.identity.worker, mallory.session)
        for _ in range(50):
            server._on_message(theirs, forged)
            server._on_message(ours, mallory.sealed(Status("idle", 0)))
        ids = {id.worker: id for id in server._pool.sessions}
        assert kept.listens(ids[honest.identity.worker], 1e9)
        (line,) = [line for line in run.lines if "says more than anybody" in line]
        assert mallory.identity.worker in line
        heard = len(honest.heard.missed)
        honest.ask(CatchUp(0))
        assert heard == 0 and run.server._failure is None
