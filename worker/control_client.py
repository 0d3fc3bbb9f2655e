"""Asks the workers of this machine, over their local sockets."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import IO

from worker.control import LONGEST_LINE, Answer, ControlError, Request, answer, line_of
from worker.control_server import reachable
from worker.places import Neighbour, neighbours, plain

PATIENCE = 10.0
"""Seconds that a worker may be silent for."""
PIECE = 1 << 20


class NobodyError(ControlError):
    """No such worker runs."""

    exit_code = 1


def chosen(home: Path, name: str | None, pid: int | None) -> list[Neighbour]:
    """The places that a person means, whether somebody has them or not: all where neither is
    given."""
    return [
        place
        for place in neighbours(home)
        if (name is None or place.name == plain(name)) and (pid is None or place.pid == pid)
    ]


def running(home: Path, name: str | None, pid: int | None) -> list[Neighbour]:
    """The workers that a person means. Raises `NobodyError`, which names those that there are."""
    found = [place for place in chosen(home, name, pid) if place.pid]
    if found:
        return found
    there = [f"{place.name} (pid {place.pid})" for place in neighbours(home) if place.pid]
    if there:
        raise NobodyError(f"no such worker runs with the home {home}; there are {', '.join(there)}")
    raise NobodyError(
        f"no worker runs with the home {home}: start one with shoal join, or give its --home"
    )


def ask(place: Neighbour, wanted: Request) -> tuple[Answer, bytes]:
    """What a worker answers, and what bytes follow. Raises `ControlError`."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(PATIENCE)
            with reachable(place.socket) as path:
                connection.connect(path)
            connection.sendall(line_of(wanted))
            with connection.makefile("rb") as stream:
                if not (line := stream.readline(LONGEST_LINE)):
                    raise ControlError(
                        f"the worker {place.name} (pid {place.pid}) closed without an answer: it "
                        "ends, or has too many to answer at this moment; ask again"
                    )
                said = answer(line)
                data = _exactly(stream, said.size)
    except OSError as error:
        raise ControlError(
            f"the worker {place.name} (pid {place.pid}) does not answer at {place.socket} "
            f"({error.strerror or error}): it starts, ends, has too many to answer at this moment, "
            "or belongs to another user"
        ) from None
    if said.error:
        raise ControlError(f"the worker {place.name} says: {said.error}")
    return said, data


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = stream.read(min(PIECE, size - len(data)))
        if not piece:
            raise ControlError(f"the worker ended after {len(data):,} of {size:,} bytes: ask again")
        data += piece
    return bytes(data)
