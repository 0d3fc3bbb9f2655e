"""Sweeps with real processes: killed and gone on with, paused, with points that fail or stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol import spec as run_spec
from protocol import topics
from protocol.address import parse_address
from protocol.envelope import open_plain, plain
from protocol.link import Link
from protocol.messages import Here, Who
from tests.chaos.processes import (
    ROOT,
    Running,
    assert_orderly,
    await_updates,
    host,
    running,
    undisturbed_hash,
)

SHORT = """
base = "CartPole-v1"
seeds = 2
[set]
environment.max_steps = 40
policy.hidden = [4]
pool.task_seconds = 0.02
pool.minimum_task_seconds = 0.0
centre.episodes = 20
"""
TWO = SHORT + "[grid]\nstrategy.sigma = [0.05, 0.3]\n[budget]\nupdates = 12\n"


@contextlib.contextmanager
def sweeping(*arguments: str) -> Iterator[Running]:
    with running("shoal", "sweep", *arguments, "--local-workers", "1", "--port", "0") as process:
        yield process


def trained(text: str, path: Path, *arguments: str) -> Running:
    """A sweep that nobody disturbs, in the directory of this path."""
    file = path.with_suffix(".toml")
    file.write_text(text)
    with sweeping(str(file), "--dir", str(path), *arguments) as process:
        assert process.await_end() == 0, process.lines
    assert_orderly(process)
    return process


def states(directory: Path) -> list[tuple[str, int]]:
    """State and updates of the runs of a sweep, as its file has them."""
    with contextlib.closing(sqlite3.connect(directory / "sweep.sqlite")) as database:
        return database.execute(
            "SELECT state, (SELECT MAX(version) FROM curves c WHERE c.point = r.point "
            "AND c.seed = r.seed) FROM runs r ORDER BY point, place"
        ).fetchall()


def hashes(directory: Path) -> dict[str, str]:
    """What the runs of a sweep came to."""
    return {path.name: undisturbed_hash(path) for path in (directory / "runs").iterdir()}


def hash_of(run_dir: Path) -> str:
    """Of the parameters that a run returned."""
    from safetensors import safe_open

    with safe_open(run_dir / "policy.safetensors", framework="numpy") as file:
        return str(file.metadata()["params_hash"])


def test_a_host_killed_and_paused_comes_to_the_same_table(tmp_path: Path) -> None:
    quiet = tmp_path / "quiet"
    trained(TWO, quiet, "--parallel", "1")
    file, disturbed = tmp_path / "disturbed.toml", tmp_path / "disturbed"
    file.write_text(TWO)
    with sweeping(str(file), "--dir", str(disturbed), "--parallel", "2") as first:
        first.await_line("joined")
        (begun, *_) = sorted(path for path in (disturbed / "runs").iterdir())
        await_updates(begun, 3)
        first.signal_all(signal.SIGKILL)
        first.process.wait()
    assert "running" in {state for state, _ in states(disturbed)}
    with sweeping("resume", str(disturbed), "--parallel", "3") as second:
        run = (begun / "run").read_text().strip()
        at = re.search(r"at version (\d+)", second.await_line(f"resumed run {run}"))
        assert at is not None and int(at[1]) >= 3
        second.await_line(": finished")
        second.signal(signal.SIGINT)
        assert second.await_end() == 0, second.lines
    assert_orderly(second)
    with sweeping("resume", str(disturbed), "--json") as third:
        assert third.await_end() == 0, third.lines
    assert (disturbed / "report.csv").read_text() == (quiet / "report.csv").read_text()
    assert {state for state, _ in states(disturbed)} == {"finished"}
    assert third.last_json()["over"] and len(third.last_json()["points"]) == 2
    for name, expected in hashes(disturbed).items():
        assert hash_of(disturbed / "runs" / name) == expected
    assert (disturbed / "plots" / "parallel.png").stat().st_size > 1000
    assert (disturbed / "plots" / "factor-strategy.sigma.png").stat().st_size > 1000


async def test_its_runs_ask_workers_for_what_it_is_worth(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(TWO.replace("updates = 12", "updates = 1_000"))
    heard: list[Here] = []

    def hear(_: str, payload: bytes) -> None:
        here = open_plain(payload)
        assert isinstance(here, Here)
        heard.append(here)

    with sweeping(str(file), "--dir", str(tmp_path / "led"), "--priority", "2.5") as process:
        address = parse_address(process.await_line("volunteers join with:").split()[-1])
        link = Link(address, client_id="spy", on_message=hear, subscriptions={topics.HERE: 0})
        asking = asyncio.create_task(link.run())
        async with asyncio.timeout(60):
            while len({here.run for here in heard}) < 2:
                link.publish(topics.WHO, plain(Who()))
                await asyncio.sleep(0.1)
        await link.close()
        await asking
    assert {here.priority for here in heard} == {2.5}


def test_the_example_is_trained_stopped_early_and_looked_at(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "sweep.toml").read_text()
    for said, shorter in (
        ("updates = 20", "updates = 8"),
        ("seeds = 3", "seeds = [5]"),
        ("hidden = [16]", "hidden = [4]\nenvironment.max_steps = 30"),
        ("population = [32, 64]", "population = [32]"),
        ('["normalised", "adam"]', '["adam"]'),
    ):
        assert said in text
        text = text.replace(said, shorter)
    directory = tmp_path / "example"
    ended = trained(text, directory, "--parallel", "3")
    assert any(line.startswith("3 of 3 points (2 stopped), 1 of ") for line in ended.lines)

    with running("shoal", "sweep", "status", str(directory), "--json") as looked:
        assert looked.await_end() == 0
    points = looked.last_json()["points"]
    assert [point["state"] for point in points] == ["finished", "stopped", "stopped"]
    assert [point["updates"] for point in points] == [8, 2, 1]

    best = tmp_path / "best.toml"
    with running("shoal", "sweep", "best", str(directory), "--out", str(best)) as took:
        assert took.await_end() == 0
    spec = run_spec.parse(run_spec.load(best))
    assert spec.strategy.sigma == points[0]["settings"]["strategy.sigma"] and spec.name == "example"
    with host(str(best), "--updates", "1", run_dir=tmp_path / "run") as (again, _):
        assert again.process.poll() is None
    with running("shoal", "sweep", "plot", str(directory), "--format", "svg") as drawn:
        assert drawn.await_end() == 0 and len(drawn.lines) == 2
    assert all("<svg" in Path(line).read_text()[:500] for line in drawn.lines)


def test_a_point_that_fails_is_told_and_one_that_learns_nothing_is_stopped(tmp_path: Path) -> None:
    text = SHORT.replace("seeds = 2", "seeds = 1").replace("max_steps = 40", "max_steps = 100")
    text += "[[list]]\nstrategy.sigma = 0.1\n[[list]]\nstrategy.sigma = -1\n"
    text += "[[list]]\noptimizer.learning_rate = 1e-6\n[budget]\nupdates = 40\n"
    text += '[stop]\nrule = "median"\nrungs = 1\nleast = 1\n'
    directory = tmp_path / "mixed"
    ended = trained(text, directory, "--json", "--parallel", "1")
    finished, stopped, failed = ended.last_json()["points"]
    told = [(point["state"], point["updates"]) for point in (finished, stopped, failed)]
    assert told == [("finished", 40), ("stopped", 20), ("failed", 0)]
    assert finished["mean"] > 50 > stopped["mean"]
    assert any("fails: strategy.sigma is -1" in line for line in ended.lines)
    made = states(directory)
    assert made[:2] == [("finished", 40), ("failed", None)]
    assert made[2][1] < 40, "its run went on though its point was stopped"


def test_a_sweep_that_is_over_grows_by_points_and_seeds(tmp_path: Path) -> None:
    text = SHORT.replace("seeds = 2", "seeds = [4]") + "[budget]\nupdates = 2\n"
    directory, more = tmp_path / "small", tmp_path / "more.toml"
    trained(text + "[grid]\nstrategy.sigma = [0.1]\n", directory)
    before = (directory / "report.csv").read_text().splitlines()[1]
    log = next((directory / "runs").iterdir()) / "log.sqlite"
    stamp = log.stat().st_mtime_ns
    text = text.replace("seeds = [4]", "seeds = [2, 4]")
    more.write_text(text + "[grid]\nstrategy.sigma = [0.1, 0.2]\n")
    with sweeping("resume", str(directory), "--file", str(more)) as process:
        assert process.await_end() == 0, process.lines
    assert any("1 more points, 1 more runs of earlier ones" in line for line in process.lines)
    assert states(directory) == [("finished", 2)] * 4
    assert log.stat().st_mtime_ns == stamp  # it was not touched
    rows = [line.split(",") for line in (directory / "report.csv").read_text().splitlines()[1:]]
    assert sorted(row[5] for row in rows) == ["2", "2", "4", "4"]
    assert before.split(",")[5:7] in [row[5:7] for row in rows]


def test_a_sweep_that_cannot_begin_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(TWO)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = ("sweep", str(path), "--dir", str(tmp_path / "two"), "--port", port)
        with running("shoal", *arguments) as process:
            assert process.await_end() == 2, process.lines
    assert any("another program listens there" in line for line in process.lines)
    assert not (tmp_path / "two").exists()


USES = {
    "": "SWEEP.toml",
    "nowhere.toml": "no sweep file",
    "run": "Missing argument",
    "stauts nowhere": "unexpected extra argument",
    "sweep.toml --parallel 0": "--parallel",
    "sweep.toml --parallel many": "--parallel",
    "sweep.toml --local-workers many": "--local-workers 'many'",
    "sweep.toml --broker ftp://somewhere --dir new": "ftp://somewhere",
    "sweep.toml --port 70000": "70000",
    "sweep.toml --dir taken": "is not empty",
    "wrong.toml": "no point can be trained: strategy.sigma",
    "misspelt.toml": "no point can be trained: unknown field",
    "unknown.toml": "NoSuchThing-v0",
    "without.toml": "base.toml",
    "resume nowhere": "nowhere holds no sweep",
    "resume": "Missing argument",
    "status nowhere": "nowhere holds no sweep",
    "status nowhere --json --csv": "give one of them",
    "best nowhere": "nowhere holds no sweep",
    "best nowhere --out best.txt": "end it in .toml",
    "plot nowhere": "nowhere holds no sweep",
    "plot nowhere --format gif": "must be one of png",
}


@pytest.mark.parametrize("use", USES)
def test_a_wrong_use_is_one_line(
    use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import shoal
    from protocol.command import run

    monkeypatch.chdir(tmp_path)
    good = TWO.replace("strategy.sigma", "{}").replace("[0.05, 0.3]", "{}")
    for name, field, values in (
        ("sweep", "strategy.sigma", "[0.1]"),
        ("wrong", "strategy.sigma", "[-1, 0]"),
        ("misspelt", "strategy.sigmo", "[1, 2]"),
    ):
        Path(f"{name}.toml").write_text(good.format(field, values))
    Path("unknown.toml").write_text(TWO.replace("CartPole-v1", "NoSuchThing-v0"))
    Path("without.toml").write_text(TWO.replace("CartPole-v1", "base.toml"))
    Path("taken").mkdir()
    Path("taken/mine").write_text("mine")
    code = run(shoal.app, ["sweep", *use.split()])
    said = capsys.readouterr()
    assert code not in (0, None)
    text = said.err if use else said.out
    assert USES[use] in text, text
    if use:
        assert said.err.startswith("error: ") and said.err.count("\n") == 1
    assert not Path("sweeps").exists(), json.dumps([str(p) for p in Path("sweeps").rglob("*")])
    assert [path.name for path in Path("taken").iterdir()] == ["mine"]
