from __future__ import annotations

import copy
import logging
import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from protocol import identity as module
from protocol.identity import (
    AgreementError,
    Identity,
    IdentityError,
    SessionKeys,
    Transcript,
    fingerprint,
    framed,
    lease_token,
    mac,
    new_session,
    run_belongs_to,
    run_id,
    verify,
    verify_lease_token,
    verify_mac,
    worker_id,
)
from protocol.topics import RUN_PATTERN, SESSION_PATTERN, WORKER_PATTERN

SEEDS = st.binary(min_size=32, max_size=32)
PARTS = st.lists(st.binary(max_size=40) | st.text(max_size=20) | st.integers(), max_size=6)

SEED = bytes(range(32))
SECRET_HEX = SEED.hex()


# keys and names


def test_the_public_key_is_that_of_the_standard() -> None:
    # RFC 8032, 7.1, test 1
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    public = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert Identity(seed).public_key.hex() == public


def test_the_fingerprint_is_that_of_the_protocol() -> None:
    key = Identity(SEED).public_key
    alphabet = "abcdefghijklmnopqrstuvwxyz234567"
    number = int.from_bytes(blake2b(key, digest_size=16).digest(), "big") << 2
    expected = "".join(alphabet[number >> shift & 31] for shift in range(125, -1, -5))
    assert fingerprint(key) == expected
    assert len(expected) == 26
    assert Identity(SEED).fingerprint == expected
    assert Identity(SEED).worker == worker_id(key) == expected[:16]


@given(SEEDS)
def test_names_of_keys_fit_topics(seed: bytes) -> None:
    assert WORKER_PATTERN.fullmatch(worker_id(seed))
    assert RUN_PATTERN.fullmatch(run_id("cartpole", seed))
    assert SESSION_PATTERN.fullmatch(new_session(lambda count: seed[:count]))


def test_a_run_carries_its_hosts_key() -> None:
    host, other = Identity(SEED).public_key, Identity(bytes(32)).public_key
    run = run_id("cart-pole-v1", host)
    assert run == f"cart-pole-v1-{blake2b(host, digest_size=16).hexdigest()[:8]}"
    assert run_belongs_to(run, host)
    assert not run_belongs_to(run, other)
    assert not run_belongs_to("", host)


@pytest.mark.parametrize("name", ["", "-a", "A", "a" * 41, "a/b", "a b", "a\n", "\u00e4"])
def test_impossible_run_names_are_refused(name: str) -> None:
    with pytest.raises(IdentityError, match="cannot name a run"):
        run_id(name, SEED)


def test_randomness_comes_from_where_it_is_asked() -> None:
    asked: list[int] = []

    def entropy(count: int) -> bytes:
        asked.append(count)
        return b"\x07" * count

    assert Identity.generate(entropy).public_key == Identity(b"\x07" * 32).public_key
    assert SessionKeys.generate(entropy).public_key == SessionKeys(b"\x07" * 32).public_key
    assert module.new_secret(entropy) == b"\x07" * 32
    assert module.new_nonce(entropy) == b"\x07" * 16
    assert asked == [32, 32, 32, 16]
    assert Identity.generate().public_key != Identity.generate().public_key
    assert new_session() != new_session() or new_session() != new_session()


# the file


def test_a_saved_identity_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "key"
    Identity(SEED).save(path)
    assert Identity.load(path).public_key == Identity(SEED).public_key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["key"]


def test_a_permissive_umask_does_not_open_the_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Identity(SEED).save(tmp_path / "key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key"
    Identity(SEED).save(path)
    with pytest.raises(FileExistsError):
        Identity(bytes(32)).save(path)
    assert Identity.load(path).public_key == Identity(SEED).public_key
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]


def test_without_hard_links_a_key_is_not_overwritten_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "key"
    Identity(SEED).save(path)
    with pytest.raises(FileExistsError):
        Identity(bytes(32)).save(path)
    assert Identity.load(path).public_key == Identity(SEED).public_key


def test_load_or_create_makes_a_key_once(tmp_path: Path) -> None:
    path = tmp_path / "key"
    first = Identity.load_or_create(path)
    assert Identity.load_or_create(path).public_key == first.public_key


def test_who_comes_second_gets_the_key_of_who_came_first(tmp_path: Path) -> None:
    path = tmp_path / "key"

    def entropy(count: int) -> bytes:
        Identity(SEED).save(path)  # another process, between our look and our writing
        return bytes(count)

    assert Identity.load_or_create(path, entropy).public_key == Identity(SEED).public_key


def test_processes_that_start_together_share_one_key(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from protocol.identity import Identity; "
        "print(Identity.load_or_create(Path(sys.argv[1])).fingerprint)"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "key")], stdout=subprocess.PIPE
        )
        for _ in range(4)
    ]
    prints = {child.communicate(timeout=60)[0] for child in children}
    assert prints == {Identity.load(tmp_path / "key").fingerprint.encode() + b"\n"}


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o777])
def test_a_key_that_others_may_read_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    path = tmp_path / "key"
    Identity(SEED).save(path)
    Identity.load(path)
    assert not caplog.records
    path.chmod(mode)
    with caplog.at_level(logging.WARNING, "shoal.identity"):
        assert Identity.load(path).public_key == Identity(SEED).public_key
    assert "chmod 600" in caplog.text
    assert SECRET_HEX not in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"shoal-identity-1 " + SECRET_HEX.encode(),
        b"shoal-identity-1 " + SECRET_HEX.encode()[:-1] + b"\n",
        b"shoal-identity-2 " + SECRET_HEX.encode() + b"\n",
        b"shoal-identity-1 " + SECRET_HEX.encode() + b"\nmore",
        b"shoal-identity-1 " + b"z" * 64 + b"\n",
        SECRET_HEX.encode() * 1000,
    ],
)
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    for read in (Identity.load, Identity.load_or_create):
        with pytest.raises(IdentityError, match="holds no identity") as caught:
            read(path)
        assert SECRET_HEX[:-1] not in str(caught.value)
    assert path.read_bytes() == content


def test_paths_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="No such file"):
        Identity.load(tmp_path / "missing")
    with pytest.raises(IdentityError, match="cannot read"):
        Identity.load(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(IdentityError, match="cannot write"):
        Identity(SEED).save(tmp_path / "file" / "key")


@pytest.mark.parametrize("secret", [Identity(SEED), SessionKeys(SEED)])
def test_secrets_do_not_slip_out(secret: object) -> None:
    for text in (repr(secret), str(secret), f"{secret}"):
        assert SECRET_HEX[:16] not in text
        assert repr(SEED)[2:20] not in text
    for spread in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not copied or pickled"):
            spread(secret)


# signatures and MACs


def retype(part: bytes | str | int) -> bytes | str | int:
    """The same content as another type."""
    if isinstance(part, int):
        return str(part)
    if isinstance(part, str):
        return part.encode("utf-8", "surrogatepass")
    return part.decode("latin-1")


def variations(parts: list[bytes | str | int]) -> list[list[bytes | str | int]]:
    """Lists of parts that are not `parts`, but as near as can be."""
    other: list[list[bytes | str | int]] = [[*parts, b""], [*parts, 0], [b"", *parts]]
    for index, part in enumerate(parts):
        before, after = parts[:index], parts[index + 1 :]
        other += [[*before, *after], [*before, part, part, *after], [*before, retype(part), *after]]
        if isinstance(part, int):
            other += [[*before, part + 1, *after], [*before, -part - 1, *after]]
        elif isinstance(part, str):
            other += [[*before, part + "\0", *after], [*before, part[:1], part[1:], *after]]
        else:
            other += [[*before, part + b"\0", *after], [*before, part[:1], part[1:], *after]]
    swapped = [parts[::-1]] if parts[::-1] != parts else []
    return [candidate for candidate in other if candidate != parts] + swapped


@given(st.text(max_size=10), PARTS)
def test_no_two_lists_of_parts_are_framed_alike(label: str, parts: list[bytes | str | int]) -> None:
    mine = framed(label, *parts)
    assert mine == framed(label, *parts)
    assert framed(label + "x", *parts) != mine
    for other in variations(parts):
        assert framed(label, *other) != mine


@example([b"a", b"b"], [b"abb"], "", "")
@example(["a", "b"], ["asb"], "", "")
@example([b"a"], [], "", "ba")
@given(PARTS, PARTS, st.text(max_size=5), st.text(max_size=5))
def test_framing_is_injective(
    one: list[bytes | str | int], two: list[bytes | str | int], here: str, there: str
) -> None:
    assume((here, one) != (there, two))
    assert framed(here, *one) != framed(there, *two)


@given(SEEDS, st.text(max_size=10), PARTS)
def test_a_signature_holds_for_exactly_what_was_signed(
    seed: bytes, label: str, parts: list[bytes | str | int]
) -> None:
    signer = Identity(seed)
    signature = signer.sign(label, *parts)
    assert len(signature) == 64
    assert verify(signer.public_key, signature, label, *parts)
    assert not verify(signer.public_key, signature, label + "x", *parts)
    for other in variations(parts)[:6]:
        assert not verify(signer.public_key, signature, label, *other)
    stranger = Identity(seed[::-1] if seed[::-1] != seed else bytes(31) + b"\1")
    assert not verify(stranger.public_key, signature, label, *parts)


@given(st.integers(0, 511))
def test_no_bit_of_a_signature_may_change(bit: int) -> None:
    signer = Identity(SEED)
    signature = bytearray(signer.sign("update", 7, b"body"))
    signature[bit // 8] ^= 1 << bit % 8
    assert not verify(signer.public_key, bytes(signature), "update", 7, b"body")


@given(st.binary(max_size=70), st.binary(max_size=70))
def test_garbage_never_verifies_and_never_raises(key: bytes, signature: bytes) -> None:
    assert not verify(key, signature, "update", b"body")
    assert not verify(Identity(SEED).public_key, signature, "update", b"body")


@given(SEEDS, st.text(max_size=10), PARTS)
def test_a_mac_holds_for_exactly_its_parts(
    key: bytes, label: str, parts: list[bytes | str | int]
) -> None:
    code = mac(key, label, *parts)
    assert len(code) == 16
    assert verify_mac(key, code, label, *parts)
    assert not verify_mac(key, code, label + "x", *parts)
    assert not verify_mac(bytes([key[0] ^ 1]) + key[1:], code, label, *parts)
    assert not verify_mac(key, code[:-1], label, *parts)
    assert not verify_mac(key, b"", label, *parts)
    assert not verify_mac(key, code[:-1] + bytes([code[-1] ^ 1]), label, *parts)
    for other in variations(parts):
        assert not verify_mac(key, code, label, *other)


def test_a_mac_is_not_a_plain_hash() -> None:
    assert mac(SEED, "task", b"body") != mac(bytes(32), "task", b"body")
    framing = framed("task", b"body")
    assert mac(SEED, "task", b"body") == blake2b(framing, key=SEED, digest_size=16).digest()


# the session key


def agreement() -> tuple[SessionKeys, SessionKeys, Transcript]:
    worker, host = SessionKeys(b"\x01" * 32), SessionKeys(b"\x02" * 32)
    transcript = Transcript(
        run="cartpole-1a2b3c4d",
        epoch=3,
        session="abcdef",
        worker_key=Identity(b"\x03" * 32).public_key,
        host_key=Identity(b"\x04" * 32).public_key,
        worker_exchange=worker.public_key,
        host_exchange=host.public_key,
        worker_nonce=b"\x05" * 16,
    )
    return worker, host, transcript


def test_both_sides_get_the_same_key() -> None:
    worker, host, transcript = agreement()
    key = worker.agree(transcript)
    assert key == host.agree(transcript)
    assert len(key) == 32


@pytest.mark.parametrize("name", [field.name for field in fields(Transcript)])
def test_the_key_is_bound_to_every_part_of_the_transcript(name: str) -> None:
    worker, host, transcript = agreement()
    key = worker.agree(transcript)
    value = getattr(transcript, name)
    if isinstance(value, int):
        changed: object = value + 1
    elif isinstance(value, str):
        changed = value[:-1] + "x"
    elif name.endswith("exchange"):
        changed = SessionKeys(b"\x09" * 32).public_key
    else:
        changed = value[:-1] + bytes([value[-1] ^ 1])
    other = replace(transcript, **{name: changed})
    assert framed("session key", *other.parts()) != framed("session key", *transcript.parts())
    keys = []
    for side in (worker, host):
        try:
            keys.append(side.agree(other))
        except AgreementError:
            assert name.endswith("exchange")
    assert keys
    assert key not in keys


def test_who_listens_cannot_compute_the_key() -> None:
    worker, _, transcript = agreement()
    listener = SessionKeys(b"\x08" * 32)
    with pytest.raises(AgreementError, match="not between this key"):
        listener.agree(transcript)
    forged = replace(transcript, host_exchange=listener.public_key)
    assert listener.agree(forged) != worker.agree(transcript)


@pytest.mark.parametrize(
    "poison", [bytes(32), b"\x01" + bytes(31), b"\xec" + b"\xff" * 30 + b"\x7f", b"short", b""]
)
def test_a_key_that_gives_everybody_the_same_secret_is_refused(poison: bytes) -> None:
    worker, _, transcript = agreement()
    with pytest.raises(AgreementError, match="gives no secret"):
        worker.agree(replace(transcript, host_exchange=poison))


def test_nobody_agrees_with_themselves() -> None:
    worker, _, transcript = agreement()
    with pytest.raises(AgreementError):
        worker.agree(replace(transcript, host_exchange=worker.public_key))


# lease tokens

LEASE = {
    "run": "cartpole-1a2b3c4d",
    "task_id": 12,
    "worker": "abcdefghijklmnop",
    "version": 3,
    "first": 128,
    "count": 16,
    "episodes": 1,
    "kind": "members",
}


@pytest.mark.parametrize("name", [None, "run_secret", *LEASE])
def test_a_lease_token_holds_for_exactly_its_lease(name: str | None) -> None:
    token = lease_token(SEED, **LEASE)
    lease, secret = dict(LEASE), SEED
    if name == "run_secret":
        secret = bytes(32)
    elif name is not None:
        value = lease[name]
        lease[name] = value + 1 if isinstance(value, int) else value[:-1]
    assert verify_lease_token(secret, token, **lease) is (name is None)
    assert not verify_lease_token(SEED, token[:-1], **LEASE)
    assert not verify_lease_token(SEED, b"", **LEASE)


def test_a_lease_token_is_no_session_mac() -> None:
    token = lease_token(SEED, **LEASE)
    assert not verify_mac(SEED, token, "task", *LEASE.values())


def test_verdicts_compare_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, two: bytes) -> bool:
        compared.append((one, two))
        return True

    monkeypatch.setattr(module.hmac, "compare_digest", compare)
    checks: list[Callable[[], bool]] = [
        lambda: verify_mac(SEED, bytes(16), "task", b"body"),
        lambda: verify_lease_token(SEED, bytes(16), **LEASE),
    ]
    assert all(check() for check in checks)
    assert len(compared) == 2
