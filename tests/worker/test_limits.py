"""What a volunteer's machine does at most: more is refused, ended or not looked at, and told."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from protocol import messages, topics
from protocol.envelope import plain
from tests.worker.evaluating import DEADLINE
from tests.worker.reference import TOYS, run_spec
from tests.worker.test_session import Desk, done, host_of
from worker import limits
from worker.evaluation import memory
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import EnvironmentUnavailable
from worker.limits import Limits, too_long

ENDLESS = run_spec("ToyEndless-v0")


def test_a_policy_with_too_many_parameters_is_no_run_for_this_machine():
    host = host_of()
    desk = Desk(host, limits=Limits(parameters=host.spec.size - 1))
    desk.connected()
    desk.hears_epoch()
    assert desk.left is not None and desk.left.code == 3
    assert f"this worker takes at most {host.spec.size - 1:,}" in desk.left.text
    assert not desk.started
    desk = Desk(host, limits=Limits(parameters=host.spec.size))
    desk.connected()
    desk.hears_epoch()
    assert desk.left is None and desk.started


def test_a_task_that_takes_too_long_is_given_back_with_what_is_finished_of_it():
    host = host_of()
    desk = Desk(host, limits=Limits(task_seconds=20.0))
    desk.welcomed()
    desk.is_told(host.task())
    (job,) = desk.jobs
    desk.pass_time(19.0)
    assert not desk.abandoned
    desk.pass_time(1.5)
    assert desk.abandoned == [job.task]
    assert "(--task-limit)" in desk.warnings
    desk.pass_time(30.0)
    assert desk.abandoned == [job.task] and desk.warnings.count("--task-limit") == 1
    first = replace(done(job), returns=np.ones((1, 2)), lengths=np.ones((1, 2), np.int64))
    desk.obey(desk.session.evaluated(job.task, first, desk.now))
    desk.obey(desk.session.abandoned(job.task, desk.now))
    (result,), (refusal,) = desk.told(messages.Result), desk.told(messages.Refusal)
    assert result.count == 1 and result.part is not None
    assert (refusal.task, refusal.cause) == (job.task, "handed-back")
    desk.is_told(host.task())
    assert len(desk.jobs) == 2, "the next one is worked on"


def test_a_false_server_keeps_neither_the_coordinator_nor_another_server_from_being_heard(
    monkeypatch,
):
    monkeypatch.setattr(limits, "HEARD_AT_ONCE", 50.0)
    monkeypatch.setattr(limits, "SERVED_AT_ONCE", 20.0)
    monkeypatch.setattr(limits, "SERVED_PER_SECOND", 1.0)
    host = host_of(12)
    desk = Desk(host)
    desk.welcomed()
    manifest, chunks = host.snapshot()
    liar, honest = (topics.peer(letter * 16, "aaaaaa") for letter in "bc")
    us = desk.session.handshake.peer
    offer = msgspec.structs.replace(manifest, servers=(liar, honest))
    desk.hears(desk.inbox, host.signed("manifest", offer))
    for _ in range(500):
        desk.hears(topics.snapshot(host.run, liar, us), plain(messages.Chunk(12, 0, b"false")))
    desk.hears(topics.snapshot(host.run, honest, us), plain(messages.Chunk(12, 0, chunks[0])))
    assert desk.session.view(desk.now).version == 12
    desk.is_told(host.task())
    assert len(desk.jobs) == 1


def test_who_sends_too_much_is_not_looked_at_any_more(monkeypatch):
    monkeypatch.setattr(limits, "HEARD_AT_ONCE", 50.0)
    monkeypatch.setattr(limits, "HEARD_PER_SECOND", 10.0)
    monkeypatch.setattr(limits, "ASKED_AT_ONCE", 5.0)
    monkeypatch.setattr(limits, "ASKED_PER_SECOND", 1.0)
    host = host_of()
    desk = Desk(host)
    desk.welcomed()
    us, stranger = desk.session.handshake.peer, topics.peer("b" * 16, "aaaaaa")
    for _ in range(500):
        desk.hears(topics.ask(host.run, us, stranger), plain(messages.Latest(0)))
    desk.is_told(host.task())
    assert len(desk.jobs) == 1, "peers don't keep the coordinator from being heard"
    for _ in range(500):
        desk.hears_beat(host.beat())
        desk.hears(desk.inbox, host.signed("manifest", host.snapshot()[0]))
    desk.is_told(host.task())
    assert len(desk.jobs) == 2, "what is sealed is heard"
    host.grow(1)
    desk.hears(desk.inbox, host.update(0))
    assert desk.session.view(desk.now).version == 0
    desk.hears(topics.update(host.run), host.update(0))
    assert desk.session.view(desk.now).version == 1, "a flood of one kind hides none of another"


def test_forged_messages_hide_no_sealed_one():
    host = host_of()
    desk = Desk(host)
    desk.welcomed()
    forged = bytearray(host.sealed(host.task()))
    forged[5] ^= 1
    for _ in range(30_000):
        desk.hears(desk.inbox, bytes(forged))
    desk.is_told(host.task())
    assert len(desk.jobs) == 1


@pytest.mark.parametrize(
    ("steps", "most", "fits"), [(500, 500, True), (501, 500, False), (0, 500, False)]
)
def test_episodes_that_may_last_too_long_are_told(steps: int, most: int, fits: bool):
    told = too_long("Some-v0", steps, most)
    assert (told == "") is fits
    assert fits or "--episode-limit" in told
    assert not too_long("Some-v0", steps, limits.LONGEST_EPISODE)


async def test_a_process_plays_no_episodes_that_may_last_too_long():
    evaluators = Evaluators(DEADLINE)
    with pytest.raises(
        EnvironmentUnavailable, match=r"may last 10,000,000 steps, .* at most 1,000"
    ):
        await evaluators.start(ENDLESS, 1, [TOYS], lanes=8, longest=1000)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
async def test_a_process_that_evaluates_is_bound_by_the_kernel():
    evaluators = Evaluators(DEADLINE, memory_limit=1 << 30)
    await evaluators.start(run_spec("ToyWalk-v0"), 1, [TOYS], device="auto", lanes=8)
    (child,) = evaluators._children
    bound, _ = resource.prlimit(child.process.pid, resource.RLIMIT_DATA)
    await evaluators.close()
    assert bound == (1 << 30) + memory.RESERVED


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_the_kernel_refuses_a_process_what_all_memory_would_go_for():
    code = (
        "import numpy as np\n"
        "from worker.evaluation import memory\n"
        "memory.bound(100 << 20)\n"
        "kept = np.ones(200 << 20, np.uint8)\n"
        "try:\n"
        "    np.empty(memory.RESERVED + (300 << 20), np.uint8)\n"
        "except MemoryError:\n"
        "    print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "refused\n", done.stderr
