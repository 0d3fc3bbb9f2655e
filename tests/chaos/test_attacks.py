"""Attackers with an ordinary worker's credentials around real processes: what enters is true."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pytest

from coordinator.history.past import opened
from protocol import topics
from protocol.envelope import Wrapping
from protocol.identity import Identity, mac
from protocol.messages import Credit, Result, Status, Task, encode, pack_returns
from protocol.packing import MAX_MESSAGE, pack_integers, pack_reals
from protocol.spec import RunSpec
from protocol.state import State, params_hash
from scripts.fuzzing.messages import every_message
from scripts.fuzzing.mutating import mutated
from tests import alone
from tests.chaos.processes import (
    assert_orderly,
    assert_sound,
    await_updates,
    host,
    running,
    updates,
)
from tests.contract.brokers import require
from tests.contract.raw import RawClient, connect_packet
from tests.coordinator.scripted import DEADLINE, ScriptedWorker
from worker.evaluation import environments
from worker.evaluation.jobs import EvaluationJob
from worker.evaluation.lanes import Lanes

RUN = (
    *("CartPole-v1", "--seed", "5", "--population", "64", "--learning-rate", "0.01"),
    *("--set", "stop.target=1e9", "--set", "centre.episodes=2", "--set", "centre.screening=2"),
    *("--pool", "sync", "--set", "centre.evaluate_every=50"),
    *("--set", "environment.max_steps=60", "--set", "pool.lease_floor=1"),
    *("--bind", "0.0.0.0", "--advertise", "127.0.0.1", "--no-tls"),
)
"""Of strangers, so that the broker holds each to the topics of its name."""
PACE = ("--nice", "0", "--cpu-share", "5%")
NEWCOMERS = 12
HALF_OPEN = 500
FLOOD = 10_000
LONGEST = 4_000
"""Bytes of what is said in numbers: a broker drops what is more than it may hold for the host."""


class Attacker:
    """A session that was let in, and takes tasks, but says what it likes."""

    def __init__(self, url: str, run: str, **options: Any) -> None:
        identity = Identity.generate()
        self.broker = f"mqtt://{identity.worker}@{urlsplit(url).netloc}"
        self.inside = ScriptedWorker(self.broker, run, identity=identity, busy=False, **options)

    @property
    def task(self) -> Task:
        """The first of members that it was given."""
        return self.tasks[0]

    @property
    def tasks(self) -> list[Task]:
        """Those of members."""
        return [task for task in self.inside.heard.tasks if task.kind == "members"]

    @property
    def known(self) -> list[Task]:
        """Those of which it has the parameters, too."""
        return [task for task in self.tasks if task.version in self.inside.states]

    def result(self, **changes: object) -> Result:
        """Of its task: whole, plausible, and made up."""
        task = self.task
        returns, lengths = pack_returns(
            np.full((task.count, 2), 9.0), np.full((task.count, 2), 9, np.int64)
        )
        result = Result(
            *(task.task, task.kind, task.version, task.first, task.count, task.episodes),
            *(task.token, returns, lengths),
        )
        return msgspec.structs.replace(result, **changes)

    async def refused(self, result: Result) -> str:
        """The host's reason to refuse a result."""
        heard = self.inside.heard
        heard.reasons.pop(result.name, None)
        async with asyncio.timeout(DEADLINE):
            while result.name not in heard.reasons:
                self.inside.send(result)  # again, as workers do: brokers drop what is too much
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2.0):
                        await self.inside.until(lambda: result.name in heard.reasons)
        assert heard.acknowledged[result.name] == "refused"
        return heard.reasons[result.name]

    async def settled(self) -> None:
        """The host has judged all that was said so far, and answers still."""
        # A result that was never leased is refused with the reason, whatever came before.
        await self.refused(self.result(token=bytes(16)))

    async def raw(self, name: str) -> RawClient:
        """One more connection with the same credentials."""
        return await RawClient.connect(self.broker, name)


Wanted = Callable[[Attacker], bool]


@contextlib.asynccontextmanager
async def attacker(
    url: str, run: str, has: Wanted = lambda made: bool(made.tasks), **options: Any
) -> AsyncIterator[Attacker]:
    """One that has what it wants, a task, unless it takes none: another comes where a newcomer
    finds nothing free in such small batches just then."""
    for _ in range(NEWCOMERS):
        made = Attacker(url, run, **options)
        async with made.inside:
            await made.inside.until(lambda made=made: made.inside.key is not None)
            if made.inside.credit:
                try:
                    async with asyncio.timeout(5.0):
                        await made.inside.until(lambda made=made: has(made))
                except TimeoutError:
                    continue
            yield made
            return
    raise AssertionError(f"none of {NEWCOMERS} newcomers was given a task")


def truth(spec: RunSpec, state: State, task: Task) -> tuple[bytes, bytes]:
    """What an honest worker returns for a task."""
    lanes = Lanes(spec, environments.maker(spec.environment), 2)
    job = EvaluationJob("members", task.version, task.first, task.count, 1, state.sigma)
    found = lanes.evaluate(job, state.basis)
    lanes.close()
    return pack_returns(found.returns, found.lengths)


async def forged_results(mallory: Attacker, honest: str) -> None:
    """Of no lease, of another's, and with returns and bytes that can't be."""
    task, size = mallory.task, 2 * mallory.task.count
    ones = np.ones(size)
    far = msgspec.structs.replace(mallory.result(), first=task.first + 10_000)
    forged = {
        "a range that was never leased": (far, "never had a lease"),
        "a token of its own": (mallory.result(token=b"t" * 16), "never had a lease"),
        "another version": (mallory.result(version=task.version + 1), "never had a lease"),
        "NaN": (mallory.result(returns=pack_reals(ones * np.nan)), "NaN or infinite"),
        "1e308": (mallory.result(returns=pack_reals(ones * 1e308)), "beyond +-1e+150"),
        "too few": (mallory.result(returns=pack_reals(ones[:-1])), "were asked for"),
        "too many": (mallory.result(returns=pack_reals(np.ones(size + 1))), "is not up to"),
        "endless episodes": (
            mallory.result(lengths=pack_integers(np.full(size, 10**9))),
            "more than 60 steps",
        ),
        "sums that nobody asked for": (mallory.result(observed=b"\0" * 64), "nobody asked for"),
        "no returns": (mallory.result(returns=b""), "an array of no bytes"),
    }
    for name, (result, reason) in forged.items():
        assert reason in await mallory.refused(result), name


async def truncated_and_oversized(mallory: Attacker, honest: str) -> None:
    """Cut at every length, and longer than any message, and than any packet."""
    whole = mallory.inside.sealed(mallory.result())
    for length in (0, 1, 16, 17, 18, len(whole) // 2, len(whole) - 1):
        mallory.inside.publish(topics.results, whole[:length])
    client = await mallory.raw("giant")
    await client.publish(_topic(mallory, topics.results), b"\2" * (MAX_MESSAGE + 1), qos=1)
    await mallory.settled()
    await client.publish(_topic(mallory, topics.results), bytes(400_000))
    await client.until_closed()


async def garbage_that_proves_itself(mallory: Attacker, honest: str) -> None:
    """Messages of all kinds, changed, under a MAC that is right."""
    assert mallory.inside.key is not None
    corpus = (*every_message(), encode(mallory.result()), encode(Status("idle", 0)))
    for seed in range(1500):
        body = mutated("msgpack", corpus, seed)[:LONGEST]
        kind = (topics.request, topics.results, topics.status)[seed % 3]
        proof = mac(mallory.inside.key, "to coordinator", body)
        mallory.inside.publish(kind, bytes([Wrapping.SEALED]) + proof + body)
    await mallory.settled()


async def topics_of_others(mallory: Attacker, honest: str) -> None:
    """What the broker lets nobody say or read but whose name it is."""
    client = await mallory.raw("thief")
    run = mallory.inside.run_id
    for name in (f"shoal/1/{run}/results/#", f"shoal/1/{run}/in/{honest}/+", "#"):
        await client.subscribe(name)  # mosquitto grants it, and sends nothing
    status = mallory.inside.sealed(Status("idle", 0))
    for kind in (topics.request, topics.results, topics.status):
        await client.publish(kind(run, honest, "abcdef"), status, qos=1)
    for name in (topics.epoch(run), topics.beat(run), topics.update(run)):
        await client.publish(name, b"\0", qos=1, retain=True)
    await mallory.settled()
    await client.ping()
    stolen = [message.topic for message in client.messages]
    assert not [name for name in stolen if f"/{honest}/" in name], stolen
    client.abort()


async def flood(mallory: Attacker, honest: str) -> None:
    """As many messages as the broker takes, of which each is proved before it is worth nothing."""
    client = await mallory.raw("flood")
    topic = _topic(mallory, topics.status)
    said = mallory.inside.sealed(Status("busy", 0))
    for _ in range(FLOOD // 100):
        for _ in range(100):
            await client.publish(topic, said)
    await client.ping()
    client.abort()
    await mallory.settled()


@contextlib.asynccontextmanager
async def half_open_sockets(mallory: Attacker, count: int) -> AsyncIterator[None]:
    """Connections that say nothing, or half of a CONNECT."""
    begun = connect_packet("half", user="somebody")
    clients = [await RawClient.open(mallory.broker) for _ in range(count)]
    for client in clients[::2]:
        client.writer.write(begun[:9])
    yield
    for client in clients:
        client.abort()


async def replays(url: str, run: str, spec: RunSpec) -> None:
    """A true result counts once, however often and by whomever it is said again."""
    async with (
        attacker(url, run, has=lambda made: bool(made.known)) as eve,
        attacker(url, run, credit=0) as twin,
    ):
        heard = eve.inside.heard
        known = eve.inside.states
        task = eve.known[-1]
        heard.tasks.insert(0, task)
        returns, lengths = truth(spec, known[task.version], task)
        result = eve.result(returns=returns, lengths=lengths)
        said = eve.inside.sealed(result)
        eve.inside.publish(topics.results, said)
        # The first is answered once it is on disk, which others may be before it.
        await eve.inside.until(lambda: result.name in heard.acknowledged)
        assert heard.acknowledged[result.name] in ("accepted", "late", "duplicate")
        for _ in range(4):
            eve.inside.publish(topics.results, said)
        # With other returns, once it has counted; by another worker, by its own word.
        heard.acknowledged.clear()
        eve.inside.send(eve.result())
        await eve.inside.until(lambda: result.name in heard.acknowledged)
        assert heard.acknowledged[result.name] in ("late", "duplicate")
        twin.inside.heard.tasks.append(task)
        assert "never had a lease" in await twin.refused(result)


ATTACKS: tuple[Callable[[Attacker, str], Any], ...] = (
    forged_results,
    truncated_and_oversized,
    garbage_that_proves_itself,
    topics_of_others,
    flood,
)


async def attacked(url: str, run_dir: Path, honest: str) -> None:
    """All attacks, one after the other, in the presence of sockets that are half open."""
    with opened(run_dir) as past:
        run, spec = past.run, past.spec
    # First, since a newcomer is given ever less after others that kept what they were given.
    await replays(url, run, spec)
    async with attacker(url, run) as mallory, half_open_sockets(mallory, HALF_OPEN):
        for attack in ATTACKS:
            before = len(updates(run_dir))
            await attack(mallory, honest)
            await asyncio.to_thread(await_updates, run_dir, before + 1)
        mallory.inside.ask(Credit(0, 0, 2**50))


@pytest.mark.parametrize("kind", ["mosquitto", "embedded"])
def test_nothing_that_attackers_say_enters_the_run(kind: str, tmp_path: Path) -> None:
    require(kind)
    run_dir = tmp_path / "run"
    with host(*RUN, run_dir=run_dir, broker=kind) as (leader, url):
        with running("tests.chaos.day_off", url, "--home", str(tmp_path / "home"), *PACE) as honest:
            leader.await_line("joined")
            name = Identity.load(tmp_path / "home" / "worker.key").worker
            asyncio.run(attacked(url, run_dir, name))
            await_updates(run_dir, len(updates(run_dir)) + 1)
            leader.signal(signal.SIGINT)
            assert leader.await_end() == 0, leader.lines
            assert honest.await_end() == 0, honest.lines  # its clock is a day fast
        outcome = leader.last_json()
    with opened(run_dir) as past:
        spec, reached = past.spec, past.version
    assert outcome["params_hash"] == params_hash(alone.trained(spec, reached).theta)
    assert_sound(run_dir, reached)
    assert_orderly(leader, honest)
    assert [line for line in leader.lines if "its result is refused: " in line]
    assert not [line for line in leader.lines if name in line and "refused" in line]


def _topic(mallory: Attacker, kind: Callable[[str, str, str], str]) -> str:
    inside = mallory.inside
    return kind(inside.run_id, inside.identity.worker, inside.session)
