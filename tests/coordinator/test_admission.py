"""Invites and lists: who is let in, by what proof, and what is kept of it."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coordinator import admission, server
from coordinator.admission import Admission, Settings, changed
from protocol.errors import ShoalError
from protocol.identity import Identity
from protocol.invites import PREFIX, invited_by, proof_of, seed_of
from shoal import app
from tests.coordinator.runs import Led, begun, broker, spec_of

RUN = "cartpole-1a2b3c4d"
ANN, BOB = Identity(b"a" * 32), Identity(b"b" * 32)


async def test_a_host_takes_invited_workers_and_sends_them_away_with_their_invite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "BEAT_SECONDS", 0.05)
    async with broker(tmp_path / "broker") as url:
        run = begun(spec_of(stop={"updates": 10**6}), tmp_path / "run")
        path = run.directory.path
        admission.keep_settings(path, Settings("invite"))
        made, token = admission.invite(path, "ann", 1)
        led = Led(run, url)
        try:
            async with led.worker() as stranger, led.worker() as invited:
                await stranger.until(lambda: bool(stranger.heard.welcomes))
                assert "ask it for a token" in stranger.heard.welcomes[0].refused
                await invited.until(lambda: bool(invited.heard.welcomes))
                invited.invite = token
                invited.say_hello()
                await invited.until(lambda: invited.heard.welcomes[-1].refused == "")
                await invited.until(lambda: bool(invited.heard.updates))
                admission.revoke(path, made.id)
                await invited.until(lambda: bool(invited.heard.notices))
                assert invited.heard.notices[0].code == "leave"
                assert "revoked" in invited.heard.notices[0].text
                assert not led.server._pool.workers
        finally:
            await led.end()


def judge(directory: Path, mode: str = "invite", listed: tuple[str, ...] = ()) -> Admission:
    admission.keep_settings(directory, changed(Settings(), mode, listed or None))
    return Admission.of(directory, RUN)


def test_an_invite_admits_so_many_workers_and_is_needed_once(tmp_path: Path) -> None:
    made, token = admission.invite(tmp_path, "ann", 1)
    door = judge(tmp_path)
    assert "ask it for a token" in door.reason_to_refuse(ANN.public_key, b"")
    assert door.reason_to_refuse(ANN.public_key, proof_of(token, RUN, ANN.public_key)) == ""
    assert door.reason_to_refuse(ANN.public_key, b"") == ""
    taken = door.reason_to_refuse(BOB.public_key, proof_of(token, RUN, BOB.public_key))
    assert "for 1 worker, which came already" in taken
    again = judge(tmp_path)  # after a restart
    assert again.reason_to_refuse(ANN.public_key, b"") == ""
    assert again.reason_to_refuse(BOB.public_key, proof_of(token, RUN, BOB.public_key)) == taken
    # An invite that is made while the host runs.
    _, second = admission.invite(tmp_path, "bob", 2)
    assert again.reason_to_refuse(BOB.public_key, proof_of(second, RUN, BOB.public_key)) == ""
    admission.revoke(tmp_path, made.id[:8])
    assert again.look()
    assert not again.look()
    assert "revoked" in again.reason_to_refuse(ANN.public_key, b"")
    assert "revoked" in again.reason_to_refuse(ANN.public_key, proof_of(token, RUN, ANN.public_key))
    assert again.reason_to_refuse(BOB.public_key, b"") == ""


def test_who_invites_while_another_revokes_undoes_nothing(tmp_path: Path) -> None:
    many = 6
    made = [admission.invite(tmp_path, f"before {number}", 1)[0] for number in range(many)]
    with ThreadPoolExecutor(2 * many) as pool:
        revoked = [pool.submit(admission.revoke, tmp_path, one.id) for one in made]
        more = [pool.submit(admission.invite, tmp_path, "after", 1) for _ in range(many)]
        assert all(done.result() for done in (*revoked, *more))
    kept = {one.id: one.revoked for one in admission.read_invites(tmp_path)}
    assert kept == {one.id: True for one in made} | {done.result()[0].id: False for done in more}


def test_a_proof_is_of_use_to_nobody_else_and_shows_nothing(tmp_path: Path) -> None:
    _, token = admission.invite(tmp_path, "", 5)
    proof = proof_of(token, RUN, ANN.public_key)
    assert invited_by(RUN, ANN.public_key, proof) == proof[:32]
    assert invited_by(RUN, BOB.public_key, proof) is None
    assert invited_by("pendulum-1a2b3c4d", ANN.public_key, proof) is None
    for wrong in (b"", proof[:-1], bytes(96), proof[:32] + bytes(64)):
        assert invited_by(RUN, ANN.public_key, wrong) is None
    forged = proof_of(PREFIX + "a" * 52, RUN, ANN.public_key)  # an invite that nobody made
    assert "ask it for a token" in judge(tmp_path).reason_to_refuse(ANN.public_key, forged)
    secret = seed_of(token)
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        assert token.removeprefix(PREFIX).encode() not in content
        assert secret not in content and secret.hex().encode() not in content
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert secret not in proof


def test_a_list_admits_its_keys_and_open_everybody(tmp_path: Path) -> None:
    door = judge(tmp_path, "list", (ANN.fingerprint,))
    assert door.reason_to_refuse(ANN.public_key, b"") == ""
    assert BOB.fingerprint in door.reason_to_refuse(BOB.public_key, b"")
    assert judge(tmp_path, "open").reason_to_refuse(BOB.public_key, b"") == ""


@pytest.mark.parametrize(
    ("mode", "listed", "named"),
    [
        ("closed", None, "must be open, invite or list"),
        ("list", None, "--admit FINGERPRINT"),
        ("invite", [ANN.fingerprint], "give both"),
        ("list", ["ann"], "no fingerprint of a key"),
    ],
)
def test_settings_that_do_not_go_together(mode: str, listed: list[str] | None, named: str) -> None:
    with pytest.raises(ShoalError, match=named):
        changed(Settings(), mode, listed)


@pytest.mark.parametrize("kept", ["", "{}", "[]", '{"mode": "everybody"}', '{"listed": []}'])
def test_settings_that_are_damaged_let_nobody_in_unasked(kept: str, tmp_path: Path) -> None:
    (tmp_path / admission.SETTINGS).write_text(kept)
    with pytest.raises(ShoalError, match=r"admission\.json can't be read: .*say with --admission"):
        admission.read_settings(tmp_path)


@pytest.mark.parametrize("token", ["", "secret-of-mine", PREFIX + "a" * 51, PREFIX + "1" * 52])
def test_what_is_no_token_is_not_repeated(token: str) -> None:
    with pytest.raises(ShoalError) as caught:
        seed_of(token)
    assert "ask the host" in str(caught.value)
    assert token == "" or token.removeprefix(PREFIX) not in str(caught.value)


def test_the_command_makes_lists_and_revokes(tmp_path: Path) -> None:
    (tmp_path / "run").write_text(RUN)

    def shoal(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["invite", str(tmp_path), *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    said = shoal("--label", "ann", "--machines", "2")
    token = said.partition("SHOAL_INVITE=")[2].split()[0]
    assert "--admission invite" in said
    door = judge(tmp_path)
    assert door.reason_to_refuse(ANN.public_key, proof_of(token, RUN, ANN.public_key)) == ""
    listed = shoal("--list")
    assert "1/2  ann" in listed and ANN.fingerprint in listed and token not in listed
    assert shoal("--revoke", listed[:6]).startswith("revoked ")
    assert "revoked  ann" in shoal("--list")
    assert json.loads((tmp_path / "invites.json").read_text())[0]["revoked"]
    for wrong in ("", "nobody"):
        with pytest.raises(ShoalError, match="--list shows"):
            admission.revoke(tmp_path, wrong)


def test_who_was_admitted_after_a_full_disk_is_known_again(tmp_path: Path) -> None:
    _, token = admission.invite(tmp_path, "ann", 2)
    proof = proof_of(token, RUN, ANN.public_key)
    (tmp_path / admission.ADMITTED).write_text('["cut sh')
    assert judge(tmp_path).reason_to_refuse(ANN.public_key, proof) == ""
    assert judge(tmp_path).reason_to_refuse(ANN.public_key, b"") == "", "it was noted whole"
