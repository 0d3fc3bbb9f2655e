"""Whole runs with scripted workers over a real broker: what ends them, and what must not."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import random
import resource
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from coordinator import server, update
from coordinator.lines import LONGEST_LINE
from coordinator.log import LogError, UpdateLog
from coordinator.pool.confidence import merit
from coordinator.progress import Outcome
from coordinator.update import UpdateError
from protocol import replay, topics
from protocol import spec as run_spec
from protocol.address import parse_address
from protocol.envelope import open_plain, open_signed, plain
from protocol.link import Link
from protocol.messages import Here, Refusal, Result, Update, Who
from protocol.packing import pack_reals
from protocol.spec import RunSpec
from protocol.state import params_hash
from tests.coordinator.runs import Led, broker, led, play, resumed, spec_of, states_of
from tests.coordinator.scripted import DEADLINE, ScriptedWorker
from tests.protocol.mosquitto import Mosquitto


def updates_of(run: Led) -> list[Update]:
    """What the log on disk holds, each signature checked."""
    log = UpdateLog(run.directory.log_path, run.run_id)
    updates = []
    for payload in log.updates(0, log.version):
        message = open_signed(payload, run.identity.public_key, "update", (run.run_id,))
        assert isinstance(message, Update)
        updates.append(message)
    log.close()
    return updates


def replayed(spec: RunSpec, run: Led) -> list[str]:
    """The hash of every version that the log on disk leads to, and the proof that it does."""
    state, rules = replay.initial_state(spec), replay.arithmetic(spec)
    hashes = [params_hash(state.theta)]
    for message in updates_of(run):
        state = replay.follow(spec, rules, state, message)
        hashes.append(params_hash(state.theta))
    return hashes


COUNTED = ("in", "results", "update")


async def test_target_reached_returns_the_version_that_was_evaluated(tmp_path: Path) -> None:
    spec = spec_of(stop={"target": -0.5, "updates": 60})
    async with led(spec, tmp_path) as run, run.worker() as worker:
        outcome = await run.outcome()
        await worker.until(lambda: worker.heard.epochs[-1].state == "finished")
    assert outcome.reached and outcome.reason == "the target is reached"
    assert outcome.centre is not None
    assert outcome.centre.version == outcome.version <= outcome.updates
    assert outcome.centre.episodes == 4 and outcome.centre.full
    assert outcome.centre.mean >= -0.5
    hashes = replayed(spec, run)
    assert hashes[outcome.version] == outcome.params_hash
    assert len(hashes) == outcome.updates + 1
    last = worker.heard.epochs[-1]
    assert (last.version, last.digest.hex()) == (outcome.version, outcome.params_hash)
    assert worker.heard.beats[-1].phase == "finished"


async def test_late_verdict_returns_the_version_that_it_is_about(tmp_path: Path) -> None:
    """The centre of version 0 is judged when version 2 is trained already."""
    spec = spec_of(stop={"target": -100.0, "updates": 50})
    async with led(spec, tmp_path) as run, run.worker(judge_at=2, pause_at=3) as worker:
        outcome = await run.outcome()
        await worker.until(lambda: worker.heard.epochs[-1].state == "finished")
    assert outcome.reached and outcome.version == 0 and outcome.updates >= 2
    hashes = replayed(spec, run)
    assert outcome.params_hash == hashes[0] == worker.heard.epochs[-1].digest.hex()
    assert worker.heard.epochs[-1].version == 0
    with safe_open(run.directory.policy_path, framework="numpy") as file:
        assert file.metadata()["params_hash"] == hashes[0]
        assert file.metadata()["version"] == "0"


async def test_the_best_version_is_kept_beside_that_which_is_returned(tmp_path: Path) -> None:
    """It is told from the evaluations: their lower ends; and it stays so when the run goes on."""
    spec = spec_of(optimizer={"learning_rate": 2.0}, stop={"updates": 8})
    async with broker(tmp_path / "broker") as url:
        async with led(spec, tmp_path, url) as run, run.worker(pause_at=5):
            async with asyncio.timeout(DEADLINE):
                while run.server.progress.version < 5 or run.directory.best() == {}:
                    await asyncio.sleep(0.01)
            run.server.pause("for a test")
            await run.outcome()
        async with resumed(tmp_path, url) as run, run.worker():
            outcome = await run.outcome()
            hashes = replayed(spec, run)
    lines = (run.directory.path / "metrics.jsonl").read_text().splitlines()
    judged = {each["version"]: each for each in map(json.loads, lines) if each["kind"] == "centre"}
    merits = {
        version: merit(each["mean_return"], each["return_deviation"], each["episodes"])
        for version, each in judged.items()
    }
    best = max(merits, key=lambda version: (merits[version], -version))
    assert best != outcome.version  # steps this long leave the best point again
    said = run.directory.best()
    assert (said["version"], said["params_hash"]) == (str(best), hashes[best])
    assert float(said["mean_return"]) == judged[best]["mean_return"]
    with safe_open(run.directory.best_path, framework="numpy") as file:
        parts = [file.get_tensor(name).ravel() for name in ("layers.0.weight", "layers.0.bias")]
    assert params_hash(np.concatenate(parts)) == hashes[best]


async def test_beats_tell_the_newest_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BEAT_SECONDS", 0.1)
    async with led(spec_of(), tmp_path) as run, run.worker(pause_at=3) as worker:
        await worker.until(lambda: [beat.version for beat in worker.heard.beats][-1:] == [3])
        assert worker.heard.beats[-1].phase == "open"
        assert worker.state is not None
        assert worker.heard.beats[-1].digest.hex() == params_hash(worker.state.theta)


async def test_words_of_workers_cannot_control_a_terminal(tmp_path: Path) -> None:
    async with led(spec_of(), tmp_path) as run, run.worker(busy=False) as worker:
        await worker.until(lambda: bool(worker.heard.tasks))
        task = worker.heard.tasks[0]
        worker.ask(Refusal(task.task, task.token, "worker", "\x1b[2J\nroot:\u202e" + "x" * 400))
        async with asyncio.timeout(DEADLINE):
            while not any("failed a task" in line for line in run.lines):
                await asyncio.sleep(0.01)
    assert all(line.isprintable() and len(line) <= LONGEST_LINE for line in run.lines)
    assert any("(scripted, formula): joined" in line for line in run.lines)


async def test_run_directory_holds_what_the_run_was(tmp_path: Path) -> None:
    spec = spec_of(stop={"updates": 3})
    async with led(spec, tmp_path) as run, run.worker():
        outcome = await run.outcome()
    path = run.directory.path
    assert run_spec.parse(run_spec.load(path / "spec.toml")) == spec
    tensors = load_file(path / "policy.safetensors")
    assert {name: tensor.shape for name, tensor in tensors.items()} == {
        "layers.0.weight": (2, 2),
        "layers.0.bias": (2,),
    }
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    updates = [line for line in lines if line["kind"] == "update"]
    assert [line["version"] for line in updates] == [1, 2, 3]
    assert [line["params_hash"] for line in updates] == replayed(spec, run)[1:]
    assert updates[-1]["params_hash"] == outcome.params_hash
    assert [line["step_cosine"] is None for line in updates] == [True, False, False]
    assert all(line["step_norm"] > 0 and line["pair_signal_to_noise"] > 1 for line in updates)
    assert updates[0]["sigma_ratio"] is None and updates[1]["sigma_ratio"] > 0  # zero start
    rows = sqlite3.connect(path / "log.sqlite").execute("SELECT * FROM evaluations").fetchall()
    centres = [line for line in lines if line["kind"] == "centre"]
    assert [(row[0], row[1], row[2]) for row in rows] == [
        (line["version"], line["episodes"], line["mean_return"]) for line in centres
    ]
    # 32 members an update; screenings of 2 episodes, the last evaluation is full.
    assert outcome.progress.episodes == 3 * 32 + sum(line["episodes"] for line in centres)
    assert outcome.progress.steps == updates[-1]["env_steps"] + sum(
        line["episodes"] for line in centres if line["version"] == 3
    )


async def test_wire_bytes_are_what_passed_the_sockets(tmp_path: Path) -> None:
    """With one worker its own count of tasks, results, answers and updates must be the same."""
    async with led(spec_of(), tmp_path) as run, run.worker() as worker:
        outcome = await run.outcome()
        await worker.until(lambda: worker.heard.epochs[-1].state == "finished")
        counted = worker.link.wire.snapshot()
    progress = outcome.progress
    of_episodes = {name: size for name, size in counted.items() if name.split()[-1] in COUNTED}
    assert progress.wire_bytes == sum(of_episodes.values()) > 0
    assert progress.wire_bytes_per_episode == progress.wire_bytes / progress.episodes
    updates = sum(len(payload) for payload in worker.heard.updates)
    assert updates < counted["received publish update"] < updates + 5 * 60


async def test_host_is_told_why_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BEAT_SECONDS", 0.02)
    async with led(spec_of(), tmp_path) as run:
        async with asyncio.timeout(DEADLINE):
            while not run.lines:
                await asyncio.sleep(0.01)
        assert run.lines[0] == "waiting: no worker is here: give the join line to somebody"
        async with run.worker():
            await run.outcome()
    assert sum(line.startswith("waiting: no worker") for line in run.lines) == 1


async def test_updates_limit_ends_after_that_many_with_a_full_evaluation(tmp_path: Path) -> None:
    outcome = await play(spec_of(stop={"updates": 2}), tmp_path)
    assert not outcome.reached
    assert (outcome.version, outcome.updates) == (2, 2)
    assert outcome.centre is not None and outcome.centre.episodes == 4


async def test_no_updates_and_no_evaluation_still_ends(tmp_path: Path) -> None:
    spec = spec_of(stop={"updates": 0}, centre={"evaluate_every": 0})
    outcome = await play(spec, tmp_path, workers=0)
    assert (outcome.version, outcome.updates, outcome.centre) == (0, 0, None)


EXACT = {
    "normalizer": {"enabled": True},
    "strategy": {"population": 64},
    "pool": {"quorum": 1.0, "max_staleness": 0, "minimum_task_seconds": 0.0, "task_seconds": 0.01},
    "stop": {"updates": 6},
}


async def changing_pool(spec: RunSpec, directory: Path, sizes: list[int]) -> Outcome:
    """One worker vanishes in mid-batch, its task in hand; another joins in the middle."""
    async with led(spec, directory) as run:
        vanishing = run.worker(speed=2000.0)
        async with vanishing, run.worker(speed=300.0) as first:
            await vanishing.until(lambda: len(vanishing.heard.updates) >= 2)
            held = len(vanishing.heard.tasks)
            vanishing.busy = False
            await vanishing.until(lambda: len(vanishing.heard.tasks) > held)
            async with run.worker(speed=700.0) as late:
                await vanishing.vanish()
                outcome = await run.outcome()
                assert late.heard.tasks and first.heard.tasks
            sizes += [task.count for task in first.heard.tasks if task.kind == "members"]
    return outcome


async def test_parameters_do_not_depend_on_the_pool(tmp_path: Path) -> None:
    """Normaliser on, tasks cut at random; 1, 2 and 3 workers, and a pool that changes."""
    speeds = random.Random(3)
    outcomes = []
    for workers in (1, 2, 3):
        spec = spec_of(**EXACT)
        async with led(spec, tmp_path / str(workers)) as run, contextlib.AsyncExitStack() as pool:
            for _ in range(workers):
                worker = run.worker(speed=speeds.uniform(100.0, 3000.0), credit=3)
                await pool.enter_async_context(worker)
            outcomes.append(await run.outcome())
            assert len(set(replayed(spec, run))) == 7
    sizes: list[int] = []
    outcomes.append(await changing_pool(spec_of(**EXACT), tmp_path / "changing", sizes))
    expected = states_of(spec_of(**EXACT), 6)[-1]
    assert {outcome.params_hash for outcome in outcomes} == {params_hash(expected.theta)}
    assert {outcome.updates for outcome in outcomes} == {6}
    assert {outcome.progress.episodes for outcome in outcomes} == {outcomes[0].progress.episodes}
    assert len(set(sizes)) > 1, "all tasks had the same size: nothing was shown"


async def test_seed_changes_the_parameters(tmp_path: Path) -> None:
    one = await play(spec_of(seed=1), tmp_path / "1")
    two = await play(spec_of(seed=2), tmp_path / "2")
    assert one.params_hash != two.params_hash


async def test_stragglers_of_a_quorum_count_in_the_next_update(tmp_path: Path) -> None:
    spec = spec_of(
        pool={"quorum": 0.5, "max_staleness": 2, "minimum_task_seconds": 0.0},
        normalizer={"enabled": True},
        stop={"updates": 4},
    )
    async with led(spec, tmp_path) as run, run.worker(busy=False, credit=1, speed=1e5) as slow:
        await slow.until(lambda: bool(slow.heard.tasks))
        first = slow.heard.tasks[0]
        async with run.worker(pause_at=1) as quick:
            await quick.until(lambda: bool(quick.heard.updates))
            slow.resume()
            await slow.until(lambda: first.task in slow.heard.acknowledged)
            assert slow.heard.acknowledged[first.task] == "accepted"
            quick.resume()
            await run.outcome()
    assert first.kind == "members"
    counted = [message.late for message in updates_of(run)]
    assert counted[0] == 0 and counted[1] >= 2 * first.count
    replayed(spec, run)


async def test_broker_that_dies_and_comes_back_does_not_end_the_run(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    broker.start()
    spec = spec_of(stop={"updates": 8})
    try:
        async with led(spec, tmp_path, broker.url) as run, run.worker(pause_at=3) as worker:
            await worker.until(
                lambda: worker.heard.tasks[-1:] and worker.heard.tasks[-1].version == 3
            )
            broker.kill()
            broker.start()
            await worker.until(lambda: len(worker.heard.epochs) > 1)
            worker.say_hello()  # as real ones do at the first beat of a connection
            worker.resume()
            outcome = await run.outcome()
            assert len(worker.hellos) >= 2
            await worker.until(lambda: worker.heard.epochs[-1].state == "finished")
            # A broker without memory was told again who leads, so that newcomers can join.
            assert [epoch.state for epoch in worker.heard.epochs][-2:] == ["running", "finished"]
    finally:
        broker.kill()
    assert outcome.updates == 8
    assert any(line.startswith("broker lost") for line in run.lines)
    assert replayed(spec, run)[-1] == outcome.params_hash


async def test_end_is_announced_to_a_broker_that_was_away(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    broker.start()
    try:
        async with led(spec_of(), tmp_path, broker.url) as run:
            async with asyncio.timeout(DEADLINE):
                await run.ready.wait()
            broker.kill()
            run.server.stop("enough")
            broker.start()
            await run.outcome()
            async with ScriptedWorker(broker.url, run.run_id) as worker:
                await worker.until(lambda: bool(worker.heard.epochs))
                assert worker.heard.epochs[-1].state == "stopped"
    finally:
        broker.kill()


async def test_who_is_answered_once_for_many_questions(tmp_path: Path) -> None:
    heard: list[Here] = []
    answered = asyncio.Event()

    def hear(topic: str, payload: bytes) -> None:
        here = open_plain(payload)
        assert isinstance(here, Here)
        heard.append(here)
        answered.set()

    def ask(first: bool) -> None:
        for _ in range(20):
            link.publish(topics.WHO, plain(Who()))

    async with led(spec_of(), tmp_path, priority=2.5) as run:
        async with asyncio.timeout(DEADLINE):
            await run.ready.wait()
            link = Link(
                parse_address(run.url),
                client_id="asker",
                on_message=hear,
                on_connected=ask,
                subscriptions={topics.HERE: 0},
            )
            asking = asyncio.create_task(link.run())
            await answered.wait()
            await asyncio.sleep(server.HERE_WITHIN)
        await link.close()
        await asking
    expected = Here(run.run_id, run.identity.public_key, "Formula-v0", "running", 2.5)
    assert heard == [expected]


async def test_stop_ends_orderly_with_the_last_version(tmp_path: Path) -> None:
    spec = spec_of(stop={"updates": 1000})
    async with led(spec, tmp_path) as run, run.worker() as worker:
        await worker.until(lambda: len(worker.heard.updates) >= 3)
        run.server.stop("stopped by the host (SIGINT)")
        outcome = await run.outcome()
        await worker.until(lambda: worker.heard.epochs[-1].state == "stopped")
        assert worker.heard.epochs[-1].reason == "stopped by the host (SIGINT)"
    hashes = replayed(spec, run)
    assert outcome.params_hash == hashes[outcome.version]
    assert 3 <= outcome.updates < 1000
    # Whatever was published was kept first.
    assert len(worker.heard.updates) <= len(hashes) - 1


async def test_stop_waits_for_an_update_that_is_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its thread would meet a closed log, or publish after the end."""
    entered, release = threading.Event(), threading.Event()
    make_signed = update.make_signed

    def slow(*arguments: Any) -> Any:
        entered.set()
        assert release.wait(DEADLINE)
        return make_signed(*arguments)

    monkeypatch.setattr(update, "make_signed", slow)
    async with led(spec_of(), tmp_path) as run, run.worker() as worker:
        assert await asyncio.to_thread(entered.wait, DEADLINE)
        run.server.stop("enough")
        asyncio.get_running_loop().call_later(0.2, release.set)
        outcome = await run.outcome()
        assert release.is_set()
        await worker.until(lambda: worker.heard.epochs[-1].state == "stopped")
        assert not worker.heard.updates
    assert outcome.updates == 0 and updates_of(run) == []


async def test_who_watches_is_told_what_an_update_goes_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_signed = update.make_signed

    def crowded(*arguments: Any) -> Any:
        made, payload = make_signed(*arguments)
        return dataclasses.replace(made, left_out=1_234), payload

    monkeypatch.setattr(update, "make_signed", crowded)
    async with led(spec_of(), tmp_path) as run, run.worker() as worker:
        await worker.until(lambda: worker.version > 0)
        told = [line for line in run.lines if "1,234 late members" in line]
        assert told[0].startswith("update 0 goes without") and "strategy.population" in told[0]


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_full_disk_ends_the_run_before_anything_lost_is_published(tmp_path: Path) -> None:
    spec = spec_of(stop={"updates": 100_000}, centre={"evaluate_every": 0})
    async with led(spec, tmp_path) as run, run.worker() as worker:
        await worker.until(lambda: len(worker.heard.updates) >= 2)
        wal = run.directory.path / "log.sqlite-wal"
        with largest_file(wal.stat().st_size + 20_000), pytest.raises(LogError) as caught:
            await run.outcome()
        # Nobody hears that the run has ended, since it may go on.
        await worker.until(lambda: worker.heard.beats[-1].phase == "lost")
        assert worker.heard.epochs[-1].state == "paused"
        assert "free the disk" in worker.heard.epochs[-1].reason
    message = str(caught.value)
    assert "\n" not in message and "log.sqlite" in message and "free the disk" in message
    kept = len(replayed(spec, run)) - 1
    published = [open_plain(b"\0" + payload[65:]) for payload in worker.heard.updates]
    versions = [message.version for message in published if isinstance(message, Update)]
    assert versions and max(versions) < kept


async def test_log_that_another_process_holds_ends_the_run(tmp_path: Path) -> None:
    spec = spec_of(stop={"updates": 100_000})
    async with led(spec, tmp_path) as run, run.worker() as worker:
        await worker.until(lambda: len(worker.heard.updates) >= 2)
        other = sqlite3.connect(run.directory.log_path)
        other.execute("DROP TABLE updates")
        with pytest.raises(LogError, match="no such table"):
            await run.outcome()
        other.close()


async def test_metrics_that_cannot_be_written_end_the_run(tmp_path: Path) -> None:
    async with led(spec_of(stop={"updates": 100_000}), tmp_path) as run, run.worker() as worker:
        await worker.until(lambda: len(worker.heard.updates) >= 2)
        (run.directory.path / "policy.safetensors").unlink()
        (run.directory.path / "policy.safetensors").mkdir()
        run.server.stop("enough")
        with pytest.raises(Exception, match=r"can't take policy\.safetensors"):
            await run.outcome()


async def test_parameters_that_overflow_end_the_run_with_the_remedy(tmp_path: Path) -> None:
    spec = spec_of(
        optimizer={"kind": "sgd", "learning_rate": 1e6, "momentum": 0.0},
        strategy={"sigma": 1e-38},
        stop={"updates": 50},
    )

    def rising(result: Result) -> Result:
        count = 2 * result.count if result.kind == "members" else result.count
        return msgspec.structs.replace(result, returns=pack_reals(np.arange(float(count))))

    async with led(spec, tmp_path) as run, run.worker(alter=rising):
        with pytest.raises(UpdateError, match="lower the learning rate"):
            await run.outcome()


async def test_failing_listener_ends_the_run(tmp_path: Path) -> None:
    async with led(spec_of(), tmp_path) as run:
        run.server._lines._tell = lambda line: 1 // 0  # type: ignore[assignment, return-value]
        async with run.worker():
            with pytest.raises(ZeroDivisionError):
                await run.outcome()


async def test_unreachable_broker_is_one_clear_line(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("coordinator.leading.CONTACT_SECONDS", 0.3)
    async with led(spec_of(), tmp_path, "mqtt://127.0.0.1:1") as run:
        with pytest.raises(Exception, match=r"no broker can be reached at mqtt://127\.0\.0\.1:1"):
            await run.outcome()
    assert not run.ready.is_set()


async def test_an_overwritten_epoch_is_announced_again(tmp_path: Path) -> None:
    spec = spec_of(stop={"updates": 10**6})
    async with led(spec, tmp_path) as run:
        async with run.worker() as worker:
            await worker.until(lambda: bool(worker.heard.epochs))
            assert worker.link.publish(topics.epoch(run.run_id), b"", qos=1, retain=True)
            await worker.until(lambda: len(worker.heard.epochs) >= 2)
        async with run.worker() as newcomer:
            await newcomer.until(lambda: bool(newcomer.heard.epochs))


async def test_who_asks_hears_the_epoch_that_its_broker_does_not_retain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BEAT_SECONDS", 0.5)
    spec = spec_of(stop={"updates": 10**6})
    async with led(spec, tmp_path) as run, run.worker(busy=False) as worker:
        await worker.until(lambda: bool(worker.heard.epochs) and bool(worker.heard.welcomes))
        before = len(worker.heard.epochs)
        for _ in range(2):
            worker.link.publish(topics.WHO, plain(Who()))
            await worker.until(lambda: len(worker.heard.epochs) == before + 1)
        assert len(worker.hellos) == 1
        beats = len(worker.heard.beats)
        await worker.until(lambda: len(worker.heard.beats) > beats)
        assert len(worker.heard.epochs) == before + 1  # who asks again at once gets no more
