"""Whom the host lets in: everybody, whoever has an invite, or the workers on a list.

What decides is a signature: an invite is the seed of a key, of which the host keeps only the
fingerprint; whoever has it signs that it admits a worker's key to the run. A broker of ours that
other machines reach asks for the token too, as a password, so that strangers don't come that far.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from coordinator.broker.passwords import hashed
from protocol.disk import write_whole
from protocol.errors import ShoalError
from protocol.identity import Identity, digest_of, fingerprint
from protocol.invites import invited_by, login_of, seed_of, token_of
from protocol.kept_json import DamagedJson, read_json

Mode = Literal["open", "invite", "list"]
MODES: tuple[Mode, ...] = ("open", "invite", "list")
SETTINGS, INVITES, ADMITTED = "admission.json", "invites.json", "admitted.jsonl"
POOL_TOKEN, OWN_TOKEN = "pool.token", "own.token"
OWN_LABEL, MOST_OWN = "the host's own workers", 256


@dataclass(frozen=True, slots=True)
class Invite:
    """One invite as the host keeps it.

    Attributes:
        id: fingerprint of the invite's key; the token can't be computed from it.
        label: whom it is for, in the host's own words.
        machines: how many workers' keys it admits; the first ones that come with it.
        password: the hash of the one that the token is at a broker of ours.
    """

    id: str
    label: str
    machines: int
    revoked: bool = False
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """Whom a host lets in; `listed` are fingerprints of workers' keys."""

    mode: Mode = "open"
    listed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Settings:
    """What lies on disk: whom a host lets in is said there, or it is no word at all."""

    mode: Mode
    listed: tuple[str, ...] = ()


def changed(before: Settings, mode: str | None, listed: Sequence[str] | None) -> Settings:
    """The settings with what a host was asked for. Raises ShoalError."""
    after = before
    if mode is not None:
        for known in MODES:
            if known == mode:
                after = replace(after, mode=known)
                break
        else:
            raise ShoalError(f"--admission {mode[:40]!r}: must be open, invite or list")
    if listed is not None:
        for worker in listed:
            digest_of(worker)
        after = replace(after, listed=tuple(dict.fromkeys(listed)))
    if after.listed and after.mode != "list":
        raise ShoalError("--admit names workers for --admission list: give both")
    if after.mode == "list" and not after.listed:
        raise ShoalError(
            "--admission list: name the workers that may take part with --admit FINGERPRINT"
        )
    return after


def read_settings(directory: Path) -> Settings:
    """What the host of the run in a directory was asked for last. Raises ShoalError."""
    content = _read(directory / SETTINGS)
    if content is None:
        return Settings()
    try:
        kept = read_json(content, _Settings)
    except DamagedJson:
        raise _damaged(directory / SETTINGS) from None
    return Settings(kept.mode, kept.listed)


def keep_settings(directory: Path, settings: Settings) -> None:
    """Keep them for the next time. Raises ShoalError."""
    _write(directory / SETTINGS, asdict(settings))


def read_invites(directory: Path) -> list[Invite]:
    """All invites of a run, in the order in which they were made. Raises ShoalError."""
    content = _read(directory / INVITES)
    if content is None:
        return []
    try:
        return read_json(content, list[Invite])
    except DamagedJson:
        raise _damaged(directory / INVITES) from None


def invite(directory: Path, label: str, machines: int) -> tuple[Invite, str]:
    """Make an invite -> what is kept of it, and the token, which is not. Raises ShoalError."""
    identity, token = _new_token()
    _, password = login_of(token)
    made = Invite(identity.fingerprint, label[:64], machines, password=hashed(password))
    with _alone(directory):
        _write(directory / INVITES, [asdict(one) for one in (*read_invites(directory), made)])
    return made, token


def revoke(directory: Path, id: str) -> Invite:
    """Let an invite admit nobody any more: the one whose id begins so. Raises ShoalError."""
    with _alone(directory):
        return _revoke(directory, id)


def _revoke(directory: Path, id: str) -> Invite:
    invites = read_invites(directory)
    found = [one for one in invites if one.id.startswith(id)]
    if len(found) != 1 or not id:
        raise ShoalError(
            f"--revoke {id[:40]!r}: {'several invites begin' if found else 'no invite begins'} so; "
            "--list shows them all"
        )
    gone = replace(found[0], revoked=True)
    kept = [gone if one.id == gone.id else one for one in invites]
    _write(directory / INVITES, [asdict(one) for one in kept])
    return gone


def passes(directory: Path, settings: Settings) -> dict[str, str] | None:
    """Who may come in at a broker of ours: user names and hashed passwords; None: everybody.

    Raises ShoalError.
    """
    if settings.mode == "open":
        return None
    if settings.mode == "list":
        user, password = login_of(pool_token(directory))
        return {user: hashed(password)}
    known = [one for one in read_invites(directory) if not one.revoked]
    return {one.id: one.password for one in known if one.password}


def pool_token(directory: Path) -> str:
    """The token that lets all workers on the list in at a broker of ours, made where there is none
    yet. Raises ShoalError."""
    path = directory / POOL_TOKEN
    kept = _read(path)
    if kept is None:
        _, token = _new_token()
        _write_text(path, token + "\n")
        return token
    try:
        seed_of(kept)
    except ShoalError:
        raise _damaged(path) from None
    return kept.strip()


def own_token(directory: Path, settings: Settings) -> str:
    """The token that the host's own workers come in with at a broker of ours; empty: none is asked
    for. Raises ShoalError.

    With invites it is one of them, made where there is none yet or it was revoked; it lies in
    `own.token`.
    """
    if settings.mode == "open":
        return ""
    if settings.mode == "list":
        return pool_token(directory)
    kept = _read(directory / OWN_TOKEN)
    if kept is not None:
        with contextlib.suppress(ShoalError):
            id = Identity(seed_of(kept)).fingerprint
            if any(one.id == id and not one.revoked for one in read_invites(directory)):
                return kept.strip()
    _, token = invite(directory, OWN_LABEL, MOST_OWN)
    _write_text(directory / OWN_TOKEN, token + "\n")
    return token


def admitted_by(directory: Path) -> dict[str, list[str]]:
    """The workers' fingerprints that each invite has admitted so far, by its id."""
    found: dict[str, list[str]] = {}
    for line in (_read(directory / ADMITTED) or "").splitlines():
        try:
            id, worker = read_json(line, tuple[str, str])
        except DamagedJson:
            continue  # empty, or cut short by a full disk
        found.setdefault(id, []).append(worker)
    return found


@dataclass
class Admission:
    """Judges who asks for a session; what lies in the run's directory may change meanwhile."""

    directory: Path
    run: str
    settings: Settings
    own: set[str] = field(default_factory=set)
    """fingerprints of the keys of the host's own workers, which are always let in"""
    _invites: dict[str, Invite] = field(default_factory=dict)
    _admitted: dict[str, list[str]] = field(default_factory=dict)
    _by: dict[str, str] = field(default_factory=dict)
    _state: tuple[int, int] | None = None

    @classmethod
    def of(cls, directory: Path, run: str) -> Admission:
        """As the directory of the run has it. Raises ShoalError."""
        admission = cls(directory, run, read_settings(directory))
        admission.look()
        return admission

    def look(self) -> bool:
        """Read the invites again where they changed; whether they did. Raises ShoalError."""
        if self.settings.mode != "invite":
            return False
        try:
            status = (self.directory / INVITES).stat()
            state = (status.st_mtime_ns, status.st_ino)
        except OSError:
            state = (0, 0)
        if state == self._state:
            return False
        self._state = state
        self._invites = {one.id: one for one in read_invites(self.directory)}
        self._admitted = admitted_by(self.directory)
        self._by = {worker: id for id, workers in self._admitted.items() for worker in workers}
        return True

    def reason_to_refuse(self, worker_key: bytes, proof: bytes) -> str:
        """Why the owner of a key, with the proof of an invite or b"", is not let in; empty: it is.

        A worker that was let in once needs no proof any more, as long as its invite holds.
        """
        worker = fingerprint(worker_key)
        if self.settings.mode == "open" or worker in self.own:
            return ""
        if self.settings.mode == "list":
            if worker in self.settings.listed:
                return ""
            return f"the host has a list of workers, and {worker} is not on it: ask the host"
        self.look()
        key = invited_by(self.run, worker_key, proof)
        id = self._by.get(worker, "") if key is None else fingerprint(key)
        one = self._invites.get(id)
        if one is None:
            return "the host takes invited workers: ask it for a token, and join with --invite"
        if one.revoked:
            return "the host has revoked the invite: ask it for another token"
        known = self._admitted.setdefault(id, [])
        if worker not in known:
            if len(known) >= one.machines:
                return (
                    f"the invite is for {one.machines} worker{'s' * (one.machines != 1)}, which "
                    "came already: ask the host for another token"
                )
            self._keep(id, worker)
            known.append(worker)
        self._by[worker] = id
        return ""

    def _keep(self, id: str, worker: str) -> None:
        path = self.directory / ADMITTED
        try:
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                # On a line of its own, though a full disk may have cut the one before.
                file.write("\n" + json.dumps([id, worker]) + "\n")
        except OSError as error:
            raise ShoalError(
                f"{path} can't be written ({error.strerror}): see to the disk"
            ) from None


def _new_token() -> tuple[Identity, str]:
    seed = os.urandom(32)
    return Identity(seed), token_of(seed)


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Nobody else changes the invites meanwhile: else what one of two just did would be undone, be
    it that somebody was shut out. Raises ShoalError."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ShoalError(
            f"{directory} can't be read ({error.strerror}): give the directory of a run"
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise _damaged(path) from None


def _write(path: Path, values: object) -> None:
    _write_text(path, json.dumps(values, indent=1) + "\n")


def _write_text(path: Path, text: str) -> None:
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise ShoalError(f"{path} can't be written ({error.strerror}): see to the disk") from None


def _damaged(path: Path) -> ShoalError:
    remedy = "remove it to begin without"
    if path.name == SETTINGS:  # without it the run takes everybody
        remedy = "remove it, and say with --admission again whom the run takes"
    return ShoalError(f"{path} can't be read: restore it, or {remedy}")
