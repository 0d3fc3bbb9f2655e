"""Rows of a damaged SQLite file, taken from its pages where SQLite itself can't find them any more.

A row is whole in a leaf page of its table, but for what overflows to further pages. So each page is
looked at as if it were such a leaf, those in the write-ahead log too: what parses is a candidate,
and whoever takes it must prove it. See "Database File Format", https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from coordinator.log import PAGE_BYTES, UpdateRow, Value

Cell = int | float | bytes | str | None

_LEAF_HEADER = 8
_FILE_HEADER = 100
_WAL_HEADER, _FRAME_HEADER = 32, 24
_MOST_LOCAL = PAGE_BYTES - 35
_LEAST_LOCAL = (PAGE_BYTES - 12) * 32 // 255 - 23
_MOST_BYTES = 1 << 20
"""Of a row: an update fits a message of 256 KiB."""
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_UPDATE_CELLS = 7
_MOST_CELLS = 11


Image = tuple[int, bytes]
"""Number and content of a page; later ones of a number are newer."""


class Carved:
    """What can be found in the pages of a log."""

    def __init__(self, images: Sequence[Image]) -> None:
        """Look through these pages."""
        self._pages = dict(images)
        self.updates: dict[int, list[UpdateRow]] = {}
        """By version, those written last first: not proved."""
        self.notes: dict[str, list[Value]] = {}
        """By key, those written last first."""
        for number, page in images:
            for rowid, cells in self._rows(number, page):
                self._sort(rowid, cells)

    def _sort(self, rowid: int, cells: list[Cell]) -> None:
        if len(cells) == _UPDATE_CELLS and cells[0] is None and isinstance(cells[1], bytes):
            made_at, members, late, seconds, workers = cells[2:]
            if not isinstance(made_at, int | float) or not isinstance(seconds, int | float):
                return
            if isinstance(members, int) and isinstance(late, int) and isinstance(workers, int):
                row = UpdateRow(
                    rowid, cells[1], float(made_at), members, late, float(seconds), workers
                )
                self.updates.setdefault(rowid, []).insert(0, row)
        elif len(cells) == 2 and isinstance(cells[0], str) and cells[1] is not None:
            self.notes.setdefault(cells[0], []).insert(0, cells[1])

    def _rows(self, number: int, page: bytes) -> Iterator[tuple[int, list[Cell]]]:
        """(rowid, values) of what parses as a row if the page is a leaf of a table."""
        header = _FILE_HEADER if number == 1 else 0
        if len(page) < header + _LEAF_HEADER:
            return
        (count,) = struct.unpack_from(">H", page, header + 3)
        places = header + _LEAF_HEADER
        most = min(count, (len(page) - places) // 2)
        # What is no such leaf has mostly zeros there, and the same numbers over and over.
        for place in dict.fromkeys(struct.unpack_from(f">{most}H", page, places)):
            if place < places:
                continue
            try:
                size, after = _varint(page, place)
                rowid, after = _varint(page, after)
                yield rowid, _record(self._payload(page, after, size))
            except (ValueError, LookupError, struct.error):
                continue  # no row, or one that is damaged

    def _payload(self, page: bytes, begin: int, size: int) -> bytes:
        """The bytes of a row that begins in this page."""
        if size > _MOST_BYTES:
            raise ValueError("larger than any row")
        local = size
        if size > _MOST_LOCAL:
            local = _LEAST_LOCAL + (size - _LEAST_LOCAL) % (PAGE_BYTES - 4)
            if local > _MOST_LOCAL:
                local = _LEAST_LOCAL
        parts = [page[begin : begin + local]]
        missing = size - len(parts[0])
        place = page[begin + local : begin + local + 4]
        while missing > 0:
            following = self._pages[int.from_bytes(place, "big")]
            place = following[:4]
            parts.append(following[4 : 4 + missing])
            missing -= len(parts[-1])
            if not parts[-1]:
                raise ValueError("a page that is cut short")
        return b"".join(parts)


def carve(file: Path) -> Carved:
    """What is in a log and in its write-ahead log. Raises OSError."""
    data = file.read_bytes()
    images = [
        (1 + begin // PAGE_BYTES, data[begin : begin + PAGE_BYTES])
        for begin in range(0, len(data), PAGE_BYTES)
    ]
    return Carved([*images, *_frames(file)])


def carve_ahead(file: Path) -> Carved:
    """What is in the write-ahead log of a log alone, taken over or not. Raises OSError."""
    return Carved(_frames(file))


def _frames(file: Path) -> list[Image]:
    """The pages in the write-ahead log, in the order in which they were written."""
    wal = file.with_name(f"{file.name}-wal")
    data = wal.read_bytes() if wal.exists() else b""
    frames = []
    for begin in range(_WAL_HEADER, len(data), _FRAME_HEADER + PAGE_BYTES):
        page = data[begin + _FRAME_HEADER : begin + _FRAME_HEADER + PAGE_BYTES]
        frames.append((int.from_bytes(data[begin : begin + 4], "big"), page))
    return frames


def _record(payload: bytes) -> list[Cell]:
    """The values of a row. Raises ValueError or LookupError where it is none."""
    end, place = _varint(payload, 0)
    kinds = []
    while place < end:
        kind, place = _varint(payload, place)
        kinds.append(kind)
        if len(kinds) > _MOST_CELLS:
            raise ValueError("more values than a row of any table has")
    cells: list[Cell] = []
    for kind in kinds:
        size = _size(kind)
        data = payload[place : place + size]
        if len(data) < size:
            raise ValueError("a row that is cut short")
        cells.append(_cell(kind, data))
        place += size
    return cells


def _size(kind: int) -> int:
    if kind >= 12:
        return (kind - 12) // 2
    return 8 if kind == 7 else _INTEGERS.get(kind, 0)


def _cell(kind: int, data: bytes) -> Cell:
    if kind == 0:
        return None
    if kind in _INTEGERS:
        return int.from_bytes(data, "big", signed=True)
    if kind == 7:
        return float(struct.unpack(">d", data)[0])
    if kind in (8, 9):
        return kind - 8
    if kind < 12:
        raise ValueError("a kind that no value has")
    return data if kind % 2 == 0 else data.decode("utf-8")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """(value, place after it) of up to 9 bytes, 7 bits each but for the last."""
    value = 0
    for length in range(9):
        octet = data[place + length]
        if length == 8:
            return value << 8 | octet, place + 9
        value = value << 7 | octet & 0x7F
        if octet < 0x80:
            return value, place + length + 1
    raise ValueError("unreachable")
