"""The host's commands as a user meets them: one line for a mistake, and an orderly end."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import shoal
from coordinator.directory import BrokerChoice, RunDirectory
from coordinator.host import load, prepare
from tests.coordinator.runs import spec_of
from tests.protocol.mosquitto import Mosquitto

ROOT = Path(__file__).parent.parent.parent
DEADLINE = 30.0


@dataclass
class Place:
    """What mistakes are made with: a directory, and a port that somebody else has."""

    directory: Path
    listener: socket.socket = field(default_factory=socket.socket)

    def __post_init__(self) -> None:
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        (self.directory / "taken").mkdir()
        (self.directory / "taken" / "run").write_text("other-11111111\n")
        (self.directory / "full").mkdir()
        (self.directory / "full" / "thesis.txt").touch()
        (self.directory / "garbage.key").write_text("no key at all")
        (self.directory / "broken.toml").write_text("[environment\n")

    @property
    def port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port

    def at(self, name: str) -> str:
        return str(self.directory / name)


def host(*options: str) -> list[str]:
    return ["host", "CartPole-v1", "--broker", "embedded", "--port", "0", *options]


Mistake = tuple[Callable[[Place], list[str]], str]

IN_WORDS: dict[str, Mistake] = {
    "no run file": (lambda p: ["host", "nowhere.toml"], "no run file nowhere.toml"),
    "broken run file": (lambda p: ["host", p.at("broken.toml")], "is not valid TOML"),
    "unknown policy": (lambda p: host("--policy", "transformer"), "one of 'linear', 'mlp'"),
    "unknown optimizer": (lambda p: host("--optimizer", "lion"), "optimizer.kind is 'lion'"),
    "odd population": (lambda p: host("--population", "7"), "strategy.population is 7"),
    "negative sigma": (lambda p: host("--sigma", "-1"), "strategy.sigma is -1.0"),
    "quorum above 1": (lambda p: host("--quorum", "2"), "pool.quorum is 2.0"),
    "seed too large": (lambda p: host("--seed", str(2**64)), "seed is"),
    "unknown preset of the pool": (
        lambda p: host("--pool", "wild"),
        "--pool 'wild': must be one of sync, quorum, async",
    ),
    "widths that are words": (lambda p: host("--hidden", "a,b"), "--hidden 'a,b'"),
    "impossible name": (lambda p: host("--name", "My Run"), "name is 'My Run'"),
    "unknown field": (lambda p: host("--set", "pool.quorumm=1"), "did you mean `quorum`"),
    "malformed field": (lambda p: host("--set", "quorum"), "section.field=value"),
    "no key file": (lambda p: host("--key", p.at("none.key")), "none.key"),
    "key file of garbage": (lambda p: host("--key", p.at("garbage.key")), "holds no identity"),
    "directory that is not empty": (lambda p: host("--run-dir", p.at("full")), "is not empty"),
    "directory below a file": (
        lambda p: host("--run-dir", p.at("broken.toml/below")),
        "can't be used (Not a directory)",
    ),
    "unknown broker": (
        lambda p: ["host", "CartPole-v1", "--broker", "rabbit", "--run-dir", p.at("1")],
        "broker 'rabbit'",
    ),
    "malformed URL": (
        lambda p: ["host", "CartPole-v1", "--broker", "mqtt://host:99999", "--run-dir", p.at("2")],
        "99999",
    ),
    "nothing to train": (lambda p: ["host"], "what should be trained?"),
    "resume of nothing": (lambda p: ["host", "--resume", p.at("none")], "holds no run"),
    "resume of something else": (lambda p: ["host", "--resume", p.at("full")], "holds no run"),
    "resume of a file": (lambda p: ["host", "--resume", p.at("broken.toml")], "holds no run"),
    "resume of a run that was not begun": (
        lambda p: ["host", "--resume", p.at("taken")],
        "was never begun",
    ),
    "resume with another setting": (
        lambda p: ["host", "--resume", p.at("taken"), "--sigma", "1", "--set", "pool.quorum=0.5"],
        "so strategy.sigma, pool.quorum=0.5 can't be given: shoal fork",
    ),
    "resume with an environment": (
        lambda p: ["host", "CartPole-v1", "--resume", p.at("taken")],
        "so CartPole-v1 can't be given: shoal fork",
    ),
    "resume with a preset of the pool": (
        lambda p: ["host", "--resume", p.at("taken"), "--pool", "async"],
        "so --pool async can't be given: shoal fork",
    ),
    "resume with a preset": (
        lambda p: ["host", "--resume", p.at("taken"), "--preset", "none"],
        "so --preset none can't be given: shoal fork",
    ),
    "standby with a preset of the pool": (
        lambda p: ["host", "--standby", "mqtt://127.0.0.1:1/a", "--pool", "async"],
        "leave out --pool",
    ),
    "standby with a preset": (
        lambda p: ["host", "--standby", "mqtt://127.0.0.1:1/a", "--preset", "none"],
        "leave out --preset",
    ),
    "unknown preset, demo": (
        lambda p: ["demo", "--preset", "Nowhere"],
        "no preset for 'Nowhere': there are",
    ),
    "demo with an unknown preset of the pool": (
        lambda p: ["demo", "--pool", "wild"],
        "--pool 'wild': must be one of",
    ),
    "resume elsewhere": (
        lambda p: ["host", "--resume", p.at("taken"), "--run-dir", p.at("new")],
        "names the directory already",
    ),
    "delegate that is no fingerprint": (
        lambda p: host("--delegate", "my-friend"),
        "'my-friend' is no fingerprint of a key",
    ),
    "demo over a URL": (
        lambda p: ["demo", "--broker", "mqtt://127.0.0.1:1"],
        "the demo starts its own",
    ),
}
"""What is wrong before anything has begun."""

IN_DEED: dict[str, Mistake] = {
    "unknown environment": (lambda p: ["host", "NoSuchThing-v0"], "NoSuchThing-v0"),
    "unknown environment, demo": (lambda p: ["demo", "NoSuchThing-v0"], "NoSuchThing-v0"),
    "port in use": (
        lambda p: ["host", "CartPole-v1", "--broker", "embedded", "--port", str(p.port)],
        "another program listens there",
    ),
    "unreachable broker": (
        lambda p: ["host", "CartPole-v1", "--broker", "mqtt://127.0.0.1:1"],
        "no broker can be reached at mqtt://127.0.0.1:1",
    ),
    "directory of another run": (
        lambda p: host("--run-dir", p.at("taken")),
        "already holds the run other-11111111",
    ),
}
"""What is tried in a process of its own."""


@dataclass
class Done:
    code: int
    out: str
    err: str


async def run(arguments: list[str], directory: Path) -> Done:
    """A `shoal` command in an empty working directory, to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "shoal.py"),
        *arguments,
        cwd=directory,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DEADLINE):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        raise
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), err.decode())


def assert_one_line(code: int, out: str, err: str, message: str) -> None:
    lines = err.splitlines()
    assert code == 2 and out == "", err
    assert lines[-1].startswith("error: ") and message in lines[-1], err
    # Before it, at most what the command was about to do.
    assert all(line.startswith("run cartpole-v1-") for line in lines[:-1]), err


@pytest.mark.parametrize("case", IN_WORDS)
def test_mistake_in_words_is_one_line_and_an_exit_code(
    case: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make, message = IN_WORDS[case]
    monkeypatch.setattr(sys, "argv", ["shoal", *make(Place(tmp_path))])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        shoal.main()
    said = capsys.readouterr()
    assert_one_line(int(str(ended.value.code)), said.out, said.err, message)


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """All of IN_DEED at once: most of each is waiting, or the start of a process."""
    place = Place(tmp_path_factory.mktemp("mistakes"))

    async def try_all() -> list[Done]:
        directories = [tmp_path_factory.mktemp("work") for _ in IN_DEED]
        commands = [make(place) for make, _ in IN_DEED.values()]
        return await asyncio.gather(*map(run, commands, directories))

    return dict(zip(IN_DEED, asyncio.run(try_all()), strict=True))


@pytest.mark.parametrize("case", IN_DEED)
def test_mistake_in_deed_is_one_line_and_an_exit_code(case: str, tried: dict[str, Done]) -> None:
    done = tried[case]
    assert_one_line(done.code, done.out, done.err, IN_DEED[case][1])


async def test_broker_that_refuses_is_named_with_the_remedy(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path, "allow_anonymous false")
    broker.start()
    try:
        done = await run(["host", "CartPole-v1", "--broker", broker.url], tmp_path)
    finally:
        broker.kill()
    assert done.code == 2
    assert "does not authorise anonymous clients: give user:password@" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("number", "word"),
    [(signal.SIGINT, "stopped"), (signal.SIGTERM, "paused"), (signal.SIGHUP, "paused")],
)
async def test_signal_ends_or_pauses_a_run_orderly(
    number: signal.Signals, word: str, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "shoal.py"),
        *host("--run-dir", "kept", "--json"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    said = ""
    try:
        async with asyncio.timeout(DEADLINE):
            while "volunteers join with" not in said:
                line = await process.stderr.readline()
                assert line, said
                said += line.decode()
            process.send_signal(number)
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0
    assert "Traceback" not in err.decode()
    assert f"{word} by the host ({number.name})" in err.decode()
    assert "host --resume kept" in err.decode()
    summary = json.loads(out.decode().splitlines()[-1])
    assert not summary["solved"] and summary["updates"] == 0
    assert (tmp_path / "kept" / "policy.safetensors").exists()
    words = next(line for line in said.splitlines() if "volunteers" in line).split()
    assert words[3:5] == ["shoal", "join"] and words[5].startswith("mqtt://127.0.0.1:")
    assert len(words) == 6


async def test_key_that_is_used_again_names_the_run_again(tmp_path: Path) -> None:
    """Two runs with one key have one name; the second hears the first and leaves it alone."""
    first = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "shoal.py"),
        *host("--run-dir", "first"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert first.stderr is not None
    try:
        async with asyncio.timeout(DEADLINE):
            line = b""
            while b"volunteers join with" not in line:
                line = await first.stderr.readline()
                assert line
        url = line.decode().split()[-1].rpartition("/")[0]
        key = str(tmp_path / "first" / "run.key")
        done = await run(["host", "CartPole-v1", "--broker", url, "--key", key], tmp_path)
        assert done.code == 2
        assert "is led at" in done.err and "Traceback" not in done.err
        assert first.returncode is None
    finally:
        first.kill()
        await first.communicate()


async def test_broker_that_was_not_there_is_not_come_back_to(tmp_path: Path) -> None:
    begun = prepare(spec_of(), tmp_path / "run")
    load(begun, print).log.close()
    begun.directory.remember(BrokerChoice(port=1234))
    begun.directory.close()
    nowhere = ["host", "--resume", str(tmp_path / "run"), "--broker", "mqtt://127.0.0.1:1"]
    assert "no broker can be reached" in (await run(nowhere, tmp_path)).err
    with closing(RunDirectory.open(tmp_path / "run")) as directory:
        assert directory.remembered() == BrokerChoice(port=1234)
