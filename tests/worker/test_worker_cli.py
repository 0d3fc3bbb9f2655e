from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from protocol.errors import ShoalError
from worker import news
from worker.amounts import bytes_of_memory, bytes_per_second, cores_granted, share_of_a_core
from worker.cli import EXIT_CODES, register
from worker.console import (
    JsonConsole,
    LiveConsole,
    Paced,
    PlainConsole,
    QuietConsole,
    Rates,
    harmless,
    open_console,
    short,
    status_line,
)
from worker.evaluation.memory import shown
from worker.view import View

ROOT = Path(__file__).parents[2]
HEAVY = ("numba", "gymnasium", "torch", "rich", "coordinator", "aiomqtt", "numpy", "zeroconf")


def shoal(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "worker", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "usable", "granted"),
    [
        ("1", 8, 1),
        ("2", 2, 2),
        ("3", 8, 3),
        ("all", 8, 8),
        ("auto", 8, 7),
        ("auto", 1, 1),
        ("all", 1, 1),
    ],
)
def test_cores(text, usable, granted):
    assert cores_granted(text, usable) == granted


@pytest.mark.parametrize("text", ["0", "-1", "many", "", "2.5", "5", "900", "9" * 5000, "²"])
def test_impossible_cores_are_one_line_with_the_rule(text):
    with pytest.raises(ShoalError, match="all, auto, or a number from 1 to 4, the cores") as error:
        cores_granted(text, 4)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "share"),
    [("10%", 0.1), ("0.1", 0.1), ("100%", 1.0), ("1", 1.0), ("1%", 0.01), ("12.5 %", 0.125)],
)
def test_a_share_of_a_core_is_in_percent_or_a_number(text, share):
    assert share_of_a_core(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["0", "10", "0.5%", "101%", "-1%", "1.01", "half", "", "²%"])
def test_an_impossible_share_is_one_line_with_the_rule(text):
    with pytest.raises(ShoalError, match="a share of a core from 1% to 100%") as error:
        share_of_a_core(text)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("url", "words"),
    [("http://host", "mqtt://"), ("mqtt://host/no_run", "not a run"), ("mqtt://:1883", "host")],
)
def test_a_wrong_address_is_one_line_and_exit_code_2(url, words, tmp_path):
    ended = shoal(url, "--home", str(tmp_path))
    assert ended.returncode == 2
    (line,) = ended.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert ended.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_option_is_wrong_use(tmp_path):
    assert shoal("mqtt://host", "--warp", "9").returncode == 2


def test_no_broker_and_once_is_exit_code_5_and_the_key_is_kept(tmp_path):
    url = "mqtt://127.0.0.1:1/test-00000000"
    ended = shoal(url, "--once", "--quiet", SHOAL_HOME=str(tmp_path))
    assert ended.returncode == 5
    assert ended.stderr.startswith("error: broker unreachable at mqtt://127.0.0.1:1 (")
    assert ended.stderr.endswith("): check the join line, or ask the host\n")
    assert len(ended.stderr.splitlines()) == 1
    key = tmp_path / "worker.key"
    assert key.stat().st_mode & 0o777 == 0o600
    secret = key.read_bytes()
    assert secret.decode().split()[1] not in ended.stderr
    shoal(url, "--once", SHOAL_HOME=str(tmp_path))
    assert key.read_bytes() == secret


def test_help_names_every_exit_code():
    import typer

    app = typer.Typer()
    register(app)
    shown = CliRunner().invoke(app, ["--help"])
    assert shown.exit_code == 0
    for code in range(7):
        if code != 1:
            assert f" {code} " in f" {EXIT_CODES} "
    assert "Exit codes" in shown.output
    options = "--cores --credit --name --home --config --once --quiet --log-format --upload-limit"
    for option in (*options.split(), "--cpu-share"):
        assert option in shown.output


@pytest.mark.parametrize(
    ("text", "rate"),
    [("4MB", 4e6), ("500kB", 5e5), ("500 KB/s", 5e5), ("0", 0.0), ("1.5M", 1.5e6), ("2G", 2e9)],
)
def test_an_upload_limit_has_units(text, rate):
    assert bytes_per_second(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "-1", "4 Mbit", "1e6", "inf", "4MBs", "٤MB"])
def test_an_impossible_upload_limit_is_one_line_with_the_rule(text):
    with pytest.raises(ShoalError, match="bytes per second such as 4MB, 500kB or 0") as error:
        bytes_per_second(text)
    assert error.value.exit_code == 2


def test_the_command_is_cheap_until_it_is_used():
    code = "import sys, worker.cli; print([m for m in sys.argv[1:] if m in sys.modules])"
    ended = subprocess.run(
        [sys.executable, "-c", code, *HEAVY], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "[]"


def test_the_daemon_loads_no_environment_and_no_kernels_before_it_connects():
    code = "import sys, worker.daemon; print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = [name for name in HEAVY if name not in ("numpy", "aiomqtt")]
    ended = subprocess.run(
        [sys.executable, "-c", code, *heavy, "typer"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip() == "[]"


# What the volunteer reads.


def test_what_strangers_wrote_can_not_steer_the_terminal():
    assert harmless("a\x1b[2Jb\nc\td\x07é") == "a?[2Jb c?d?é"
    assert len(harmless("x" * 9_000)) == 500
    stream = io.StringIO()
    PlainConsole(stream).say("\x1b]0;owned\x07")
    LiveConsole(stream, lambda: 80).say("\x9b31m")
    QuietConsole(stream).say("\r", warning=True)
    shown = stream.getvalue().replace("\r\x1b[K", "")
    assert not set(shown) & set("\x1b\x07\x9b\r")


def test_the_status_says_what_runs_or_why_nothing_does():
    busy = View(version=3, running=2, done=5, episodes=10, steps=900, accepted=4, late=1)
    line = status_line(busy, (1234.0, 5.6e6))
    assert line == (
        "version 3 | 5 done, 2 running | 1.23k evaluations/s, 5.6M steps/s | "
        "4 accepted, 1 late, 0 duplicate"
    )
    idle = View(idle_because="waiting for a task", waiting=1, unanswered=3)
    assert status_line(idle, (0.0, 0.0)) == (
        "version 0 | 0 done, 0 running, 1 waiting | idle: waiting for a task | 3 unanswered"
    )
    leased = View(idle_because="update 1204 fully leased", next_in=4.2)
    assert "idle: update 1204 fully leased; next in about 4 s" in status_line(leased, (0.0, 0.0))
    overdue = replace(leased, next_in=0.0)
    assert "idle: update 1204 fully leased; the next is due" in status_line(overdue, (0.0, 0.0))
    counts = status_line(View(done=9, counted=1204, share=0.0313), (0.0, 0.0))
    assert counts.endswith(" | counted in 1,204 updates, 3.1 % of all members")
    alone = status_line(View(done=9, counted=1, share=1.0), (0.0, 0.0))
    assert alone.endswith(" | counted in 1 update, 100 % of all members")
    pausing = status_line(View(running=1, paused="paused by you"), (0.0, 0.0))
    assert pausing.startswith("paused by you, once the tasks at hand are finished | version 0")
    leaving = status_line(View(running=1, leaving="finishing 1 task, about 3 s left"), (0.0, 0.0))
    assert leaving.startswith("finishing 1 task, about 3 s left | version 0 | 0 done, 1 running")
    assert "2 refused" in status_line(View(done=1, refused=2), (0.0, 0.0))
    assert "200MB given to peers" in status_line(View(given=199_964_656), (0.0, 0.0))


@pytest.mark.parametrize(
    ("speed", "lanes", "children", "share", "words"),
    [
        (
            1234.4,
            [8],
            1,
            0.1,
            "1,234 steps/s (10 % of 1 core, 8 lanes and up to 1.5 GiB of memory)",
        ),
        (
            1234.4,
            [1],
            4,
            1.0,
            "1,234 steps/s (1 of 4 cores, 1 lane and up to 1.5 GiB of memory each)",
        ),
        (
            1234.4,
            [8, 4, 8, 16],
            4,
            1.0,
            "1,234 steps/s (4 cores, 4 to 16 lanes and up to 1.5 GiB of memory each)",
        ),
        (
            0.324,
            [8, 8],
            4,
            0.125,
            "0.32 steps/s (12.5 % of 2 of 4 cores, 8 lanes and up to 1.5 GiB of memory each)",
        ),
    ],
)
def test_what_evaluates_is_said_when_it_is_ready(speed, lanes, children, share, words):
    memory = 1.5 * 2**30
    assert news.ready(speed, lanes, children, share, memory) == f"evaluation is ready: {words}"


def test_memory_is_shown_in_the_unit_that_suits():
    assert [shown(size) for size in (0, 640 << 20, 1 << 30, 2.125 * 2**30)] == [
        "0 MiB",
        "640 MiB",
        "1 GiB",
        "2.12 GiB",
    ]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("auto", None),
        ("2GiB", 2 << 30),
        ("1.5 GiB", 3 << 29),
        ("800MB", 800_000_000),
        ("800 M", 800_000_000),
        ("200000000", 200_000_000),
        ("80MiB", 80 << 20),
        ("90112KiB", 88 << 20),
        ("90000kB", 90_000_000),
    ],
)
def test_a_limit_of_memory_has_its_unit(text, size):
    assert bytes_of_memory(text) == size


@pytest.mark.parametrize(
    "text", ["", "2", "79MiB", "80 MB", "2TiB", "much", "-2GiB", "2GiB/s", "1e9"]
)
def test_a_limit_of_memory_that_says_nothing_is_refused(text):
    with pytest.raises(ShoalError, match="must be auto, or at least 80MiB for each process"):
        bytes_of_memory(text)


def test_the_host_sees_how_many_processes_evaluate_and_their_limit():
    assert news.device(2, 1.0) == "cpu x2"
    assert news.device(1, 0.05) == "cpu x1 at 5 %"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.123, "0.123"), (999, "999"), (1000, "1k"), (12345, "12.3k"), (2.5e9, "2.5G")],
)
def test_figures_are_short(value, shown):
    assert short(value) == shown


def test_rates_are_of_the_last_seconds():
    rates = Rates()
    assert rates.of(View(), 100.0) == (0.0, 0.0)
    for second in range(1, 60):
        found = rates.of(View(episodes=10 * second, steps=300 * second), 100.0 + second)
        assert found == (10.0, 300.0)
    for second in range(60, 70):
        found = rates.of(View(episodes=590, steps=17_700), 100.0 + second)
    assert found == (0.0, 0.0)


def test_lines_that_stay_are_few():
    paced, written = Paced(), 0
    for tenth in range(6_000):
        view = View(done=tenth // 3)
        written += paced.due(view, tenth / 10)
    assert 110 <= written <= 120
    estimates = (View(done=5, next_in=tenth / 7, seconds_left=1.0) for tenth in range(6_000))
    written = sum(paced.due(view, 600 + tenth / 10) for tenth, view in enumerate(estimates))
    assert 9 <= written <= 12, "an estimate that changes is no news"
    written = sum(paced.due(View(done=5), 1200 + tenth / 10) for tenth in range(6_000))
    assert 9 <= written <= 12


def test_the_live_line_is_rewritten_in_place_and_taken_away():
    stream = io.StringIO()
    console = LiveConsole(stream, lambda: 30)
    console.show(View(idle_because="waiting for a task"), 10.0)
    console.show(View(done=1), 10.1)
    console.say("hello")
    console.close()
    line = "version 0 | 0 done, 0 running"  # all that fits
    assert stream.getvalue() == f"\r\x1b[K{line}\r\x1b[Khello\n{line}\r\x1b[K"


def test_a_plain_log_has_times_and_a_json_log_is_json():
    stream = io.StringIO()
    console = PlainConsole(stream)
    console.say("hello")
    console.show(View(), 0.0)
    console.show(View(), 5.0)
    console.close()
    first, second = stream.getvalue().splitlines()
    assert first[2::3][:2] == "::"
    assert first.endswith(" hello")
    assert "version 0" in second
    stream = io.StringIO()
    json_console = JsonConsole(stream)
    json_console.say("hello")
    json_console.say("oh", warning=True)
    json_console.show(View(), 0.0)
    json_console.show(View(done=2, steps=7), 5.0)
    json_console.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["kind"] for line in lines] == ["line", "warning", "status"]
    assert (lines[2]["done"], lines[2]["steps"]) == (2, 7)


def test_quiet_means_warnings_only():
    stream = io.StringIO()
    console = QuietConsole(stream)
    console.say("hello")
    console.show(View(), 1.0)
    console.say("oh", warning=True)
    console.close()
    assert stream.getvalue() == "oh\n"


def test_the_console_fits_where_it_writes_to():
    assert isinstance(open_console("auto", io.StringIO()), PlainConsole)
    assert isinstance(open_console("json", io.StringIO()), JsonConsole)
    assert isinstance(open_console("quiet", io.StringIO()), QuietConsole)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(open_console("auto", Terminal()), LiveConsole)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is full, of Linux")
@pytest.mark.parametrize("kind", ["live", "plain", "json", "quiet"])
def test_a_worker_goes_on_where_its_lines_can_not_be_written(kind):
    full = Path("/dev/full").open("w")  # noqa: SIM115 - closing it raises, too
    console = LiveConsole(full, lambda: 80) if kind == "live" else open_console(kind, full)
    for now in range(1, 20):
        console.say("a line of some length" * 50, warning=True)
        console.show(View(done=now), 10.0 * now)
    console.close()
    with contextlib.suppress(OSError):
        full.close()
