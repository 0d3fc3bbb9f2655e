"""Every command has an example in its help, and no wrong use of any prints a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import shoal
from protocol.command import run
from protocol.greeting import CLIENT_VERSION
from protocol.spec import PROTOCOL_VERSION

ROOT = Path(__file__).parent.parent

USES: dict[str, str] = {
    "": "Missing command",
    "jion mqtt://127.0.0.1": "No such command",
    "host": "what should be trained?",
    "host NoSuchThing-v0 --population three": "--population",
    "host CartPole-v1 --population 3": "strategy.population",
    "host CartPole-v1 --sigma -1": "strategy.sigma",
    "host CartPole-v1 --sigma nan": "strategy.sigma",
    "host CartPole-v1 --learning-rate 0": "optimizer.learning_rate",
    "host CartPole-v1 --optimizer adma": "adma",
    "host CartPole-v1 --strategy evolution": "evolution",
    "host CartPole-v1 --shaping best": "best",
    "host CartPole-v1 --noise white": "white",
    "host CartPole-v1 --policy transformer": "transformer",
    "host CartPole-v1 --hidden 32,x": "32,x",
    "host CartPole-v1 --hidden 0": "0",
    "host CartPole-v1 --quorum 2": "pool.quorum",
    "host CartPole-v1 --max-staleness -1": "pool.max_staleness",
    "host CartPole-v1 --pool fast": "fast",
    "host CartPole-v1 --preset Nowhere-v0": "no preset",
    "host CartPole-v1 --target high": "--target",
    "host CartPole-v1 --updates -1": "stop.updates",
    "host CartPole-v1 --seconds -3": "stop.seconds",
    "host CartPole-v1 --seed -1": "seed",
    "host CartPole-v1 --name Upper/Case": "name",
    "host CartPole-v1 --set sigma=1": "sigma",
    "host CartPole-v1 --set strategy.sigma": "strategy.sigma",
    "host CartPole-v1 --port 70000": "70000",
    "host CartPole-v1 --port 80x": "'--port': must be a whole number (given: '80x')",
    "host CartPole-v1 --sigma big": "'--sigma': must be a number (given: 'big')",
    "host CartPole-v1 --broker ftp://somewhere": "ftp://somewhere",
    "host CartPole-v1 --delegate me": "'me'",
    "host CartPole-v1 --admission some": "some",
    "host CartPole-v1 --admission list --admit nobody": "nobody",
    "host CartPole-v1 --tls-cert nowhere.pem": "tls",
    "host CartPole-v1 --patience 1": "--patience",
    "host CartPole-v1 --local-workers many": "--local-workers 'many'",
    "host CartPole-v1 --local-workers 1000": "--local-workers '1000'",
    "host CartPole-v1 --priority 0": "--priority",
    "host CartPole-v1 --priority nan": "--priority",
    "sweep nowhere.toml --priority nan": "--priority",
    "host CartPole-v1 --dashboard web": "--dashboard",
    "host CartPole-v1 --dashboard-bind 0.0.0.0": "add --dashboard PORT",
    "host CartPole-v1 --dashboard 0 --dashboard-token-file nowhere": "can't be read",
    "status": "Missing argument",
    "status nowhere": "nowhere holds no run",
    "status mqtt://127.0.0.1:99999": "99999",
    "status . --seconds 0": "--seconds",
    "runs nowhere": "can't be looked into",
    "stop nowhere": "nowhere holds no run",
    "stop . --timeout soon": "--timeout",
    "host nowhere.toml": "nowhere.toml",
    "host broken.toml": "broken.toml",
    "host wrong.toml": "strategy.sigma",
    "host --resume nowhere": "nowhere",
    "host --resume . --sigma 1": "sigma",
    "host --standby mqtt://127.0.0.1:1": "whole line",
    "host --take-over CartPole-v1": "--take-over",
    "host --objective": "--objective",
    "host --objective nothing": "nothing",
    "demo --workers 0": "--workers",
    "demo CartPole-v1 --updates": "--updates",
    "join": "URL",
    "join http://127.0.0.1": "http://127.0.0.1",
    "join mqtt://": "mqtt://",
    "join mqtt://127.0.0.1:99999": "99999",
    "join mqtt://127.0.0.1:1/no/such/run": "no/such/run",
    "join mqtt://127.0.0.1:1/cartpole-1a2b3c4d#short": "short",
    "join mqtt://127.0.0.1:1 --cores 9999": "9999",
    "join mqtt://127.0.0.1:1 --cpu-share 200%": "200%",
    "join mqtt://127.0.0.1:1 --memory-limit lots": "lots",
    "join mqtt://127.0.0.1:1 --upload-limit fast": "fast",
    "join mqtt://127.0.0.1:1 --device toaster": "toaster",
    "join mqtt://127.0.0.1:1 --lanes 0": "--lanes",
    "join mqtt://127.0.0.1:1 --nice 20": "--nice",
    "join mqtt://127.0.0.1:1 --proxy ftp://x": "ftp://x",
    "join mqtt://127.0.0.1:1 --invite short": "invite",
    "worker config --config nowhere.toml": "nowhere.toml",
    "play": "RUN_DIR",
    "play nowhere": "nowhere",
    "play . --episodes 0": "--episodes",
    "play . --member 3": "--member",
    "play . --version 1 --best": "exclude",
    "play . --render loud": "loud",
    "record nowhere --out film.txt": "nowhere",
    "export nowhere --to onnx": "nowhere",
    "export . --to exe": "exe",
    "bench NoSuchThing-v0": "NoSuchThing-v0",
    "plot": "RUN",
    "plot nowhere": "nowhere",
    "presets Nowhere-v0": "Nowhere-v0",
    "log nowhere": "nowhere",
    "verify nowhere": "nowhere",
    "replay nowhere --version 3": "nowhere",
    "replay . --version -1": "--version",
    "repair nowhere": "nowhere",
    "fork nowhere --version 1": "nowhere",
    "archive nowhere --before 5": "nowhere",
    "invite nowhere": "nowhere",
    "key show nowhere": "nowhere",
    "key backup nowhere there": "nowhere",
    "key restore nowhere there": "there",
    "identity import nowhere": "nowhere",
    "pool": "Missing command",
    "set": "Missing argument",
    "set nowhere stop.target=1": "holds no run",
    "pool workers nowhere": "nowhere",
    "pool ban . abc": "no log",
}
"""A wrong use -> what its one line names."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run file that is no TOML, one that is wrong, and none that is right."""
    (tmp_path / "broken.toml").write_text("this is = = no TOML")
    (tmp_path / "wrong.toml").write_text(
        "[environment]\nid = 'CartPole-v1'\n[strategy]\nsigma = 'much'\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    return tmp_path


def test_there_are_fifty_of_them() -> None:
    assert len(USES) >= 50


@pytest.mark.parametrize("use", USES)
def test_a_wrong_use_is_one_line_that_names_it(
    use: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(shoal.app, use.split())
    said = capsys.readouterr()
    assert code != 0
    if not said.err:  # a command of several shows what there is
        assert "Commands" in said.out
        return
    line = said.err.strip().splitlines()[-1]
    assert line.startswith("error: ") and USES[use].lower() in line.lower(), said.err
    assert "Traceback" not in said.err and len(line) < 500
    assert not list(place.glob("runs/*")), "something is left of what was not begun"


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command that does something."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


ALL = dict(commands(typer.main.get_group(shoal.app)))


@pytest.mark.parametrize("name", ALL)
def test_the_help_of_every_command_has_an_example_of_it(name: str) -> None:
    command = ALL[name]
    assert command.help, "it says what it does"
    assert command.epilog and f"shoal {name}" in command.epilog, command.epilog
    options = [each for each in command.params if each.param_type_name == "option"]
    assert all(getattr(each, "help", None) for each in options), "each option says what it is"


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shoal.app, ["--version"]) == 0
    assert capsys.readouterr().out == f"shoal {CLIENT_VERSION}, protocol {PROTOCOL_VERSION}\n"


def test_the_version_is_that_of_the_package() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert package["project"]["version"] == CLIENT_VERSION


def test_completion_is_installed_and_completes(tmp_path: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    command = binaries / "shoal"
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import shoal; shoal.main()"
    command.write_text(f"#!{sys.executable}\n{start}\n")
    command.chmod(0o755)
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": f"{binaries}:{os.environ['PATH']}",
    }

    def bash(line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    bash("shoal --install-completion; true")
    (script,) = (tmp_path / ".bash_completions").glob("*.sh")
    words = "COMP_WORDS=(shoal pre) COMP_CWORD=1; _shoal_completion shoal"
    completed = bash(f'. "{script}"; {words}; echo "${{COMPREPLY[@]}}"')
    assert completed.split() == ["presets"]
