import dataclasses
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from protocol import optimizers, snapshot
from protocol.frozen import FrozenError, Snapshots
from protocol.packing import WireError
from protocol.proof import CHUNK_BYTES, cut, proof
from protocol.state import Arithmetic, State, initial_state


def rules_of(size: int = 60_000, dims: int = 3) -> Arithmetic:
    return Arithmetic("rademacher", 5, optimizers.make("adam", {}), size, dims, window=2)


RULES = rules_of()


def state_of(version: int = 64, rules: Arithmetic = RULES) -> State:
    """A state whose bytes are all different in theta."""
    first = initial_state(rules, np.arange(rules.size, dtype=np.float32), 0.1)
    return dataclasses.replace(first, version=version)


def names_in(snapshots: Snapshots) -> list[str]:
    return [path.name for path in snapshots.directory.iterdir()]


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path / "snapshots")


@pytest.mark.parametrize("size", [10, 20_000, 60_000])
def test_frozen_state_is_its_bytes_chunk_by_chunk(snapshots: Snapshots, size: int) -> None:
    state = state_of(rules=rules_of(size))
    frozen = snapshots.freeze(state)
    data = snapshot.to_bytes(state)
    assert frozen.path.read_bytes() == data
    assert (frozen.version, frozen.proof.total) == (64, len(data))
    assert frozen.chunks == -(-len(data) // 196608)
    parts = [frozen.chunk(index) for index in range(frozen.chunks)]
    assert b"".join(parts) == data
    assert all(len(part) == CHUNK_BYTES for part in parts[:-1])
    assert frozen.proof == proof(cut(data))
    assert frozen.digest == snapshot.state_digest(state)


def test_every_way_to_keep_a_state_gives_the_same(snapshots: Snapshots) -> None:
    state = state_of()
    frozen = snapshots.freeze(state)
    assert snapshots.open(64) == frozen
    assert snapshots.freeze(state, frozen.proof) == frozen
    assert snapshots.keep(64, snapshot.to_bytes(state)) == frozen
    assert frozen.path.read_bytes() == snapshot.to_bytes(state)


def test_thawed_state_is_the_one_that_was_frozen(snapshots: Snapshots) -> None:
    state = state_of()
    thawed = snapshots.freeze(state).thaw(RULES)
    assert snapshot.to_bytes(thawed) == snapshot.to_bytes(state)


def test_versions_are_listed_in_order_and_nothing_else(snapshots: Snapshots) -> None:
    assert snapshots.versions() == []
    for version in (640, 64, 0, 128):
        snapshots.freeze(state_of(version))
    for stranger in (".snapshot.part", "snapshot-1.bin.old", "snapshot--1.bin", "notes"):
        (snapshots.directory / stranger).touch()
    assert snapshots.versions() == [0, 64, 128, 640]
    snapshots.remove(64)
    snapshots.remove(65)
    assert snapshots.versions() == [0, 128, 640]


def test_what_a_crash_left_is_overwritten(snapshots: Snapshots) -> None:
    snapshots.directory.mkdir()
    (snapshots.directory / ".snapshot.part").write_bytes(bytes(9_000_000))
    frozen = snapshots.freeze(state_of())
    assert frozen.path.read_bytes() == snapshot.to_bytes(state_of())
    assert names_in(snapshots) == ["snapshot-64.bin"]


def test_interrupted_writing_leaves_the_old_one_and_no_trace(snapshots: Snapshots) -> None:
    old = snapshots.freeze(state_of())
    broken = dataclasses.replace(state_of(), theta=np.array(["x"], dtype=object))
    with pytest.raises(ValueError):
        snapshots.freeze(broken)
    assert snapshots.open(64) == old
    assert names_in(snapshots) == ["snapshot-64.bin"]


def test_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FrozenError, match=r"can't keep the snapshot .*file.*see to the disk"):
        Snapshots(tmp_path / "file").freeze(state_of())
    assert Snapshots(tmp_path / "file").versions() == []


def test_what_is_not_there_cannot_be_read(snapshots: Snapshots) -> None:
    frozen = snapshots.freeze(state_of())
    snapshots.remove(64)
    for read in (lambda: frozen.chunk(0), lambda: frozen.thaw(RULES), lambda: snapshots.open(64)):
        with pytest.raises(FrozenError, match="can't read the snapshot"):
            read()


def test_damaged_chunk_is_not_handed_out(snapshots: Snapshots) -> None:
    frozen = snapshots.freeze(state_of())
    data = bytearray(frozen.path.read_bytes())
    data[CHUNK_BYTES + 7] ^= 1
    frozen.path.write_bytes(data)
    assert frozen.chunk(0) == bytes(data[:CHUNK_BYTES])
    with pytest.raises(FrozenError, match=r"chunk 1 .* is damaged"):
        frozen.chunk(1)
    assert snapshots.open(64).digest != frozen.digest


def test_cut_file_holds_no_state(snapshots: Snapshots) -> None:
    frozen = snapshots.freeze(state_of())
    frozen.path.write_bytes(frozen.path.read_bytes()[:-1])
    with pytest.raises(WireError):
        frozen.thaw(RULES)
    with pytest.raises(FrozenError):
        frozen.chunk(frozen.chunks - 1)


def test_freezing_takes_no_memory_for_the_whole_state(snapshots: Snapshots) -> None:
    state = state_of(rules=rules_of(500_000))
    size = snapshot.state_bytes(rules_of(500_000))
    tracemalloc.start()
    try:
        snapshots.freeze(state)
        snapshots.open(64)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < size // 8
