"""Decoders of what lies on disk: a run's directory, its log, keys, policies and run files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from random import Random

from safetensors.numpy import save

from coordinator import admission as admitting
from coordinator import initial, orders, recovery, remembering
from coordinator import log as update_log
from coordinator.directory import BrokerChoice, RunDirectory, keep_spec, known_spec, spec_in
from coordinator.history import keys
from coordinator.history.carve import carve
from coordinator.log import LogReader, ResultRow, UpdateLog, UpdateRow
from coordinator.metrics_file import METRICS, latest_update
from coordinator.pool.events import Ban, Rely
from coordinator.trust import Trust
from coordinator.versions import Versions
from protocol import policy_file, replay
from protocol import spec as run_spec
from protocol.authority import Authority
from protocol.envelope import signed
from protocol.errors import ShoalError
from protocol.identity import Identity
from protocol.messages import encode
from scripts.fuzzing.decoder import Decoder
from scripts.fuzzing.wire import (
    CLIMBING,
    HOST,
    ID,
    RUN,
    SECRET,
    SPEC,
    WORKER,
    first_update,
    result_of,
)
from worker import play


def run_file(scratch: Path) -> Decoder:
    """Run files in TOML."""
    corpus = tuple(run_spec.to_toml(each).encode() for each in (SPEC, CLIMBING))
    file = scratch / "spec.toml"

    def read(data: bytes) -> object:
        file.write_bytes(data)
        return spec_in(scratch), replay.arithmetic(spec_in(scratch))

    return Decoder("toml", corpus, read, (ShoalError,))


def setting(scratch: Path) -> Decoder:
    """Values of `--set`."""
    corpus = (
        b"strategy.sigma=0.05",
        b"environment.kwargs={gravity = 9.8}",
        b"policy.hidden=[64, 64]",
        b"name=some-text",
    )

    def read(data: bytes) -> object:
        text = data.decode(errors="replace")
        return run_spec.parse(run_spec.merge(run_spec.to_plain(SPEC), run_spec.settings([text])))

    return Decoder("text", corpus, read, (ShoalError,))


def policy(scratch: Path) -> Decoder:
    """Policies in a run's directory, to be played or to begin with."""
    state = replay.initial_state(SPEC)
    tensors = policy_file.to_tensors(SPEC, state.theta, state.normalizer)
    corpus = (save(dict(tensors), metadata={"version": "3", "run": RUN}),)
    (scratch / "spec.toml").write_text(run_spec.to_toml(SPEC), encoding="utf-8")
    file = scratch / "policy.safetensors"

    def read(data: bytes) -> object:
        file.write_bytes(data)
        found = initial.read(file)
        initial.matched(SPEC.tensors, found.tensors, file, ordered=False)
        return initial.begin(SPEC, file), play.load(scratch)

    return Decoder("bytes", corpus, read, (ShoalError,))


def order(scratch: Path) -> Decoder:
    """Orders that wait for the host."""
    path = scratch / "orders.jsonl"
    orders.give(path, Ban(ID.worker, "why"))
    orders.give(path, Rely(ID.worker))
    corpus = (path.read_bytes(),)

    def read(data: bytes) -> object:
        path.write_bytes(data)
        return orders.take(path)

    return Decoder("json", corpus, read, (ShoalError,))


def invites(scratch: Path) -> Decoder:
    """What a host keeps of its invites, and whom they let in."""
    admitting.keep_settings(scratch, admitting.Settings("invite"))
    admitting.invite(scratch, "for a friend", 2)
    return _of_admission(scratch, admitting.INVITES)


def admitted(scratch: Path) -> Decoder:
    """Whom invites have let in."""
    admitting.keep_settings(scratch, admitting.Settings("invite"))
    made, _ = admitting.invite(scratch, "for a friend", 2)
    lines = [json.dumps([made.id, WORKER.fingerprint]), json.dumps([made.id, HOST.fingerprint])]
    (scratch / admitting.ADMITTED).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _of_admission(scratch, admitting.ADMITTED)


def admission(scratch: Path) -> Decoder:
    """How a host lets workers in."""
    admitting.keep_settings(scratch, admitting.Settings("list", (WORKER.fingerprint,)))
    return _of_admission(scratch, admitting.SETTINGS)


def trust(scratch: Path) -> Decoder:
    """What is known of workers, as the log has it."""
    known = Trust(0.1, Random(1), ["t" * 16])
    for worker in ("a" * 16, "b" * 16):
        for other in ("c" * 16, "d" * 16, "e" * 16):
            known.confirmed(worker, other, 4)
        known.audited(worker, 8, whole=False)
    known.convict("b" * 16, "it lied")
    corpus = (remembering.written(known).encode(),)

    def read(data: bytes) -> object:
        found = Trust(0.1, Random(1))
        log = _Noted({update_log.TRUST: data.decode(errors="replace")})
        remembering.take_up(found, remembering.read(log))  # type: ignore[arg-type]
        for worker in list(found.records):
            found.audited(worker, 8, whole=False)
            found.confirmed(worker, "f" * 16, 4)
            found.compared(worker, "f" * 16, 3, 1)
        return remembering.written(found)

    return Decoder("json", corpus, read, (ShoalError,))


def broker_choice(scratch: Path) -> Decoder:
    """The broker that a run is led over."""
    directory = RunDirectory.create(scratch / "run", RUN)
    choice = BrokerChoice("auto", "0.0.0.0", 8883, "example.org", True)
    corpus = (json.dumps(asdict(choice)).encode(),)
    path = scratch / "run" / "broker.json"

    def read(data: bytes) -> object:
        path.write_bytes(data)
        found = directory.remembered()
        return found.broker.lower(), found.bind.lower(), (found.port or 0) + 1

    return Decoder("json", corpus, read, (ShoalError,))


def metrics(scratch: Path) -> Decoder:
    """Lines of metrics, the last of which a run goes on with."""
    run_dir = RunDirectory.create(scratch / "run", RUN).path
    path = run_dir / METRICS
    line = {"kind": "update", "version": 7, "mean_return": 3.5, "wire_bytes": 100}
    corpus = ("".join(json.dumps({**line, "version": v}) + "\n" for v in range(3)).encode(),)

    def read(data: bytes) -> object:
        path.write_bytes(data)
        return latest_update(run_dir)

    return Decoder("json", corpus, read, ())


def key(scratch: Path) -> Decoder:
    """Files of keys."""
    file = scratch / "some.key"
    HOST.save(file)
    corpus = (file.read_bytes(),)

    def read(data: bytes) -> object:
        file.write_bytes(data)
        return Identity.load(file)

    return Decoder("text", corpus, read, (ShoalError,))


def key_backup(scratch: Path) -> Decoder:
    """Backups of a run's key."""
    chain = Authority(RUN, HOST.public_key).amended(HOST, 2, HOST.public_key, (b"d" * 16,))
    content = {
        "format": "shoal-key-backup-1",
        "run": RUN,
        "root": HOST.public_key.hex(),
        "key": (b"h" * 32).hex(),
        "secret": SECRET.hex(),
        "charters": [charter.hex() for charter in chain.charters],
    }
    file = scratch / "backup.json"

    def read(data: bytes) -> object:
        file.write_bytes(data)
        return keys.read_backup(file)

    return Decoder("json", (json.dumps(content).encode(),), read, (ShoalError,))


def history(scratch: Path) -> Decoder:
    """The file of a log, as those who go on, list and verify read it."""
    file = scratch / "log.sqlite"
    corpus = (_log(file),)

    def read(data: bytes) -> object:
        _write(file, data)
        with LogReader(file) as log:
            log.damage()
            recovery.read_authority(log, RUN, HOST.public_key)
            log.noted_octets(update_log.ROOT)
            log.noted_octets(update_log.BASE_DIGEST)
            known_spec(scratch, log)
            return log.notes(), log.evaluations(), log.aside_rows(), list(log.rows())

    return Decoder("bytes", corpus, read, (ShoalError,))


def carved(scratch: Path) -> Decoder:
    """What `shoal repair` finds in the pages of a damaged log."""
    file = scratch / "log.sqlite"
    corpus = (_log(file),)

    def read(data: bytes) -> object:
        _write(file, data)
        found = carve(file)
        return found.updates, found.notes

    return Decoder("bytes", corpus, read, ())


def kept_steps(scratch: Path) -> Decoder:
    """Updates and results in a sound log, as a run that goes on takes them up."""
    file = scratch / "log.sqlite"
    _log(file)
    directory = RunDirectory.create(scratch / "run", RUN)
    directory.keep_secret(SECRET)
    update = signed(HOST, "update", (RUN,), first_update(CLIMBING))
    proof, body = update[:65], update[65:]

    def read(data: bytes) -> object:
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA synchronous = OFF")  # a disk that syncs takes most of it
            connection.execute("UPDATE updates SET payload = ?", (proof + data,))
            connection.execute("UPDATE results SET payload = ?", (data,))
        connection.close()
        with LogReader(file) as log:
            before = replay.initial_state(SPEC)
            versions = Versions(before, 2)
            return recovery.remembered(SPEC, directory, log, versions), recovery.remembered(
                CLIMBING, directory, log, Versions(replay.initial_state(CLIMBING), 2)
            )

    return Decoder("msgpack", (body,), read, (ShoalError,))


FILES: dict[str, Callable[[Path], Decoder]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        *(run_file, setting, policy, order, invites, admitted, admission, trust, broker_choice),
        *(metrics, key, key_backup, history, carved, kept_steps),
    )
}
"""By the names that people give."""


class _Noted:
    """As much of a log as tells notes."""

    def __init__(self, notes: dict[str, str]) -> None:
        self.noted = notes.get


def _of_admission(scratch: Path, name: str) -> Decoder:
    path = scratch / name
    corpus = (path.read_bytes(),)

    def read(data: bytes) -> object:
        path.write_bytes(data)
        found = admitting.Admission.of(scratch, RUN)
        admitting.admitted_by(scratch)
        return found.reason_to_refuse(WORKER.public_key, b"")

    return Decoder("json", corpus, read, (ShoalError,))


def _log(file: Path) -> bytes:
    """A small log of a run, and its bytes."""
    with UpdateLog(file, RUN, keep_returns=True) as log:
        keep_spec(log, SPEC)
        recovery.keep_authority(log, Authority(RUN, HOST.public_key))
        log.note(update_log.BASE_DIGEST, bytes(16).hex())
        payload = signed(HOST, "update", (RUN,), first_update(SPEC))
        log.extend([UpdateRow(v, payload, 1.0, 32, 0, float(v), 2) for v in range(4)])
        row = ResultRow(ID.worker, ID.session, 9, "members", 0, 9, encode(result_of()))
        log.keep_results([row])
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return file.read_bytes()


def _write(file: Path, data: bytes) -> None:
    for ending in ("-wal", "-shm"):
        file.with_name(f"{file.name}{ending}").unlink(missing_ok=True)
    file.write_bytes(data)
