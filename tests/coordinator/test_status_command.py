"""`shoal status`, `runs` and `stop` beside a real host, and what they make of anything else."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from coordinator import orders
from coordinator.directory import RunDirectory
from coordinator.orders import Pause, Stop
from coordinator.over_broker import BEAT_WITHIN, Heard
from coordinator.report import Report, State, line, lines, size_of, state_of, table
from protocol import topics
from protocol.address import parse_address
from protocol.command import run as command
from protocol.envelope import plain, signed
from protocol.identity import Identity, fingerprint, run_id
from protocol.messages import Beat, Epoch, Update
from protocol.packing import WireError
from protocol.spec import to_bytes
from tests.chaos.processes import await_updates, host, join_url, resumed, worker
from tests.coordinator.runs import spec_of

ENDLESS = ("CartPole-v1", "--set", "stop.target=1e9", "--population", "16")
FULL = Report(
    run="cartpole-1a2b3c4d",
    state="running",
    environment="CartPole-v1",
    process=17,
    epoch=2,
    led_by="k3x",
    version=1234,
    target=475.0,
    centre=402.6,
    centre_deviation=88.1,
    centre_version=1230,
    centre_episodes=10,
    members_mean=310.4,
    population=256,
    workers=3,
    learning_rate=0.05,
    updates_per_minute=81.24,
    update_age=3.2,
    seconds=754.0,
    bytes=1_234_567,
)


@dataclasses.dataclass
class Asked:
    """What a command said."""

    code: int
    out: str
    err: str


class Asks:
    """Commands in this process: each has a second less to start."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str) -> Asked:
        self.capsys.readouterr()
        code = command(shoal.app, arguments)
        said = self.capsys.readouterr()
        return Asked(code, said.out, said.err)

    def json(self, *arguments: str) -> dict[str, object]:
        said = self(*arguments, "--json")
        assert said.code == 0, said.err
        found: dict[str, object] = json.loads(said.out.splitlines()[-1])
        return found


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Asks:
    return Asks(capsys)


def test_a_led_run_is_seen_from_outside_and_stopped_from_there(tmp_path: Path, ask: Asks) -> None:
    run_dir = tmp_path / "runs" / "one"
    with (
        host(*ENDLESS, run_dir=run_dir, broker="mosquitto") as (leader, url),
        worker(url, tmp_path / "home"),
    ):
        await_updates(run_dir, 3)
        here, there = ask.json("status", str(run_dir)), ask.json("status", url, "--seconds", "3")
        assert here["state"] == there["state"] == "running"
        assert here["process"] == leader.process.pid
        assert here["environment"] == there["environment"] == "CartPole-v1"
        assert int(str(there["version"])) >= int(str(here["version"])) >= 3
        for name in ("updates_per_minute", "update_age", "learning_rate", "workers", "population"):
            assert here[name] is not None and there[name] is not None, name
        assert there["led_by"] == url.partition("#")[2]
        listed = ask("runs", str(tmp_path / "runs")).out
        assert f"running ({leader.process.pid})" in listed and f"shoal stop {run_dir}" in listed
        broker = url.rpartition("/")[0]
        assert url in ask("runs", broker).out
        assert ask.json("status", broker, "--seconds", "1")["run"] == here["run"]
        stopped = ask("stop", str(run_dir), "--pause")
        assert stopped.code == 0, stopped.err
        assert f"shoal host --resume {run_dir}" in stopped.out
        assert leader.await_end() == 0
    assert ask.json("status", str(run_dir))["state"] == "paused"
    again = ask("stop", str(run_dir))
    assert again.code == 2 and "no process leads the run" in again.err
    assert "paused" in ask("runs", str(tmp_path / "runs")).out


def test_a_run_whose_host_was_killed_says_so_and_one_that_ended_too(
    tmp_path: Path, ask: Asks
) -> None:
    run_dir = tmp_path / "run"
    with host(*ENDLESS, "--updates", "2", run_dir=run_dir) as (leader, url):
        leader.signal(signal.SIGKILL)
        leader.process.wait()
        assert ask.json("status", str(run_dir))["state"] == "interrupted"
        silent = ask("status", url)
        assert silent.code == 2 and "no broker can be reached" in silent.err
    with resumed(run_dir) as leader, worker(join_url(leader), tmp_path / "home"):
        assert leader.await_end() == 0
    report = ask.json("status", str(run_dir))
    assert report["state"] == "ended" and report["version"] == 2
    text = ask("status", str(run_dir)).out
    assert "ended: 2 updates are made" in text and "on disk" in text
    assert f"shoal fork {run_dir} --version 2" in ask("runs", str(run_dir)).out
    watched = ask("status", str(run_dir), "--watch")  # it is over, so that ends
    assert watched.code == 0 and "ended  version 2" in watched.out


def test_an_order_that_nobody_heeds_is_taken_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = RunDirectory.create(tmp_path / "run", "test-12345678")
    path = directory.orders_path
    orders.give(path, Pause(7))
    assert command(shoal.app, ["stop", str(tmp_path / "run"), "--timeout", "1"]) == 2
    said = capsys.readouterr().err
    assert f"process {os.getpid()} still has the run" in said and "kill -INT" in said
    assert orders.take(path) == [Pause(7)]
    directory.close()


def test_orders_are_withdrawn_alone(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    for order in (Stop(1), Stop(2), Pause(2)):
        orders.give(path, order)
    orders.withdraw(path, Stop(2))
    assert orders.take(path) == [Stop(1), Pause(2)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["status", "nowhere"], "nowhere holds no run"),
        (["stop", "nowhere"], "nowhere holds no run: give the directory of one, such as runs/"),
        (["runs", "nowhere"], "can't be looked into"),
        (["status", "http://host"], "mqtt://"),
        (["status", "mqtt://127.0.0.1:1/a-12345678"], "no broker can be reached"),
        (["runs", "mqtt://127.0.0.1:1"], "check the address, and that its host is up"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("coordinator.leading.CONTACT_SECONDS", 0.5)
    assert command(shoal.app, arguments) != 0
    said = capsys.readouterr()
    assert said.out == ""
    (one,) = said.err.splitlines()
    assert one.startswith("error: ") and words in one


def test_what_cannot_be_read_is_listed_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, log in (("whole", b""), ("broken", b"no database" * 1000)):
        RunDirectory.create(tmp_path / name, f"{name}-12345678").close()
        (tmp_path / name / "log.sqlite").write_bytes(log)
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "run").write_text("\x1b[2J")
    assert command(shoal.app, ["runs", str(tmp_path)]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == 3
    assert "can't be opened" in listed[1] and "not begun" in listed[2]


@pytest.mark.parametrize(
    ("noted", "ended", "process", "state"),
    [
        ("running", None, 5, "running"),
        ("running", None, None, "interrupted"),
        ("paused", None, None, "paused"),
        ("stopped", None, None, "stopped"),
        ("finished", "the target is reached", None, "ended"),
        ("finished", "the target is reached", 5, "ended"),
        ("finished", None, None, "interrupted"),
        (None, None, None, "interrupted"),
        (b"\x00", 3.5, None, "interrupted"),
    ],
)
def test_the_state_is_told_by_the_log_and_by_who_has_the_directory(
    noted: object, ended: object, process: int | None, state: State
) -> None:
    assert state_of(noted, ended, process) == state


def test_a_report_has_a_unit_for_each_figure() -> None:
    text = "\n".join(lines(FULL, "none"))
    for words in (
        "running (process 17)",
        "402.6 +- 63.0 (version 1230, 10 episodes)",
        "81.2 updates/min",
        "3 s ago",
        "12 min",
        "1.23 MB",
        "256 members an update",
        "learning rate 0.05",
        "2, led by k3x",
    ):
        assert words in text
    assert line(FULL).startswith("cartpole-1a2b3c4d running  version 1,234  centre 402.6")
    assert "shoal x" in table([(FULL, "shoal x")])


@given(
    st.builds(
        Report,
        run=st.text(max_size=20),
        state=st.sampled_from(["running", "silent"]),
        centre=st.none() | st.floats(allow_nan=False),
        centre_deviation=st.none() | st.floats(0, 1e9),
        centre_episodes=st.none() | st.integers(0, 10**9),
        update_age=st.none() | st.floats(0, 1e12),
        bytes=st.none() | st.integers(0, 10**18),
    )
)
@settings(max_examples=100)
def test_any_report_can_be_shown(report: Report) -> None:
    assert lines(report, "none") and line(report) and table([(report, "")])
    json.dumps(report.to_json())


def test_sizes() -> None:
    assert [size_of(s) for s in (12, 4_200, 7_000_000, 3_100_000_000)] == [
        "12 B",
        "4.2 kB",
        "7 MB",
        "3.1 GB",
    ]


# What is heard over a broker, without one.


class Told:
    """A run whose leader's words are made here."""

    def __init__(self) -> None:
        self.identity = Identity(b"k" * 32)
        self.run = run_id("test", self.identity.public_key)
        line = f"mqtt://host:1883/{self.run}#{fingerprint(self.identity.public_key)}"
        self.heard = Heard(parse_address(line), 100.0)

    def epoch(self, identity: Identity | None = None, **changes: object) -> bytes:
        fields: dict[str, object] = {
            "protocol": 1,
            "run": self.run,
            "host_key": self.identity.public_key,
            "number": 1,
            "rank": 0,
            "spec": to_bytes(spec_of()),
            "state": "running",
            "version": 7,
            "digest": b"d" * 16,
        }
        message = Epoch(**{**fields, **changes})  # type: ignore[arg-type]
        return signed(identity or self.identity, "epoch", (self.run,), message)

    def says(self, payload: bytes, now: float = 100.0) -> None:
        self.heard.hear(topics.epoch(self.run), payload, now)

    def beats(self, now: float, **changes: object) -> None:
        fields: dict[str, object] = {"epoch": 1, "version": 9, "digest": b"d" * 16, "phase": "open"}
        beat = Beat(**{**fields, **changes})  # type: ignore[arg-type]
        self.heard.hear(topics.beat(self.run), plain(beat), now)

    def state(self, now: float) -> str:
        report = self.heard.report(now)
        assert report is not None
        return report.state


def test_nothing_is_told_of_a_run_that_nobody_proved_to_lead() -> None:
    run = Told()
    run.beats(101.0)
    assert run.heard.report(102.0) is None
    with pytest.raises(WireError):
        run.says(run.epoch(Identity(b"z" * 32)))
    assert run.heard.report(102.0) is None


def test_the_state_of_a_run_follows_its_leader() -> None:
    run = Told()
    run.says(run.epoch())
    run.beats(101.0)
    assert run.state(102.0) == "running"
    report = run.heard.report(102.0)
    assert report is not None and report.version == 9 and report.environment == "Formula-v0"
    run.beats(103.0, phase="paused")
    assert run.state(103.0) == "paused"
    run.beats(104.0, phase="lost")
    assert run.state(104.0) == "silent"
    run.beats(105.0)
    assert run.state(105.0 + BEAT_WITHIN) == "silent"
    run.says(run.epoch(state="paused", reason="paused by the host"))
    assert run.state(105.0) == "paused"
    run.says(run.epoch(state="finished", reason="the target is reached"))
    assert run.state(200.0) == "ended" and run.heard.over
    report = run.heard.report(200.0)
    assert report is not None and report.why == "the target is reached"


def test_an_earlier_epoch_does_not_undo_a_later_one() -> None:
    run = Told()
    run.says(run.epoch(number=3, version=30))
    run.says(run.epoch(number=2, version=50, state="stopped"))
    report = run.heard.report(101.0)
    assert report is not None and (report.epoch, report.version, report.state) == (3, 30, "running")


def test_what_is_set_is_told_as_soon_as_it_is_heard_and_before_as_the_run_began() -> None:
    run = Told()
    run.says(run.epoch(spec=to_bytes(spec_of(stop={"target": 5.0}))))
    report = run.heard.report(101.0)
    assert report is not None and (report.target, report.population) == (5.0, 32)
    said = "\n".join(lines(report, "-"))
    assert "5.0 as the run began; shoal" in said and "update as the run began; shoal" in said
    update = Update(
        1, 7, (), 1.0, 0.1, 0.1, (), 0, 0, b"d" * 16, b"d" * 16, amendments={"stop.target": 9.0}
    )
    payload = signed(run.identity, "update", (run.run,), update)
    run.heard.hear(topics.update(run.run), payload, 102.0)
    report = run.heard.report(103.0)
    assert report is not None and (report.target, report.population) == (9.0, 32)
    assert report.as_begun == ("strategy.population",)
    assert "9.0 as" not in "\n".join(lines(report, "-"))


def test_another_key_than_the_join_lines_is_nobody() -> None:
    run = Told()
    address = dataclasses.replace(
        parse_address(f"mqtt://host/{run.run}"),
        fingerprint=fingerprint(Identity(b"y" * 32).public_key),
    )
    other = Heard(address, 100.0)
    with pytest.raises(WireError, match="another key"):
        other.hear(topics.epoch(run.run), run.epoch(), 100.0)
    assert not other.announced


@given(st.sampled_from(["epoch", "beat", "update"]), st.binary(max_size=200))
@settings(max_examples=100)
def test_garbage_is_nothing(kind: str, payload: bytes) -> None:
    run = Told()
    run.says(run.epoch())
    before = run.heard.report(101.0)
    try:
        run.heard.hear(f"shoal/1/{run.run}/{kind}", payload, 101.0)
    except WireError:
        assert run.heard.report(101.0) == before


def test_who_has_begun_no_run_yet_is_told_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(shoal.app, ["runs"]) == 0
    assert "begin one with shoal host" in capsys.readouterr().out
