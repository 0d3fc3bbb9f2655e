"""`shoal identity`: a key is shown by its fingerprint alone, and travels encrypted."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from protocol.errors import ShoalError
from protocol.exported import exported, imported
from protocol.identity import Identity, IdentityError
from shoal import app

WORDS = "three words, none of them secret"
VECTOR = (
    b"shoal-identity-encrypted-1 AAAAAAAAAAAAAAAAAAAAAAEBAQEBAQEBAQEBARjITYmWIbmDxwUs1"
    b"wIqKAtfzqu0gFjHRibRdIAtMDgKdsKQIjQNzYOPWqU4sDcQq5CoTYOQ3t9l3wM7eKeQeNOdUdzuyn1xO"
    b"n3pD+E4ILJvS7EVPQO3wvAI7FLcg4FU5OPZ\n"
)
"""Of the key 0, 1, 2, ... with a salt of zeros and a nonce of ones."""


class Machine:
    """A home with keys, and all that its commands said."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.said = ""

    def __call__(self, *arguments: object, words: str = WORDS) -> str:
        """What a command says. Raises ShoalError where it ends with that."""
        command = ["identity", *map(str, arguments), "--home", str(self.home)]
        result = CliRunner().invoke(app, command, env={"SHOAL_PASSPHRASE": words})
        self.said += f"{result.output}{result.exception}"
        if isinstance(result.exception, ShoalError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output.strip()


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "there")


def test_a_key_goes_to_another_machine_and_nobody_reads_it_on_the_way(
    here: Machine, there: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = here("show")
    key = here.home / "worker.key"
    secret = key.read_bytes().split()[1]
    file, plain = tmp_path / "me.key", tmp_path / "plain.key"
    assert ours in here("export", file)
    assert "nobody else can read it" in here("export", plain, "--plain")
    for path in (key, file, plain):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert secret not in file.read_bytes() and plain.read_bytes() == key.read_bytes()
    with pytest.raises(IdentityError, match="the passphrase is another one"):
        there("import", file, words="another passphrase")
    assert not (there.home / "worker.key").exists()
    assert ours in there("import", file)
    assert (there.home / "worker.key").read_bytes() == key.read_bytes()
    assert stat.S_IMODE((there.home / "worker.key").stat().st_mode) == 0o600
    for text in (here.said, there.said, caplog.text):
        assert secret.decode() not in text and WORDS not in text


def test_no_key_and_no_file_is_lost(here: Machine, there: Machine, tmp_path: Path) -> None:
    ours, theirs = here("show"), there("show")
    hosts = here("show", "--of", "host")
    assert len({ours, theirs, hosts}) == 3 and here("show") == ours
    file = tmp_path / "me.key"
    here("export", file, "--plain")
    with pytest.raises(IdentityError, match="exists, and is not overwritten"):
        here("export", file, "--plain")
    with pytest.raises(IdentityError, match=rf"has the key {theirs} already: --force"):
        there("import", file)
    assert there("show") == theirs
    assert "that was there is" in there("import", file, "--force")
    assert there("show") == ours
    assert Identity.load(there.home / "worker.key.1").fingerprint == theirs
    with pytest.raises(IdentityError, match="that very key already"):
        there("import", file)
    with pytest.raises(IdentityError, match="at least 8"):
        here("export", tmp_path / "short.key", words="short")
    assert not (tmp_path / "short.key").exists()


@pytest.mark.parametrize("damage", ["cut", "changed", "no base64", "nothing", "other"])
def test_what_is_no_export_is_refused(damage: str) -> None:
    content = exported(Identity(bytes(32)), WORDS)
    wrong = {
        "cut": content[:40],
        "changed": content[:60] + (b"A" if content[60:61] != b"A" else b"B") + content[61:],
        "no base64": content[:40] + b"!!" + content[40:],
        "nothing": b"",
        "other": b"-----BEGIN OPENSSH PRIVATE KEY-----",
    }[damage]
    with pytest.raises(IdentityError, match=r"^me\.key "):
        imported(wrong, WORDS, Path("me.key"))


def test_an_export_of_before_is_read() -> None:
    entropy = iter(range(100))
    content = exported(Identity(bytes(range(32))), WORDS, lambda n: bytes([next(entropy)] * n))
    assert content == VECTOR
    assert imported(VECTOR, WORDS, Path("x")).public_key == Identity(bytes(range(32))).public_key
