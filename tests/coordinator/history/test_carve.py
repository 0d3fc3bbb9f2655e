from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.history.carve import carve
from coordinator.log import UpdateLog, UpdateRow

rows = st.builds(
    UpdateRow,
    version=st.just(0),
    payload=st.binary(max_size=300) | st.integers(0, 20_000).map(lambda size: b"\x01" * size),
    made_at=st.floats(0.0, 2e9),
    members=st.integers(0, 1 << 40),
    late=st.integers(0, 300),
    seconds=st.floats(0.0, 1e9),
    workers=st.integers(0, 10_000),
)


@settings(max_examples=25, deadline=None)
@given(
    contents=st.lists(rows, max_size=12),
    notes=st.dictionaries(
        st.text(min_size=1, max_size=20).filter(lambda key: "\0" not in key and key != "run"),
        st.binary(max_size=6000) | st.integers(-(2**63), 2**63 - 1) | st.text("abc"),
        max_size=3,
    ),
    closed=st.booleans(),
)
def test_every_row_is_found_without_sqlite(
    contents: list[UpdateRow], notes: dict[str, bytes | int | str], closed: bool
) -> None:
    wanted = [replace(row, version=version) for version, row in enumerate(contents)]
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "log.sqlite"
        log = UpdateLog(path, "test-00000000")
        for row in wanted:
            log.append(row)
        for key, value in notes.items():
            log.note(key, value)
        if closed:
            log.close()
        else:  # as a kill leaves it
            for name in ("log.sqlite", "log.sqlite-wal"):
                shutil.copy(path.with_name(name), Path(temporary) / f"copy-{name[4:]}")
            log.close()
            path = Path(temporary) / "copy-sqlite"
        carved = carve(path)
    assert [carved.updates[row.version][0] for row in wanted] == wanted
    assert {key: carved.notes[key][0] for key in notes} == notes


@settings(max_examples=50, deadline=None)
@given(data=st.binary(max_size=9000))
def test_rubbish_is_no_row_and_no_failure(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "log.sqlite"
        path.write_bytes(b"\r" + data)
        carve(path)
