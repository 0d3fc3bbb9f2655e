"""The run key: backed up, restored, and succeeded by a new one.

A backup is one JSON file for its owner only, with all that nobody can make again: the key in
charge, the run's secret, and the charters, which prove that it is in charge.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from coordinator import recovery
from coordinator.directory import RunDirectory
from coordinator.history.past import HistoryError, known_keys, opened, unused
from coordinator.log import EPOCH, UpdateLog
from protocol.authority import Authority
from protocol.identity import KEY_BYTES, Identity, IdentityError, run_belongs_to
from protocol.kept_json import read_json
from protocol.packing import WireError

_FORMAT = "shoal-key-backup-1"
_MOST_CHARTERS = 64
"""That an epoch can name."""
_MOST_BYTES = 1 << 20
"""Of a backup."""


@dataclass(frozen=True, slots=True)
class Rotated:
    """A new run key, in charge from an epoch on."""

    identity: Identity
    epoch: int
    kept_as: Path
    """the old key"""


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds."""

    run: str
    identity: Identity
    secret: bytes
    authority: Authority


@dataclass(frozen=True, slots=True)
class _Content:
    """What lies in the file of one; bytes as hexadecimal digits."""

    format: str
    run: str
    root: str
    key: str
    secret: str
    charters: list[str]


def home_key(home: str) -> Path:
    """The key of this machine, with which it stands by for runs of others; `home`: SHOAL_HOME."""
    where = Path(home) if home else Path.home() / ".local" / "share" / "shoal"
    return where / "host.key"


def rotate(path: Path) -> Rotated:
    """Make a new key for the run in this directory, in charge from its next epoch on.

    The old key signs that it is so; afterwards it is needed no more. A rotation that was cut off is
    finished. Raises `ShoalError`, also where somebody leads the run.
    """
    with closing(RunDirectory.open(path)) as directory:
        _require_log(directory)
        key = directory.key_path
        pending = key.with_name("run.key.next")
        with closing(UpdateLog(directory.log_path, directory.run)) as log:
            authority = recovery.read_authority(log, directory.run, _root_key(directory))
            epoch = _next_epoch(recovery.last_epoch(log, authority), authority)
            old = Identity.load(key)
            if _is_in_charge(authority, old, epoch):
                pending.unlink(missing_ok=True)
                identity = Identity.generate()
                identity.save(pending)
                recovery.keep_authority(log, _succeeded(authority, old, identity, epoch))
                # Whoever leads next has a later epoch, and may say in it who stands by.
                log.note(EPOCH, epoch)
            elif pending.exists() and _is_in_charge(authority, Identity.load(pending), epoch):
                identity, epoch = Identity.load(pending), authority.links[-1].epoch
            else:
                raise HistoryError(
                    f"the key {key} ({old.fingerprint}) is not in charge of the run "
                    f"{directory.run}: restore the one that is from a backup (shoal key restore)"
                )
        with _explained(key):
            kept_as = _keep_old(key)
            pending.replace(key)
    return Rotated(identity, epoch, kept_as)


def backup(path: Path, file: Path) -> Backup:
    """Write what nobody can make again of the run in this directory to a new file.

    Raises `ShoalError`, also where the file exists.
    """
    with opened(path) as past:
        identity = Identity.load(path / "run.key")
        epoch = _next_epoch(recovery.last_epoch(past.log, past.authority), past.authority)
        if not _is_in_charge(past.authority, identity, epoch):
            raise HistoryError(
                f"the key {path / 'run.key'} ({identity.fingerprint}) is not in charge of the run "
                f"{past.run}: there is nothing to back up here"
            )
        with _explained(path / "secret"):
            secret = (path / "secret").read_bytes()
        content = {
            "format": _FORMAT,
            "run": past.run,
            "root": past.authority.root.hex(),
            "key": _secret_of(path / "run.key"),
            "secret": secret.hex(),
            "charters": [charter.hex() for charter in past.authority.charters],
        }
        made = Backup(past.run, identity, secret, past.authority)
    _write_new(file, json.dumps(content, indent=1).encode() + b"\n")
    return made


def restore(path: Path, file: Path) -> tuple[Backup, Path | None]:
    """Give the run in this directory the key, the secret and the charters of a backup.

    Another key that lies there is kept, under the name that is returned too. The directory may be
    that of a standby. Raises `ShoalError`: a backup of another run, a key that is in charge no
    more, somebody who leads the run.
    """
    held = read_backup(file)
    with closing(RunDirectory.open(path)) as directory:
        if directory.run != held.run:
            raise HistoryError(
                f"{file} is a backup of the run {held.run}, {path} holds {directory.run}: "
                "give the directory of that run"
            )
        _require_log(directory)
        key = directory.key_path
        with closing(UpdateLog(directory.log_path, directory.run)) as log:
            known = recovery.read_authority(log, directory.run, held.authority.root)
            authority = held.authority if held.authority.extends(known) else known
            if not authority.extends(held.authority):
                raise HistoryError(
                    f"{file} has other charters than {log.path}: give a backup of this very run"
                )
            epoch = _next_epoch(recovery.last_epoch(log, authority), authority)
            if not _is_in_charge(authority, held.identity, epoch):
                raise HistoryError(
                    f"the key in {file} ({held.identity.fingerprint}) was succeeded by another one "
                    f"from epoch {authority.links[-1].epoch} on: give a later backup"
                )
            recovery.keep_authority(log, authority)
        directory.keep_secret(held.secret)
        kept_as = None
        with _explained(key):
            if held.identity.public_key not in _keys_in(key) and key.exists():
                kept_as = _keep_old(key)
                key.unlink()
            if not key.exists():
                held.identity.save(key)
    return held, kept_as


def read_backup(file: Path) -> Backup:
    """What `backup` wrote. Raises `HistoryError`."""
    with _explained(file), file.open("rb") as opened_file:
        data = opened_file.read(_MOST_BYTES)
    try:
        content = read_json(data, _Content)
        if content.format != _FORMAT:
            raise ValueError("another format")
        identity = Identity(bytes.fromhex(content.key))
        secret = bytes.fromhex(content.secret)
        if len(secret) != KEY_BYTES:
            raise ValueError("a secret of another length")
        charters = [bytes.fromhex(charter) for charter in content.charters]
        authority = Authority.read(content.run, bytes.fromhex(content.root), charters)
    except (ValueError, WireError) as error:
        raise HistoryError(
            f"{file} is no backup of a run's key ({type(error).__name__}: {error}): give a file "
            "that `shoal key backup` wrote"
        ) from None
    return Backup(content.run, identity, secret, authority)


def _next_epoch(last: int, authority: Authority) -> int:
    """The first epoch that nobody can have led yet, and that no charter is about yet."""
    chartered = authority.links[-1].epoch if authority.links else 0
    return max(last, chartered) + 1


def _is_in_charge(authority: Authority, identity: Identity, epoch: int) -> bool:
    return authority.run_key(epoch) == identity.public_key


def _require_log(directory: RunDirectory) -> None:
    """Raise `ShoalError` where there is no log yet, or no more: none must be begun here."""
    if not directory.has_log:
        raise HistoryError(
            f"the run in {directory.path} was not led yet: lead it first "
            f"(shoal host --resume {directory.path})"
        )


def _root_key(directory: RunDirectory) -> bytes:
    keys = known_keys(directory.path)
    return next((key for key in keys if run_belongs_to(directory.run, key)), b"")


def _succeeded(authority: Authority, old: Identity, new: Identity, epoch: int) -> Authority:
    """The authority with one charter more: the new key is in charge from that epoch on; the
    delegates stay who they are."""
    if len(authority.charters) >= _MOST_CHARTERS:
        raise HistoryError(
            f"the run {authority.run} has {len(authority.charters)} charters, more than "
            f"{_MOST_CHARTERS} can't be told: fork it to go on with a key of its own"
        )
    return authority.amended(old, epoch, new.public_key, authority.delegates(epoch))


def _keep_old(key: Path) -> Path:
    """Give the key file a second name, which is returned."""
    kept_as = unused(key.with_name(f"{key.name}.{{}}"))
    os.link(key, kept_as)
    return kept_as


def _secret_of(key: Path) -> str:
    """The hexadecimal digits of a key file that `Identity.load` took."""
    return key.read_text(encoding="ascii").split()[1]


def _keys_in(key: Path) -> list[bytes]:
    """The public key of a key file; none where it is missing or damaged."""
    try:
        return [Identity.load(key).public_key]
    except IdentityError:
        return []


def _write_new(file: Path, data: bytes) -> None:
    """Write a file for its owner only, which must not exist. Raises `HistoryError`."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise HistoryError(f"{file} exists, and no backup is overwritten: give another") from None
    except OSError as error:
        raise HistoryError(
            f"{file} can't be written ({error.strerror}): give another place"
        ) from None
    with _explained(file), os.fdopen(handle, "wb") as opened_file:
        opened_file.write(data)
        opened_file.flush()
        os.fsync(opened_file.fileno())


@contextlib.contextmanager
def _explained(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HistoryError(
            f"{file} can't be read or written ({error.strerror or error}): see to it"
        ) from None
