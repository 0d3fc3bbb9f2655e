from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from worker.service import FATAL, Service, system_unit, user_unit

ROOT = Path(__file__).parents[2]
UNITS = {"system": system_unit, "user": user_unit}


def test_the_unit_of_deploy_is_the_one_that_is_printed() -> None:
    kept = (ROOT / "deploy" / "shoal-worker.service").read_text()
    assert kept == system_unit(Service()), "write system_unit(Service()) there"


@pytest.mark.parametrize("kind", UNITS)
def test_no_unit_begins_again_where_a_person_has_to_look(kind: str) -> None:
    from worker.cli import EXIT_CODES

    unit = UNITS[kind](Service())
    (line,) = re.findall(r"RestartPreventExitStatus=(.*)", unit)
    assert tuple(map(int, line.split())) == FATAL
    assert "Restart=on-failure" in unit
    # What may pass by itself is tried again: a broker that is away.
    assert 5 not in FATAL
    assert all(f" {code} " in EXIT_CODES for code in FATAL)


@pytest.mark.parametrize("kind", UNITS)
def test_systemd_understands_it(kind: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    unit = UNITS[kind](Service(command=f"{sys.executable} -m shoal", home=str(tmp_path / "a b%c")))
    (tmp_path / "shoal-worker.service").write_text(unit.replace("User=shoal\n", ""))
    scope = ["--user"] if kind == "user" else []
    ended = subprocess.run(
        [analyze, "verify", "--man=no", *scope, str(tmp_path / "shoal-worker.service")],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    said = [line for line in ended.stderr.splitlines() if "shoal-worker.service" in line]
    assert said == []


def test_a_unit_sees_the_shoal_that_it_starts() -> None:
    assert "ProtectHome=yes" in system_unit(Service())
    at_home = dataclasses.replace(Service(), command="/home/ann/venv/bin/shoal")
    assert "ProtectHome=read-only" in system_unit(at_home)


def test_the_command_takes_the_configuration_of_this_machine(tmp_path: Path) -> None:
    def printed(*flags: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "shoal", "worker", "service", "--home", str(tmp_path), *flags],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert " join --cores auto\n" in printed()
    assert f"Environment=SHOAL_HOME={tmp_path}\n" in printed("--user")
    file = tmp_path / "worker.toml"
    file.write_text("invite = 'secret'\n")
    unit = printed()
    assert " join\n" in unit
    assert f"install -o shoal -m 600 -D {file} /var/lib/shoal/worker.toml" in unit
    assert "secret" not in unit
    other = tmp_path / "other.toml"
    other.write_text("")
    assert f" join --config {other}\n" in printed("--user", "--config", str(other))
