"""Real pools on a compiled run: of a worker with JAX, and of one that has Gymnasium alone."""

import re
import signal
from pathlib import Path

from tests.chaos.processes import host, updates, worker
from tests.worker.compiled.toys import TOYS

GYMNASIUM = "tests.worker.compiled.drift_gymnasium"
RUN = (
    *("jax:Drift-v0", "--hidden", "8", "--population", "128", "--updates", "100000"),
    *("--set", "centre.evaluate_every=5", "--allow-module", TOYS),
)


def test_a_worker_of_another_backend_takes_part_only_where_the_run_lets_it(tmp_path: Path) -> None:
    with host(*RUN, run_dir=tmp_path / "own") as (leader, url):
        with worker(url, tmp_path / "one", "--allow-module", GYMNASIUM) as refused:
            refused.await_line("no environment 'Drift-v0' of JAX is registered here")
            refused.signal(signal.SIGTERM)
            refused.await_end()
        assert not updates(tmp_path / "own")
        leader.signal(signal.SIGINT)
    equivalent = (*RUN, "--set", "environment.equivalent_backends=true")
    with (
        host(*equivalent, run_dir=tmp_path / "both") as (leader, url),
        worker(url, tmp_path / "one", "--allow-module", GYMNASIUM) as plain,
        worker(url, tmp_path / "two", "--allow-module", TOYS) as compiled,
    ):
        classes = {
            re.search(r"\(class ([0-9a-f]+)\)", each.await_line("(class ")).group(1)
            for each in (plain, compiled)
        }
        compiled.await_line("compiled by JAX")
        for each in (plain, compiled):
            each.await_line("counted in")
        leader.signal(signal.SIGINT)
        leader.await_end()
    assert len(classes) == 2  # so audits compare one with the other by tolerance alone
    assert updates(tmp_path / "both")
