"""`shoal host --standby` as a user meets it: one line for a mistake, and who we are at once."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import shoal
from protocol.command import run
from protocol.identity import Identity
from tests.chaos.processes import running
from tests.protocol.mosquitto import free_port

FINGERPRINT = Identity(b"1" * 32).fingerprint
LINE = f"mqtt://127.0.0.1:1/test-1a2b3c4d#{FINGERPRINT}"

MISTAKES = {
    "broker only": (["--standby", "mqtt://127.0.0.1"], "give the whole line that volunteers join"),
    "no fingerprint": (["--standby", LINE.partition("#")[0]], "give the whole line"),
    "no address": (["--standby", "nowhere"], "does not begin with mqtt://"),
    "own broker": (["--standby", LINE, "--broker", "embedded"], "leave out --broker"),
    "environment": (["CartPole-v1", "--standby", LINE], "leave out ENV"),
    "resume": (["--standby", LINE, "--resume", "runs/a"], "leave out --resume"),
    "settings": (["--standby", LINE, "--sigma", "0.1"], "leave out strategy settings"),
    "take over": (["--standby", LINE, "--take-over"], "leave out --take-over"),
    "take over what": (["CartPole-v1", "--take-over"], "give its directory with --resume"),
    "no key": (["--standby", LINE, "--key", "/nowhere/a.key"], "cannot read the identity"),
    "patience": (["--standby", LINE, "--patience", "1"], "--patience"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_one_line(
    mistake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    arguments, words = MISTAKES[mistake]
    assert run(shoal.app, ["host", *arguments]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and words in lines[0], lines
    assert not (tmp_path / "runs").exists()


def test_the_machines_key_is_made_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is not there ends it, but who stands by is known."""
    monkeypatch.setitem(os.environ, "SHOAL_HOME", str(tmp_path / "home"))
    said = []
    for _ in range(2):
        url = f"mqtt://127.0.0.1:{free_port()}/test-1a2b3c4d#{FINGERPRINT}"
        with running(
            "shoal", "host", "--standby", url, "--run-dir", str(tmp_path / "run")
        ) as process:
            assert process.await_end() == 2
            line = process.await_line("standby ")
            assert process.await_line("error: no broker can be reached")
        match = re.fullmatch(r"standby ([a-z2-7]{26}) for the run test-1a2b3c4d, kept in .*", line)
        assert match is not None, line
        said.append(match[1])
    assert said == [Identity.load(tmp_path / "home" / "host.key").fingerprint] * 2
    assert not (tmp_path / "run").exists()
