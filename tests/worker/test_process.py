import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.worker import reference
from tests.worker.evaluating import (
    DEADLINE,
    EVERY,
    LANES,
    alive,
    assert_usable,
    cursed,
    members,
    processes,
    started,
    toy,
    until,
    whole,
)
from tests.worker.reference import TOYS, run_spec
from tests.worker.toy_environments import LONG
from worker.evaluation import pipe
from worker.evaluation.children import Evaluators
from worker.evaluation.jobs import EnvironmentUnavailable, Evaluation, WorkerFailure


async def test_prepared_children_may_be_closed_unused():
    evaluators = Evaluators()
    evaluators.prepare(2)
    await until(lambda: len(evaluators._children) == 2)
    pids = processes(evaluators)
    await evaluators.close()
    assert not any(alive(pid) for pid in pids)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
async def test_the_end_of_a_process_is_seen_though_what_it_started_goes_on():
    evaluators = await started(toy(trouble="fork", every=EVERY), 1)
    began = time.monotonic()
    found = await whole(evaluators, cursed())
    assert found.failed == ((cursed().first, "twice its process died (exit code 4)"),)
    assert time.monotonic() - began < LONG
    await evaluators.close()


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
async def test_closing_does_not_wait_for_what_a_process_started():
    evaluators = await started(toy(trouble="serve", every=EVERY), 1)
    job = asyncio.create_task(whole(evaluators, cursed()))
    await until(lambda: any(child.parts for child in evaluators._children))
    (pid,) = processes(evaluators)
    await until(lambda: children_of(pid) != [])
    began = time.monotonic()
    await evaluators.close()
    assert time.monotonic() - began < LONG / 2
    with pytest.raises(WorkerFailure):
        await job


async def test_an_environment_that_is_not_here_is_said_at_the_start():
    evaluators = Evaluators()
    with pytest.raises(EnvironmentUnavailable, match="did you mean CartPole-v1"):
        await evaluators.start(run_spec("CartPole-v9"), 2)
    assert not evaluators._children
    with pytest.raises(WorkerFailure):
        await whole(evaluators, members(0, 1))


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="stops a process")
async def test_the_first_child_that_is_ready_starts_and_others_join_it():
    told = list[tuple[int, float]]()
    evaluators = Evaluators(DEADLINE, on_ready=lambda: told.append((evaluators.ready, speed())))

    def speed() -> float:
        return evaluators.speed

    evaluators.prepare(2)
    await until(lambda: len(evaluators._children) == 2)
    slow = processes(evaluators)[0]
    os.kill(slow, signal.SIGSTOP)
    await evaluators.start(toy(), 2, [TOYS], lanes=LANES)
    assert [ready for ready, _ in told] == [1]
    await evaluators.set_theta(0, reference.theta(toy()), reference.normalization(toy()))
    await assert_usable(evaluators)
    os.kill(slow, signal.SIGCONT)
    await until(lambda: len(told) == 2)
    assert told[1][0] == 2 and told[1][1] > told[0][1] > 0
    assert len(evaluators.numeric_class) == 16
    await assert_usable(evaluators)
    await evaluators.close()


def children_of(pid: int) -> list[str]:
    """What a process has started, where the kernel tells."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [child for task in tasks for child in task.read_text().split()]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
async def test_a_throttled_child_uses_its_share_and_still_hears_and_says_that_it_lives():
    evaluators = await started(toy(), 1, share=0.1)
    evaluators.patience = 4.0
    (pid,) = processes(evaluators)
    told = list[Evaluation]()
    job = asyncio.create_task(evaluators.evaluate(members(0, 4000, episodes=1000), told.append))
    await until(lambda: bool(evaluators._children[0].parts))
    await asyncio.sleep(0.5)  # what the start cost is paid for
    began, used = time.monotonic(), cpu_seconds(pid)
    await asyncio.sleep(2.5)
    share = (cpu_seconds(pid) - used) / (time.monotonic() - began)
    assert 0.02 < share < 0.13  # less where the machine is busy
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert told and told[0].first == 0
    assert processes(evaluators) == [pid]
    await evaluators.close()


async def test_a_child_killed_before_it_is_ready_is_replaced_which_is_told():
    told = list[str]()
    evaluators = Evaluators(on_lost=told.append)
    evaluators.prepare(1)
    async with asyncio.timeout(DEADLINE):
        while not evaluators._children:
            await asyncio.sleep(0.01)  # between looks
    os.kill(processes(evaluators)[0], signal.SIGKILL)
    await evaluators.start(toy(), 1, [TOYS], lanes=LANES)
    await evaluators.close()
    assert told == [
        "an evaluation process was killed from outside (SIGKILL), by somebody or for want of memory"
    ]


HOLDER = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-m", "worker.evaluation.child"])
os.close(1)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
@pytest.mark.parametrize("end", ["of the pipe", "of the parent"])
async def test_a_child_ends_with_its_pipe_or_its_parent_whichever_is_first(end):
    requests, ours = os.pipe()
    replies, answers = os.pipe()
    parent = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=requests, stdout=answers)
    os.close(requests)
    os.close(answers)
    os.write(ours, pipe.frame(pipe.Configure(b"", (), 1.0)))
    header = await asyncio.to_thread(os.read, replies, pipe.HEADER)
    body = os.read(replies, pipe.length(header, 1000))
    assert isinstance(pipe.reply(body), pipe.Unavailable)
    if end == "of the parent":
        parent.kill()
    else:
        os.close(ours)
    nothing = asyncio.to_thread(os.read, replies, 1)  # once its last writer, the child, is gone
    assert await asyncio.wait_for(nothing, DEADLINE) == b""
    if end == "of the parent":
        os.close(ours)
    os.close(replies)
    parent.kill()
    parent.wait()


PARENT = """
import asyncio
from tests.worker import evaluating as t

async def main():
    evaluators = await t.started(t.toy(trouble="hang", every=t.EVERY), 1)
    asyncio.create_task(t.whole(evaluators, t.cursed()))
    await t.until(lambda: bool(evaluators._children[0].parts))
    print(t.processes(evaluators)[0], flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_children_die_with_a_session_leader_even_while_a_step_hangs():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        child = int(await asyncio.to_thread(parent.stdout.readline))
    assert alive(child)
    parent.kill()
    parent.wait()
    await until(lambda: not alive(child))
