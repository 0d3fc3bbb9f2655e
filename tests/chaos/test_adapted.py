"""A host that is killed while a strategy adapts sigmas: they, and its memory, come back."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

from coordinator.history.verify import verify_directory
from tests.chaos.processes import await_updates, host, resumed, undisturbed_hash, worker

RUN = ("CartPole-v1", "--seed", "3", "--updates", "6", "--normalize", "--policy", "linear")
RUN += ("--strategy", "sep-cma")
RUN += ("--population", "20", "--sigma", "1", "--set", "stop.target=1e9")
RUN += ("--set", "environment.max_steps=60", "--set", "centre.screening=60")


def test_a_host_killed_while_sigmas_adapt_leads_to_the_same_end(tmp_path: Path) -> None:
    undisturbed = undisturbed_hash(tmp_path / "undisturbed", *RUN)
    run_dir = tmp_path / "run"
    with ExitStack() as stack:
        leader, url = stack.enter_context(host(*RUN, run_dir=run_dir))
        workers = [stack.enter_context(worker(url, tmp_path / "home"))]
        leader.await_line("joined")
        await_updates(run_dir, 3)
        leader.signal(signal.SIGKILL)
        leader.process.wait()
        # Who joins now has to come to sigmas that it has not seen adapt.
        workers.append(stack.enter_context(worker(url, tmp_path / "late")))
        leader = stack.enter_context(resumed(run_dir))
        leader.await_line("resumed run ")
        assert leader.await_end() == 0, leader.lines
        assert leader.last_json()["params_hash"] == undisturbed
        assert [each.await_end() for each in workers] == [0] * len(workers)
    assert verify_directory(run_dir, (), lambda version, of: None).sound
