from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocol.address import parse_address
from protocol.errors import ShoalError
from protocol.nearby import Nearby
from tests.protocol.mosquitto import Mosquitto
from tests.worker.reference import run_spec
from tests.worker.scripted import Host
from tests.worker.terminal import ROOT, Terminal
from tests.worker.test_daemon import coordinating
from worker.names import label_of
from worker.wizard import _chosen

LINE = "mqtt://host:1883/test-00000000#" + "a" * 26


@dataclass
class Led:
    """A run that a real host leads, over a broker that asks for a token."""

    directory: Path
    url: str

    @property
    def key(self) -> str:
        return self.url.partition("#")[2].partition(".")[0]

    @property
    def token(self) -> str:
        made = subprocess.run(
            [sys.executable, "-m", "shoal", "invite", str(self.directory)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        found = re.search(r"shoal-invite-[a-z2-7]{52}", made.stdout)
        assert found is not None, made.stdout
        return found[0]


@pytest.fixture(scope="module")
def led(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Led]:
    directory = tmp_path_factory.mktemp("host") / "run"
    command = ["host", "CartPole-v1", "--bind", "0.0.0.0", "--advertise", "127.0.0.1"]
    command += ["--port", "0", "--admission", "invite", "--run-dir", str(directory)]
    host = subprocess.Popen(
        [sys.executable, "-m", "shoal", *command, "--set", "pool.task_seconds=0.2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert host.stdout is not None
        for line in host.stdout:
            if "volunteers join with:" in line:
                yield Led(directory, line.split("shoal join ")[1].split()[0])
                break
        else:
            pytest.fail("the host leads nothing")
    finally:
        host.send_signal(signal.SIGTERM)
        assert host.stdout is not None
        host.communicate(timeout=30)


def test_a_few_answers_join_a_run_and_are_kept(led: Led, tmp_path: Path) -> None:
    home, token = tmp_path / "home", led.token
    with Terminal("join", SHOAL_HOME=str(home), SHOAL_LANES="8") as terminal:
        number = terminal.until(rf"(\d+)  CartPole-v1  \S+ at {re.escape(broker_of(led.url))}")[1]
        terminal.until(r"numbers \[1\]: ")
        terminal.type("mqtt://127.0.0.1:1")
        terminal.until(r"broker unreachable at mqtt://127.0.0.1:1 ")
        terminal.until(r"numbers \[mqtt://127.0.0.1:1\]: ")
        terminal.type(number)
        terminal.until(r"lets in only whom its host knows")
        terminal.until(r"Token .*: ")
        terminal.type("shoal-invite-nothing")
        terminal.until(r"is none: it begins with shoal-invite-")
        terminal.until(r"Token .*: ")
        terminal.type("shoal-invite-" + "a" * 52)
        terminal.until(r"does not take the invite")
        terminal.until(r"Token .*: ")
        terminal.type(token)
        terminal.until(r"broker reached in [\d,]+ ms; TLS, with the certificate of the join line")
        terminal.until(r"CartPole-v1, 226 parameters")
        terminal.until(rf"led by the key {led.key}")
        terminal.until(r"Is that the key .*: ")
        terminal.type("")
        terminal.until(r"Cores to lend: .*\[auto\]: ")
        terminal.type("99999")
        terminal.until(r"must be all, auto, or a number from 1")
        terminal.type("1")
        label = terminal.until(r"Name that the host sees \[([a-z]+-[a-z]+)\]: ")[1]
        terminal.type("")
        terminal.until(r"Saved in ")
        terminal.until(rf"worker {label} \([a-z2-7]{{16}}\) joins")
        terminal.until(r"its trial episodes, played twice, agree")
        terminal.until(r"welcomed at version")
        terminal.until(r"this machine's clock agrees with the host's")
        terminal.interrupt()
        assert terminal.ends() == 0
        assert token not in terminal.shown
    file = home / "worker.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    kept = tomllib.loads(file.read_text())
    assert kept == {"url": led.url, "invite": token, "cores": "1"}
    with Terminal("join", SHOAL_HOME=str(home), SHOAL_LANES="8") as again:
        again.until(rf"worker {label} ")
        again.until(r"as the join line says")
        again.interrupt()
        again.interrupt()
        assert again.ends() == 0


def test_another_key_than_the_hosts_is_not_taken(led: Led, tmp_path: Path) -> None:
    bare = f"{led.url.partition('#')[0]}#.{led.url.rpartition('.')[2]}"
    with Terminal("join", SHOAL_HOME=str(tmp_path / "home"), SHOAL_INVITE=led.token) as terminal:
        terminal.until(r"\]: ")
        terminal.type(f"shoal join {bare}")
        terminal.until(rf"led by the key {led.key}")
        terminal.until(r"Is that the key .*: ")
        terminal.type("n")
        terminal.until(r"\]: ")
        assert terminal.quits() == 130
    assert not (tmp_path / "home").exists()


async def test_of_several_runs_one_is_chosen(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    broker.start()
    one, two = Host(run_spec("ToyWalk-v0", name="one")), Host(run_spec("ToyWalk-v0", name="two"))

    def answer() -> None:
        with Terminal("join", "--cores", "1", SHOAL_HOME=str(tmp_path / "home")) as terminal:
            terminal.until(r"\]: ")
            terminal.type("http://host")
            terminal.until(r"does not begin with mqtt://")
            terminal.until(r"\]: ")
            terminal.type(broker.url)
            terminal.until(r"broker reached in .*whoever is on the way can read along")
            terminal.until(rf"1  {one.run}")
            number = terminal.until(rf"(\d)  {two.run}")[1]
            terminal.until(r"Which run, or all of them in turn \[1\]: ")
            terminal.type("3")
            terminal.until(r"'3': it must be all, or a number from 1 to 2")
            terminal.until(r"Which run, or all of them in turn \[1\]: ")
            terminal.type(number)
            terminal.until(rf"run {two.run}: ToyWalk-v0")
            terminal.until(r"Is that the key .*: ")
            terminal.type("yes")
            terminal.until(r"Name that the host sees .*: ")  # cores are said already
            terminal.type("my machine")
            terminal.until(r"Saved in ")
            terminal.until(r"worker my machine \(")
            terminal.process.terminate()
            terminal.ends()

    try:
        async with coordinating(one, broker.url), coordinating(two, broker.url):
            await asyncio.to_thread(answer)
    finally:
        broker.kill()
    kept = tomllib.loads((tmp_path / "home" / "worker.toml").read_text())
    key = two.identity.fingerprint
    assert kept == {"url": f"{broker.url}/{two.run}#{key}", "name": "my machine"}


async def test_all_runs_at_a_broker_may_be_chosen(tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    broker.start()
    hosts = [Host(run_spec("CartPole-v1", name=name), seed) for seed, name in enumerate("ab")]

    def answer() -> None:
        options = ("--cores", "1", "--name", "mine")
        with Terminal("join", *options, SHOAL_HOME=str(tmp_path / "home")) as terminal:
            terminal.until(r"\]: ")
            terminal.type(broker.url)
            terminal.until(r"Which run, or all of them in turn \[1\]: ")
            terminal.type("all")
            terminal.until(r"Saved in ")
            terminal.until(r"joins all runs at")
            terminal.process.terminate()
            terminal.ends()

    try:
        async with coordinating(hosts[0], broker.url), coordinating(hosts[1], broker.url):
            await asyncio.to_thread(answer)
    finally:
        broker.kill()
    kept = tomllib.loads((tmp_path / "home" / "worker.toml").read_text())
    assert kept == {"url": broker.url}


def test_a_token_is_typed_unseen(tmp_path: Path) -> None:
    token = "shoal-invite-" + "a" * 52
    with Terminal("worker", "config", "set", "invite", SHOAL_HOME=str(tmp_path)) as terminal:
        terminal.until(r"invite \(it is not shown\): ")
        terminal.type(token)
        assert terminal.ends() == 0
        assert "invite = ***" in terminal.shown
        assert token not in terminal.shown
    assert tomllib.loads((tmp_path / "worker.toml").read_text()) == {"invite": token}


def test_ctrl_c_keeps_nothing(tmp_path: Path) -> None:
    with Terminal("join", SHOAL_HOME=str(tmp_path / "home")) as terminal:
        terminal.until(r"join line \[|numbers \[1\]")
        assert terminal.quits() == 130
        assert "Traceback" not in terminal.shown
    assert not (tmp_path / "home").exists()


def test_without_a_terminal_it_says_what_to_give(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "shoal", "join", "--home", str(tmp_path / "home")],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: which run? Give the line that its host prints: shoal join ")
    assert not (tmp_path / "home").exists()


def broker_of(url: str) -> str:
    return parse_address(url).broker


def test_what_is_typed_may_be_a_whole_line_or_a_number() -> None:
    nearby = [Nearby(parse_address(LINE), "CartPole-v1")]
    assert _chosen("1", nearby) == LINE
    assert _chosen(f"SHOAL_INVITE=TOKEN shoal join {LINE}  (the token is in x)", []) == LINE
    assert _chosen(LINE, []) == LINE
    for typed in ("0", "2", "9" * 5000, "http://host", ""):
        with pytest.raises(ShoalError):
            _chosen(typed, nearby)


def test_labels_are_of_the_key() -> None:
    assert label_of("a" * 16) == label_of("a" * 16)
    labels = {label_of(f"{number:016}") for number in range(1000)}
    assert len(labels) > 900
    assert all(re.fullmatch(r"[a-z]{2,10}-[a-z]{2,10}", label) for label in labels)
