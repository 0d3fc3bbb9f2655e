"""What may be asked of a dashboard, and one clear error where it can't be."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from coordinator.dashboard import options
from coordinator.dashboard.options import TOKEN, Choice, choice
from coordinator.dashboard.shell import Dashboard
from protocol.errors import ShoalError

SECRET = "0123456789abcdef"


def test_nothing_is_wanted_unless_it_is_asked_for() -> None:
    assert choice(None, None, None) is None
    for bind, file in (("0.0.0.0", None), (None, Path("token"))):
        with pytest.raises(ShoalError, match="add --dashboard PORT"):
            choice(None, bind, file)


def test_a_token_comes_from_a_file_of_ones_own_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    assert choice(8080, None, None) == Choice(8080)
    monkeypatch.setenv(TOKEN, SECRET)
    assert choice(8080, "::1", None) == Choice(8080, "::1", SECRET)
    file = tmp_path / "token"
    file.write_text("fedcba9876543210\n")
    with pytest.raises(ShoalError, match="chmod 600"):
        choice(0, None, file)
    file.chmod(0o600)
    assert choice(0, None, file) == Choice(0, token="fedcba9876543210")


@pytest.mark.parametrize("token", ["short", "a" * 300, "with a space in it all", "ümläutsümläuts"])
def test_a_token_that_is_no_secret_is_refused_and_not_shown(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, token)
    with pytest.raises(ShoalError, match="openssl rand") as raised:
        choice(0, None, None)
    assert token not in str(raised.value)


def test_a_missing_file_and_a_missing_package_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ShoalError, match="can't be read"):
        choice(0, None, tmp_path / "none")
    monkeypatch.setattr(options, "NEEDED", ("uvicorn", "no_such_package"))
    with pytest.raises(ShoalError, match=r"no_such_package.*pip install 'shoal\[dashboard\]'"):
        choice(0, None, None)


@pytest.mark.parametrize("bind", ["127.0.0.1", "203.0.113.7", "no.such.host.invalid"])
async def test_an_address_that_cannot_be_had_is_one_error(bind: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ShoalError, match=f"--dashboard {port}: {bind}.*give a free port"):
            async with Dashboard(Choice(port, bind), "test-1", tmp_path):
                raise AssertionError("it listens")
