"""Runs of real processes whose host sleeps, or does not keep up, or whose broker does not."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.disturbed import (
    PACE,
    RUN,
    SMALL_TASKS,
    WORKING,
    await_status,
    finish,
    statuses,
)
from tests.chaos.processes import (
    DEADLINE,
    Running,
    assert_orderly,
    await_updates,
    host,
    undisturbed_hash,
    updates,
    worker,
)
from tests.chaos.proxy import Faults, Proxy, proxied
from tests.chaos.spy import Spy, spying
from tests.protocol.mosquitto import Mosquitto

ASLEEP = 20.0
"""Seconds: longer than leases, a keepalive, and than workers wait for a beat."""
TURN, AWAKE = 1.0, 0.2
"""Seconds of a turn of a slow host, and for how many of them it works."""
SLOW_FOR = 10.0
SLOW_BROKER = Faults(latency=0.3, rate=4_000.0)
NEARER = Faults(latency=0.1)
CREDIT = 8
"""Tasks that each worker asks for."""
MOST_UNANSWERED = 64 + CREDIT
"""Results of one session that the host holds at most until they are on disk, and its tasks."""

Scene = Callable[[Running, list[Running], Proxy, Spy, Path], None]


def test_who_sleeps_or_is_slow_says_so_and_loses_nothing(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    """Three runs beside each other, since most of each is waiting."""
    scenes: tuple[Scene, ...] = (a_host_that_sleeps, a_host_that_is_slow, a_broker_that_is_slow)
    with ThreadPoolExecutor(len(scenes)) as threads:
        runs = [threads.submit(disturbed, scene, mosquitto, tmp_path) for scene in scenes]
        found = {run.result() for run in runs}
    assert found == {undisturbed_hash(tmp_path / scenes[0].__name__ / "run")}


def disturbed(scene: Scene, mosquitto: Mosquitto, path: Path) -> str:
    """The hash of a synchronous run in the midst of which that happens: every direction counts in
    it once, or it would be another."""
    room = path / scene.__name__
    room.mkdir()
    run_dir = room / "run"
    with ExitStack() as stack:
        network = stack.enter_context(proxied(("127.0.0.1", mosquitto.port)))
        network.behave(up=PACE, down=PACE)
        leader, url = stack.enter_context(
            host(*RUN, "--pool", "sync", *SMALL_TASKS, run_dir=run_dir, broker=network.url)
        )
        flags = (*WORKING, "--credit", str(CREDIT))
        workers = [
            stack.enter_context(worker(url, room / f"home-{index}", *flags)) for index in range(2)
        ]
        run = url.rpartition("/")[2].partition("#")[0]
        spy = stack.enter_context(spying(mosquitto.port, run))
        leader.await_line("joined", 2)
        await_updates(run_dir, 2)
        scene(leader, workers, network, spy, run_dir)
        assert leader.process.poll() is None, "the run ended in the midst of it"
        network.behave()
        params_hash = finish(leader, run_dir)
        assert [helper.await_end() for helper in workers] == [0, 0]
        unanswered = [status["unanswered"] for each in workers for status in statuses(each)]
        assert max(unanswered) <= MOST_UNANSWERED
        assert 0 < spy.most_held <= 2 * CREDIT, "leases that ran out are not held twice"
    assert_orderly(leader, *workers)
    return params_hash


def a_host_that_sleeps(
    leader: Running, workers: list[Running], network: Proxy, spy: Spy, run_dir: Path
) -> None:
    """Workers say that it is gone, and it says itself that it slept; nobody rests for that."""
    began = time.monotonic()
    leader.signal(signal.SIGSTOP)
    for each in workers:
        await_status(each, lambda status: "host" in status["idle_because"])
    time.sleep(max(0.0, began + ASLEEP - time.monotonic()))
    leader.signal(signal.SIGCONT)
    leader.await_line("this machine slept, or the host stood still, for")
    for each in workers:
        each.await_line("the host is back")
    await_updates(run_dir, len(updates(run_dir)) + 1)
    assert not [line for line in leader.lines if "gone: silent" in line], leader.lines


def a_host_that_is_slow(
    leader: Running, workers: list[Running], network: Proxy, spy: Spy, run_dir: Path
) -> None:
    """It asks workers to say nothing that can wait, and nobody says a thing twice; when it is well
    again, so is all else."""
    began = time.monotonic()
    said = 0
    while time.monotonic() < began + SLOW_FOR or said < len(workers):
        assert time.monotonic() < began + DEADLINE, leader.lines
        leader.signal(signal.SIGSTOP)
        time.sleep(TURN - AWAKE)  # this is what it is slow by
        leader.signal(signal.SIGCONT)
        time.sleep(AWAKE)
        said = sum(any("slowed down by the host" in line for line in w.lines) for w in workers)
    ended = time.monotonic()
    leader.await_line("busy: the coordinator is")
    for each in workers:  # without them the run can't end before the host is well
        each.signal(signal.SIGSTOP)
    # What its pauses added to the broker's answers may have made them late: these are well again
    # only when they take half as long as that.
    network.behave(up=NEARER, down=NEARER)
    leader.await_line("no longer busy")
    for each in workers:
        each.signal(signal.SIGCONT)
    assert spy.sent_twice(began, ended) == 0


def a_broker_that_is_slow(
    leader: Running, workers: list[Running], network: Proxy, spy: Spy, run_dir: Path
) -> None:
    """Host and workers say after how long it answers, and the run goes on."""
    network.behave(up=SLOW_BROKER, down=SLOW_BROKER)
    leader.await_line("busy: the broker answers after")
    for each in workers:
        await_status(each, lambda status: "a broker that answers after" in status["idle_because"])
    await_updates(run_dir, len(updates(run_dir)) + 2)
    network.behave(up=NEARER, down=NEARER)
    leader.await_line("no longer busy")
