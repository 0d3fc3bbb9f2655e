"""Runs of real processes and brokers over failing networks, with whoever takes part failing too."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.disturbed import (
    BLACK_HOLE,
    PACE,
    RUN,
    SMALL_TASKS,
    WORKING,
    await_status,
    finish,
    statuses,
)
from tests.chaos.processes import (
    assert_orderly,
    await_updates,
    host,
    resumed,
    undisturbed_hash,
    updates,
    worker,
)
from tests.chaos.proxy import Faults, proxied
from tests.protocol.mosquitto import Mosquitto


def test_a_failing_network_changes_no_bit(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """One worker far away, one in a black hole for 10 s, one cut and reset again and again; and
    the coordinator's own connection cut and reset too."""
    run_dir = tmp_path / "run"
    with ExitStack() as stack:
        at = ("127.0.0.1", mosquitto.port)
        own, far, hidden, cut = (stack.enter_context(proxied(at, seed)) for seed in range(4))
        own.behave(up=PACE, down=PACE)
        leader, url = stack.enter_context(
            host(*RUN, "--pool", "sync", *SMALL_TASKS, run_dir=run_dir, broker=own.url)
        )
        far.behave(up=Faults(latency=0.3, jitter=0.1), down=Faults(latency=0.3, jitter=0.1))
        cut.behave(up=Faults(cut_after=4_000), down=Faults(cut_after=8_000))
        workers = [
            stack.enter_context(worker(proxy.through(url), tmp_path / f"home-{index}", *WORKING))
            for index, proxy in enumerate((far, hidden, cut))
        ]
        leader.await_line("joined", 3)
        await_updates(run_dir, 1)
        hidden.behave(up=BLACK_HOLE, down=BLACK_HOLE)
        for number in range(5):  # what a network does meanwhile, for 10 s
            time.sleep(2.0)
            cut.reset()
            if number % 2:
                own.reset()
        assert leader.process.poll() is None, "the run ended in the midst of it"
        for proxy in (hidden, far, cut):
            proxy.behave()
        before = own.accepted
        own.behave(up=Faults(cut_after=3_000))
        leader.await_line("broker lost", 1 + sum("broker lost" in line for line in leader.lines))
        own.behave()
        assert finish(leader, run_dir) == undisturbed_hash(run_dir)
        assert [worker.await_end() for worker in workers] == [0, 0, 0]
        assert own.accepted > before and cut.accepted > 5
    assert_orderly(leader, *workers)


def test_stopped_processes_and_a_restarted_broker_change_no_bit(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    """A worker killed and one asleep in a task, the host asleep, the broker ended and killed."""
    run_dir = tmp_path / "run"
    with ExitStack() as stack:
        own = stack.enter_context(proxied(("127.0.0.1", mosquitto.port)))
        own.behave(up=PACE, down=PACE)
        leader, url = stack.enter_context(
            host(*RUN, "--pool", "sync", *SMALL_TASKS, run_dir=run_dir, broker=own.url)
        )
        direct = url.replace(f":{own.port}/", f":{mosquitto.port}/")
        asleep, steady, killed = workers = [
            stack.enter_context(worker(direct, tmp_path / f"home-{index}", *WORKING))
            for index in range(3)
        ]
        leader.await_line("joined", 3)
        asleep.signal_children(signal.SIGSTOP)
        await_status(asleep, lambda status: status["running"] > 0)
        asleep.signal_all(signal.SIGSTOP)
        killed.signal(signal.SIGKILL)
        made = len(updates(run_dir))
        await_updates(run_dir, made + 1)  # for which others had to take over what those two held
        asleep.signal_all(signal.SIGCONT)
        woken = await_status(asleep, lambda status: status["late"] + status["duplicate"] > 0)
        assert mosquitto.process is not None
        mosquitto.process.terminate()
        mosquitto.process.wait()
        mosquitto.start()
        await_updates(run_dir, len(updates(run_dir)) + 1)
        leader.signal_all(signal.SIGSTOP)
        time.sleep(4.0)  # longer than the leases
        leader.signal_all(signal.SIGCONT)
        await_updates(run_dir, len(updates(run_dir)) + 1)
        mosquitto.kill()
        mosquitto.start()
        leader.await_line("joined", 5)
        assert leader.process.poll() is None, "the run ended in the midst of it"
        own.behave()
        assert finish(leader, run_dir) == undisturbed_hash(run_dir)
        assert [worker.await_end() for worker in (asleep, steady)] == [0, 0]
        assert statuses(asleep)[-1]["accepted"] > woken["accepted"]
    assert_orderly(leader, *workers)


def test_whatever_fails_every_direction_counts_at_most_once(tmp_path: Path) -> None:
    """Two runs beside each other, since most of each is waiting."""
    pools = ("quorum", "async")
    with ThreadPoolExecutor(len(pools)) as threads:
        runs = [threads.submit(fail_and_go_on, pool, tmp_path / pool) for pool in pools]
        for run in runs:
            run.result()


def fail_and_go_on(pool: str, room: Path) -> None:
    """The coordinator, with its broker, and a worker are killed; another one sleeps."""
    run_dir = room / "run"
    room.mkdir()
    with ExitStack() as stack:
        first, url = stack.enter_context(host(*RUN, "--pool", pool, *SMALL_TASKS, run_dir=run_dir))
        broker = ("127.0.0.1", int(url.partition("://")[2].partition("/")[0].rpartition(":")[2]))
        network = stack.enter_context(proxied(broker))
        network.behave(up=PACE, down=PACE)
        asleep, steady, killed = workers = [
            stack.enter_context(worker(network.through(url), room / f"home-{index}", *WORKING))
            for index in range(3)
        ]
        first.await_line("joined", 3)
        await_updates(run_dir, 2)
        asleep.signal_all(signal.SIGSTOP)
        killed.signal(signal.SIGKILL)
        first.await_line("gone: its connection broke")
        await_updates(run_dir, len(updates(run_dir)) + 2)
        first.signal(signal.SIGKILL)
        first.process.wait()
        second = stack.enter_context(resumed(run_dir))
        second.await_line("joined")
        asleep.signal_all(signal.SIGCONT)
        second.await_line("joined", 2)
        assert second.process.poll() is None, "the run ended in the midst of it"
        network.behave()
        finish(second, run_dir)
        assert [worker.await_end() for worker in (asleep, steady)] == [0, 0]
    assert_orderly(first, second, *workers)
