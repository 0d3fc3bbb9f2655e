"""A real host on a pseudo-terminal: its screen, its keys, and the terminal that it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from coordinator.log import STATE, LogReader
from tests.chaos.processes import host as led
from tests.coordinator.screen.pseudo import on_terminal

ENDLESS = ("CartPole-v1", "--set", "stop.target=1e9", "--local-workers", "1")
HOST = ("host", "CartPole-v1", "--broker", "embedded", "--port", "0", "--set", "stop.target=1e9")


def state(run: Path) -> object:
    with LogReader(run / "log.sqlite") as log:
        return log.noted(STATE)


def test_a_host_with_workers_of_its_own_is_led_from_its_screen_to_its_end(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with on_terminal(*HOST, "--run-dir", str(run), "--local-workers", "2") as host:
        host.until(lambda screen: "2 workers at work" in screen.text)
        for name in ("local-0", "local-1"):
            host.until(lambda screen, name=name: re.search(f"{name} .* trusted", screen.text))
        host.until(lambda screen: "versions 1 to" in screen.text)
        screen = host.screen
        assert screen.other and screen.cursor_hidden
        host.press("p")
        host.until(lambda screen: "paused" in screen.rows[0] and ", 0 out" in screen.text)
        host.press("p+")
        host.until(lambda screen: "running" in screen.rows[0] and "3 here" in screen.text)
        host.press("-")
        host.until(lambda screen: "2 here" in screen.text)
        host.resize(80, 24)
        host.until(lambda screen: screen.rows[23].startswith("p pause"))
        assert max(map(len, screen.rows)) == 80
        host.press("?")
        host.until(lambda screen: "this help" in screen.text)
        host.press("q")
        host.until(lambda screen: "q stops the run" in screen.rows[23])
        host.press("n")
        host.until(lambda screen: screen.rows[23].startswith("p pause"))
        host.press("q")
        host.until(lambda screen: "q stops the run" in screen.rows[23])
        host.press("q")
        assert host.ended() == 0
        assert host.in_order()
        assert "volunteers join with:  shoal join mqtt://" in screen.raw.rpartition("?1049l")[2]
        assert "ended: stopped by the host" in screen.raw
    assert state(run) == "stopped"
    assert [path.name for path in sorted((run / "logs").glob("*.log"))] == [
        "worker-0.log",
        "worker-1.log",
        "worker-2.log",
    ]


@pytest.mark.parametrize(
    ("number", "left"), [(signal.SIGINT, "stopped"), (signal.SIGTERM, "paused")]
)
def test_signals_leave_the_terminal_in_order(
    number: signal.Signals, left: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with on_terminal(*HOST, "--run-dir", str(run), LANG="C", NO_COLOR="1") as host:
        host.until(lambda screen: "give the join line" in screen.text)
        host.process.send_signal(number)
        assert host.ended() == 0
        assert host.in_order()
    assert state(run) == left


def test_a_failure_leaves_the_terminal_in_order_and_says_why(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with on_terminal(*HOST, "--run-dir", str(run)) as host:
        host.until(lambda screen: "give the join line" in screen.text)
        (run / "policy.safetensors").mkdir()  # nothing can be written in its place
        host.process.send_signal(signal.SIGINT)
        assert host.ended() == 2, host.screen.raw[-3000:]
        assert host.in_order()
        after = host.screen.raw.rpartition("?1049l")[2]
        assert "error: " in after and "policy.safetensors" in after


def test_plain_lines_are_plain(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    with on_terminal(*HOST, "--run-dir", run, "--plain", "--updates", "1") as host:
        host.until(lambda screen: "volunteers join with" in screen.raw)
        os.kill(host.process.pid, signal.SIGTERM)
        assert host.ended() == 0
        assert "\x1b" not in host.screen.raw
        assert json.dumps(run)[1:-1] in host.screen.raw


def test_a_standby_is_shown_and_leaves_the_terminal_in_order(tmp_path: Path) -> None:
    where = ("--run-dir", str(tmp_path / "there"), "--home", str(tmp_path / "home"))
    with (
        led(*ENDLESS, run_dir=tmp_path / "run", broker="mosquitto") as (_, url),
        on_terminal("host", "--standby", url, *where) as first,
    ):
        first.until(lambda screen: "following: version" in screen.rows[0])
        first.process.send_signal(signal.SIGTERM)  # which nobody handles there
        assert first.ended() == -signal.SIGTERM
        assert first.in_order()
        with on_terminal("host", "--standby", url, *where) as second:
            second.until(lambda screen: "following: version" in screen.rows[0])
            second.press("p+q")
            assert second.ended() == 130
            assert second.in_order()
            assert "go on as one" in second.screen.raw.rpartition("?1049l")[2]
