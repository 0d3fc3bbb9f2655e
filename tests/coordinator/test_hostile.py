"""Strangers and liars on a real broker: whatever they send, the run stays what it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest

from coordinator import peers, server
from coordinator.pool.events import SessionId
from protocol import topics
from protocol.address import parse_address
from protocol.envelope import plain, sealed, signed
from protocol.identity import Identity, SessionKeys, lease_token, new_nonce, new_session
from protocol.link import Link
from protocol.messages import (
    Acknowledge,
    Beat,
    Bye,
    CatchUp,
    ChunkRequest,
    Credit,
    Hello,
    Holding,
    Refusal,
    Result,
    Status,
    Task,
    Wanted,
    Who,
    pack_returns,
)
from protocol.packing import MAX_MESSAGE, WireError, pack_integers, pack_reals
from protocol.spec import PROTOCOL_VERSION
from protocol.state import params_hash
from tests.coordinator.runs import Led, broker, led, spec_of, states_of
from tests.coordinator.scripted import DEADLINE, ScriptedWorker, evaluate

SPEC = spec_of(environment={"cap": 2.0}, normalizer={"enabled": True}, stop={"updates": 4})


class Scene:
    """A run in its third version: an honest worker that holds a task, and one that means harm."""

    def __init__(self, run: Led, honest: ScriptedWorker, mallory: ScriptedWorker) -> None:
        self.run = run
        self.honest = honest
        self.mallory = mallory

    @property
    def task(self) -> Task:
        """The honest worker's, unanswered."""
        return open_task(self.honest)

    def topic(self, kind: Callable[[str, str, str], str]) -> str:
        """A topic of the honest worker's session."""
        return kind(self.run.run_id, self.honest.identity.worker, self.honest.session)

    def standing(self) -> object:
        """What no stranger may change: who is here, with which key, holding what; the version."""
        led = self.run.server
        ids = sorted(led._pool.sessions, key=str)
        here = [(id, led._pool.sessions[id].credit, led._peers.get(id)) for id in ids]
        leases = sorted((number, lease.session) for number, lease in led._pool.leases.items())
        return here, leases, led._versions.current.version, led._pool.progress

    async def settled(self) -> None:
        """Everything that mallory sent so far has been judged."""
        before = len(self.mallory.heard.missed)
        self.mallory.ask(CatchUp(0))
        await self.mallory.until(lambda: len(self.mallory.heard.missed) > before)
        async with asyncio.timeout(DEADLINE):
            while self.run.server._reception.turns:  # what is signed comes after what is sealed
                await asyncio.sleep(0)

    def result(self, **changes: object) -> Result:
        """The honest worker's result, altered."""
        assert self.mallory.state is not None
        result = evaluate(SPEC, self.mallory.state, self.task)
        return msgspec.structs.replace(result, **changes)


def open_task(worker: ScriptedWorker) -> Task:
    return next(t for t in worker.heard.tasks if t.kind == "members" and t.version == 2)


def holds_task(worker: ScriptedWorker) -> bool:
    return any(t.kind == "members" and t.version == 2 for t in worker.heard.tasks)


@contextlib.asynccontextmanager
async def scene(directory: Path) -> AsyncIterator[Scene]:
    async with led(SPEC, directory) as run, run.worker(pause_at=2) as honest:
        await honest.until(lambda: holds_task(honest))
        async with run.worker(credit=0) as mallory:
            await mallory.until(lambda: mallory.state is not None and mallory.state.version == 2)
            yield Scene(run, honest, mallory)
            assert honest.hellos == honest.hellos[:1], "the honest worker had to start over"
            honest.resume()
            outcome = await run.outcome()
            assert outcome.params_hash == params_hash(states_of(SPEC, 4)[-1].theta)
            assert "refused" not in honest.heard.acknowledged.values()


def replay_hello(scene: Scene) -> None:
    scene.mallory.link.publish(scene.topic(topics.request), scene.honest.hellos[0], qos=1)


def hello_in_anothers_name(scene: Scene) -> None:
    hello = _hello(scene.mallory.identity)
    context = (scene.run.run_id, scene.honest.session)
    payload = signed(scene.mallory.identity, "hello", context, hello)
    scene.mallory.link.publish(scene.topic(topics.request), payload, qos=1)


def hello_that_another_signed(scene: Scene) -> None:
    hello = _hello(scene.honest.identity)
    context = (scene.run.run_id, scene.honest.session)
    payload = signed(scene.mallory.identity, "hello", context, hello)
    scene.mallory.link.publish(scene.topic(topics.request), payload, qos=1)


def hello_of_another_run(scene: Scene) -> None:
    context = ("other-00000000", scene.honest.session)
    payload = signed(scene.honest.identity, "hello", context, _hello(scene.honest.identity))
    scene.mallory.link.publish(scene.topic(topics.request), payload, qos=1)


def hello_with_a_useless_key(scene: Scene) -> None:
    identity, session = Identity.generate(), new_session()
    hello = msgspec.structs.replace(_hello(identity), exchange_key=bytes(32))
    payload = signed(identity, "hello", (scene.run.run_id, session), hello)
    topic = topics.request(scene.run.run_id, identity.worker, session)
    scene.mallory.link.publish(topic, payload, qos=1)


def hello_of_another_protocol(scene: Scene) -> None:
    identity, session = Identity.generate(), new_session()
    hello = msgspec.structs.replace(_hello(identity), protocol=PROTOCOL_VERSION + 1)
    payload = signed(identity, "hello", (scene.run.run_id, session), hello)
    topic = topics.request(scene.run.run_id, identity.worker, session)
    scene.mallory.link.publish(topic, payload, qos=1)


def bye_in_anothers_name(scene: Scene) -> None:
    context = (scene.run.run_id, scene.honest.session)
    payload = signed(scene.mallory.identity, "status", context, Bye("left"))
    scene.mallory.link.publish(scene.topic(topics.status), payload, qos=1)


def bye_of_another_session(scene: Scene) -> None:
    context = (scene.run.run_id, "aaaaaa")
    payload = signed(scene.honest.identity, "status", context, Bye("left"))
    scene.mallory.link.publish(scene.topic(topics.status), payload, qos=1)


def bye_on_the_wrong_topics(scene: Scene) -> None:
    context = (scene.run.run_id, scene.honest.session)
    payload = signed(scene.honest.identity, "status", context, Bye("left"))
    for kind in (topics.request, topics.results):
        scene.mallory.link.publish(scene.topic(kind), payload, qos=1)


def credit_under_another_key(scene: Scene) -> None:
    payload = scene.mallory.sealed(Credit(0, 2, 1))
    scene.mallory.link.publish(scene.topic(topics.request), payload, qos=1)


def words_of_the_coordinator(scene: Scene) -> None:
    key = scene.mallory.key
    assert key is not None
    for message in (Credit(64, 2, 1), Acknowledge((1,), "accepted")):
        scene.mallory.publish(topics.request, sealed(key, "to worker", message))


def credit_on_the_wrong_topics(scene: Scene) -> None:
    for kind in (topics.results, topics.status):
        scene.mallory.publish(kind, scene.mallory.sealed(Credit(64, 2, 1)))


def refusal_of_anothers_lease(scene: Scene) -> None:
    scene.mallory.ask(Refusal(scene.task.task, scene.task.token, "worker", "\x1b[2Jit was me\n"))


def results_under_other_keys(scene: Scene) -> None:
    """The honest worker's own result, with its token: only its session can send it."""
    result, own, key = scene.result(), scene.honest.key, scene.mallory.key
    assert own is not None and key is not None
    genuine = sealed(own, "to coordinator", result)
    changed = bytearray(genuine)
    changed[-20] ^= 1
    forged = [sealed(key, "to coordinator", result), sealed(own, "to worker", result)]
    forged += [bytes(changed), genuine[:-1], genuine + b"\0", b"\0" + genuine[17:]]
    for payload in forged:
        scene.mallory.link.publish(scene.topic(topics.results), payload, qos=1)
    scene.mallory.publish(topics.results, genuine)  # as if it were mallory's
    for kind in (topics.request, topics.status):
        scene.mallory.link.publish(scene.topic(kind), genuine, qos=1)


def words_in_the_leaders_name(scene: Scene) -> None:
    """An epoch, an update and a task that mallory made, or changed: workers do not heed them."""
    run, mallory, honest = scene.run.run_id, scene.mallory, scene.honest
    epoch, update = honest.led, honest.kept[1]
    assert epoch is not None and mallory.key is not None
    later = msgspec.structs.replace(epoch.epoch, number=epoch.epoch.number + 1)
    own = msgspec.structs.replace(later, host_key=mallory.identity.public_key)
    for forged in (later, own):
        payload = signed(mallory.identity, "epoch", (run,), forged)
        mallory.link.publish(topics.epoch(run), payload, 1, True)
    changed = bytearray(update)
    changed[-1] ^= 1
    for payload in (bytes(changed), update, signed(mallory.identity, "update", (run,), later)):
        mallory.link.publish(topics.update(run), payload)
    other = msgspec.structs.replace(scene.task, task=scene.task.task + 1, first=0)
    for payload in (
        sealed(mallory.key, "to worker", other),
        sealed(mallory.key, "to coordinator", other),
        signed(mallory.identity, "welcome", (run, honest.identity.worker, honest.session), later),
    ):
        mallory.link.publish(scene.topic(topics.inbox), payload)


def chunks_out_of_range(scene: Scene) -> None:
    for first in (0, 1, 1 << 20):
        for version in (0, 2, 1 << 40):
            scene.mallory.ask(ChunkRequest(version, first, 64))


def catch_up_from_the_future(scene: Scene) -> None:
    for version in (2, 3, 1 << 40):
        scene.mallory.ask(CatchUp(version))


def catch_up_in_a_loop(scene: Scene) -> None:
    for _ in range(300):
        scene.mallory.ask(CatchUp(0))


def catch_up_with_nonsense(scene: Scene) -> None:
    us = f"{scene.mallory.identity.worker}-{scene.mallory.session}"
    honest = f"{scene.honest.identity.worker}-{scene.honest.session}"
    failed = ("", "x" * 23, us, *[honest] * 13)
    for want in get_args(Wanted):
        for version in (0, 2, 3, 1 << 40):
            scene.mallory.ask(CatchUp(version, want, failed))


def snapshots_that_nobody_has(scene: Scene) -> None:
    for version in (0, 1, 2, 64, 1 << 40, *range(100, 400)):
        scene.mallory.ask(Holding(version))


def questions_to_everybody(scene: Scene) -> None:
    for _ in range(300):
        scene.mallory.link.publish(topics.WHO, plain(Who()))


def garbage_everywhere(scene: Scene) -> None:
    kinds = (topics.request, topics.results, topics.status)
    payloads = [b"", b"\0", b"\1" * 65, b"\2" * 17, b"\3", b"\xc1" * 100, b"\1" + b"\xff" * 200]
    payloads += [plain(Status("idle", 0)), b"\2" + bytes(MAX_MESSAGE - 1), bytes(MAX_MESSAGE)]
    deep = b"\1" + bytes(64) + b"\x91" * 10_000
    for kind in kinds:
        for payload in [*payloads, deep]:
            scene.mallory.link.publish(scene.topic(kind), payload, qos=1)
            scene.mallory.publish(kind, payload)
    for odd in ("shoal/1/who", f"shoal/1/{scene.run.run_id}/req/x/y", f"{'shoal/1/' * 20}x"):
        scene.mallory.link.publish(odd, b"\0\x91\x12", qos=1)


ATTACKS = [
    replay_hello,
    hello_in_anothers_name,
    hello_that_another_signed,
    hello_of_another_run,
    hello_with_a_useless_key,
    hello_of_another_protocol,
    bye_in_anothers_name,
    bye_of_another_session,
    bye_on_the_wrong_topics,
    credit_under_another_key,
    words_of_the_coordinator,
    credit_on_the_wrong_topics,
    refusal_of_anothers_lease,
    results_under_other_keys,
    words_in_the_leaders_name,
    chunks_out_of_range,
    catch_up_from_the_future,
    catch_up_in_a_loop,
    catch_up_with_nonsense,
    snapshots_that_nobody_has,
    questions_to_everybody,
    garbage_everywhere,
]


def _hello(identity: Identity) -> Hello:
    return Hello(
        protocol=PROTOCOL_VERSION,
        client="0",
        worker_key=identity.public_key,
        exchange_key=SessionKeys.generate().public_key,
        nonce=new_nonce(),
        name="mallory",
        device="",
        credit=64,
        speed=1e12,
    )


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_changes_nothing(
    attack: Callable[[Scene], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as stage:
        before = stage.standing()
        attack(stage)
        await stage.settled()
        assert stage.standing() == before
        assert all(line.isprintable() for line in stage.run.lines)
        assert len(stage.run.lines) < 20
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def _lengths(*values: int) -> bytes:
    return pack_integers(np.array(values, dtype=np.int64))


def forged_results(stage: Scene) -> dict[str, tuple[Result, str]]:
    """Results that mallory sends in its own session, and what the refusal must say."""
    task, mine = stage.task, stage.mallory.identity.worker
    returns, lengths = pack_returns(np.ones((task.count, 2)), np.ones((task.count, 2), np.int64))
    secret = stage.run.server._secret

    def leased(**changes: object) -> Result:
        """As if the range had been leased to mallory: everything but the payload is in order."""
        result = stage.result(**changes)
        token = lease_token(
            secret,
            stage.run.run_id,
            result.task,
            mine,
            result.version,
            result.first,
            result.count,
            result.episodes,
            result.kind,
        )
        return msgspec.structs.replace(result, token=token)

    earlier = lease_token(b"s" * 32, stage.run.run_id, 1, mine, 0, 0, task.count, 1, "members")
    many = pack_returns(np.ones((task.count, 2)), np.full((task.count, 2), 2**40))[1]
    # Their mean so far is below 5, so that `cap_minimum` holds.
    uncut = pack_returns(np.ones((task.count, 2)), np.full((task.count, 2), 101))[1]
    infinite = pack_reals(np.full(2 * task.count, np.inf))
    missing = pack_reals(np.full(2 * task.count, np.nan))
    outside = ((task.first + task.count, "no"),)
    return {
        "another's token": (stage.result(), "never had a lease"),
        "an earlier life's token": (
            stage.result(task=1, version=0, first=0, token=earlier),
            "never had a lease",
        ),
        "NaN": (leased(returns=missing), "NaN or infinite"),
        "infinity": (leased(returns=infinite), "NaN or infinite"),
        "too few": (leased(returns=returns[:-1]), "asked for"),
        "no lengths": (leased(lengths=b""), "no bytes"),
        "endless episodes": (leased(lengths=many), "more than 10,000,000 steps"),
        "episodes beyond the cap": (leased(lengths=uncut), "more than 100 steps, which cut it"),
        "frames that were not": (leased(lengths=lengths), "frames for"),
        "no sums": (leased(observed=b""), "shorter than their header"),
        "a failure elsewhere": (leased(failed=outside), "not of the task"),
        "a return that failed": (leased(failed=((task.first, "x"),)), "carries a return"),
    }


async def test_results_that_lie_are_refused_with_the_reason(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        before = stage.standing()
        heard = stage.mallory.heard
        for name, (result, reason) in forged_results(stage).items():
            heard.reasons.pop(result.task, None)
            stage.mallory.send(result)
            await stage.mallory.until(lambda sent=result: sent.task in heard.reasons)
            assert reason in heard.reasons[result.task], name
            assert heard.acknowledged[result.task] == "refused", name
            assert stage.standing() == before, name


async def test_a_false_hello_takes_nobody_the_turn(tmp_path: Path) -> None:
    """It comes in the name of one who waits for a welcome, before its turn."""
    async with led(SPEC, tmp_path) as run, run.worker(credit=0) as mallory:
        await mallory.until(lambda: mallory.key is not None)
        honest = run.worker()
        honest.link.publish = lambda *_, **__: True  # type: ignore[method-assign]
        topic = topics.request(run.run_id, honest.identity.worker, honest.session)
        false = signed(
            mallory.identity, "hello", (run.run_id, honest.session), _hello(honest.identity)
        )
        for payload in (honest.say_hello(), false, false):
            run.server._on_message(topic, payload)
        async with asyncio.timeout(DEADLINE):
            while len(run.server._pool.sessions) < 2:
                await asyncio.sleep(0)


async def test_whatever_workers_say_may_be_said_again_by_others(tmp_path: Path) -> None:
    """Each of their messages comes three times more, in the order in which they came."""
    spec = spec_of(
        normalizer={"enabled": True}, stop={"updates": 12}, pool={"max_staleness": 0, "quorum": 1.0}
    )
    again: Counter[tuple[str, bytes]] = Counter()
    async with (
        broker(tmp_path / "broker", "mosquitto") as url,
        led(spec, tmp_path, url) as run,
        run.worker(speed=1e6) as one,
        run.worker(speed=1e6) as other,
    ):

        def echo(topic: str, payload: bytes) -> None:
            again[topic, payload] += 1
            if again[topic, payload] <= 3:
                eve.publish(topic, payload, qos=1)

        eve = Link(
            parse_address(url),
            client_id="eve",
            on_message=echo,
            subscriptions={
                f"shoal/1/{run.run_id}/{kind}/#": 1 for kind in ("req", "results", "status")
            },
        )
        listening = asyncio.ensure_future(eve.run())
        outcome = await run.outcome()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    assert outcome.params_hash == params_hash(states_of(spec, 12)[-1].theta)
    assert sum(count > 3 for count in again.values()) > 10, "little was said again"
    for worker in (one, other):
        assert "refused" not in worker.heard.acknowledged.values()


async def test_a_late_twin_of_a_result_changes_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        sent = stage.honest.sealed(stage.result())
        for _ in range(3):
            stage.mallory.link.publish(stage.topic(topics.results), sent, qos=1)
        await stage.settled()
        await stage.honest.until(lambda: bool(stage.honest.heard.acknowledged))


async def test_flood_of_hellos_does_not_stop_the_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(peers, "MOST_SESSIONS", 10)
    async with scene(tmp_path) as stage:
        # It is to tell when all was judged.
        stage.run.server._pool.sessions[_id(stage.mallory)].proven = True
        for _ in range(400):
            greet_as(stage, Identity.generate())
        await stage.settled()
        here = stage.run.server._pool.sessions
        assert len(here) == 10
        assert stage.honest.identity.worker in {id.worker for id in here}
        assert len(stage.run.lines) < 200, "a line for each is too much"


async def test_one_key_can_not_keep_all_places(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(peers, "MOST_SESSIONS", 10)
    async with scene(tmp_path) as stage:
        early, greedy = Identity.generate(), Identity.generate()
        greet_as(stage, early)
        for _ in range(20):
            greet_as(stage, greedy)
        await stage.settled()
        here = stage.run.server._pool.sessions
        assert len(here) == 10
        async with stage.run.worker(credit=0) as newcomer:
            await newcomer.until(lambda: newcomer.key is not None)
            workers = Counter(id.worker for id in here)
            assert workers[early.worker] == workers[newcomer.identity.worker] == 1
            assert workers[greedy.worker] == 6
            assert any("its place was needed" in line for line in stage.run.lines)


async def test_who_works_keeps_its_place(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(peers, "MOST_SESSIONS", 2)
    async with scene(tmp_path) as stage:
        stage.run.server._pool.sessions[_id(stage.mallory)].proven = True
        greet_as(stage, Identity.generate())
        await stage.settled()
        assert any("the 2 sessions that it can have" in line for line in stage.run.lines)


def greet_as(stage: Scene, identity: Identity) -> None:
    """A session of that key says hello, and takes no tasks."""
    session = new_session()
    hello = msgspec.structs.replace(_hello(identity), credit=0)
    payload = signed(identity, "hello", (stage.run.run_id, session), hello)
    topic = topics.request(stage.run.run_id, identity.worker, session)
    stage.mallory.link.publish(topic, payload, qos=1)


def _id(worker: ScriptedWorker) -> SessionId:
    return SessionId(worker.identity.worker, worker.session)


async def test_a_pause_of_a_worker_can_not_be_said_again_for_it(tmp_path: Path) -> None:
    """Recorded and repeated it would starve the worker."""
    async with scene(tmp_path) as stage:
        honest, sessions = stage.honest, stage.run.server._pool.sessions
        (session,) = (s for s in sessions.values() if s.id.session == honest.session)
        pause = honest.sealed(Credit(0, 2, 1))
        for payload, credit in ((pause, 0), (honest.sealed(Credit(2, 2, 2)), 2), (pause, 2)):
            stage.mallory.link.publish(stage.topic(topics.request), payload, qos=1)
            await stage.settled()
            assert session.credit == credit


async def test_session_thought_gone_is_asked_to_say_hello_again(tmp_path: Path) -> None:
    """Who replays the will of a worker takes its lease away for a moment, and no more."""
    async with led(SPEC, tmp_path) as run, run.worker(pause_at=2) as honest:
        await honest.until(lambda: holds_task(honest))
        context = (run.run_id, honest.session)
        bye = signed(honest.identity, "status", context, Bye("lost"))
        async with run.worker(credit=0) as mallory:
            await mallory.until(lambda: mallory.key is not None)
            topic = topics.status(run.run_id, honest.identity.worker, honest.session)
            mallory.link.publish(topic, bye, qos=1)
            await mallory.until(lambda: mallory.state is not None and mallory.state.version == 2)
            await mallory.until(lambda: len(run.server._pool.sessions) == 1)  # beats are news too
            honest.publish(topics.status, honest.sealed(Status("busy", 2)))
            await honest.until(lambda: len(honest.heard.welcomes) == 2)
            assert [notice.code for notice in honest.heard.notices] == ["hello-again"]
            honest.resume()
            assert (await run.outcome()).params_hash == params_hash(states_of(SPEC, 4)[-1].theta)


async def test_beats_of_strangers_reach_nobody_here(tmp_path: Path) -> None:
    """The coordinator does not even listen to them."""
    async with scene(tmp_path) as stage:
        beat = plain(Beat(9, 99, b"x" * 16, "finished"))
        stage.mallory.link.publish(topics.beat(stage.run.run_id), beat)
        await stage.settled()


async def test_a_flood_of_announcements_costs_few_signatures(tmp_path: Path, monkeypatch) -> None:
    """At a broker without rules anybody may write them."""
    proved: list[bytes] = []

    def proves(payload: bytes, *_: object) -> None:
        proved.append(payload)
        raise WireError("forged")

    async with scene(tmp_path) as stage:
        before, topic = stage.standing(), topics.epoch(stage.run.run_id)
        monkeypatch.setattr(server, "read_epoch", proves)
        for number in range(1000):
            stage.run.server._on_message(topic, b"\1" + bytes([number % 256]))
        assert 0 < len(proved) <= server.PROOFS_AT_ONCE + server.PROOFS_PER_SECOND
        assert stage.standing() == before
