"""Gives payloads to decoders, one after the other, and holds each to what it declares."""

from __future__ import annotations

import gc
import logging
import resource
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from scripts.fuzzing.decoder import Decoder
from scripts.fuzzing.files import FILES
from scripts.fuzzing.mutating import mutated
from scripts.fuzzing.wire import WIRE

DECODERS: dict[str, Callable[[Path], Decoder]] = {**WIRE, **FILES}
MOST_SECONDS = 2.0
"""Of processor time for one payload: a message that takes longer would hold a coordinator up."""
MOST_BYTES = 64 << 20
"""Of memory for one payload, at its peak."""
MEASURED = 64
"""Of so many payloads one has its memory traced, which makes it several times slower."""


MEMORY = Path("/dev/shm")
"""Where files of decoders lie, if it is there: a disk takes longer to replace one than it takes to
be read."""


class Fault(Exception):  # noqa: N818
    """A decoder broke its word on a payload."""

    def __init__(self, name: str, seed: int, number: int, payload: bytes, what: str) -> None:
        super().__init__(
            f"{name}, payload {number} of seed {seed}: {what}\n{payload[:200]!r} "
            f"({len(payload):,} bytes)"
        )
        self.payload = payload


@dataclass
class Tried:
    """What a decoder did with its payloads."""

    payloads: int = 0
    accepted: int = 0
    seconds: float = 0.0
    """of processor time, with making the payloads"""
    slowest: float = 0.0
    """seconds for one payload"""
    largest: int = 0
    """bytes of memory for one payload"""


def tried(name: str, payloads: int, seed: int, first: int = 0) -> Tried:
    """What a decoder does with so many payloads, from number `first` on. Raises `Fault`."""
    room = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="shoal-fuzz-", dir=room) as folder, _quiet():
        decoder = DECODERS[name](Path(folder))
        for valid in decoder.corpus:
            decoder.read(valid)
        done = Tried()
        began = time.process_time()
        for number in range(first, first + payloads):
            payload = payload_of(name, decoder, seed, number)
            try:
                accepted = _try(decoder, payload, done, measured=number % MEASURED == 0)
            except Exception as error:
                raise Fault(name, seed, number, payload, f"{error!r}") from error
            done.payloads += 1
            done.accepted += accepted
            if done.slowest > MOST_SECONDS:
                raise Fault(name, seed, number, payload, f"{done.slowest:.1f} s")
            if done.largest > MOST_BYTES:
                raise Fault(name, seed, number, payload, f"{done.largest:,} bytes of memory")
        done.seconds = time.process_time() - began
        return done


def payload_of(name: str, decoder: Decoder, seed: int, number: int) -> bytes:
    """The payload of this number."""
    return mutated(decoder.form, decoder.corpus, crc32(name.encode()) << 96 | seed << 48 | number)


def bound_memory(octets: int) -> None:
    """Let this process have no more than so many bytes beyond what it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + octets
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))


def _try(decoder: Decoder, payload: bytes, done: Tried, measured: bool) -> bool:
    """Whether the decoder takes the payload."""
    if not measured:
        began = time.perf_counter()
        taken = _takes(decoder, payload)
        if time.perf_counter() - began > done.slowest:
            # Or this process had to wait, and the clock of its own time takes long to be read.
            began = time.thread_time()
            _takes(decoder, payload)
            done.slowest = max(done.slowest, time.thread_time() - began)
        return taken
    tracemalloc.start()
    try:
        return _takes(decoder, payload)
    finally:
        done.largest = max(done.largest, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


def _takes(decoder: Decoder, payload: bytes) -> bool:
    try:
        decoder.read(payload)
        return True
    except decoder.refusals as error:
        _look(error)
        return False


def _look(error: Exception) -> None:
    """What is told of a refusal is one line that does not go on for ever."""
    said = str(error)
    assert said and len(said) < 2000, f"says {len(said):,} characters: {said[:200]!r}"


@contextmanager
def _quiet() -> Iterator[None]:
    """No lines about payloads, and no garbage collection that would be counted as theirs."""
    logging.disable(logging.CRITICAL)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        logging.disable(logging.NOTSET)
