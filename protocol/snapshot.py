"""A state as bytes and back, whole or chunk by chunk."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike, NDArray

from protocol import amended
from protocol.normalizer import HIGHEST_EXPONENT, LOWEST_EXPONENT, NormalizerState
from protocol.packing import WireError
from protocol.proof import CHUNK_BYTES, Data, Proof, proof
from protocol.state import Arithmetic, State
from protocol.strategies.base import LARGEST_SIGMA

MAGIC = b"shoal\x00\x00\x01"
_HEADER = struct.Struct("<8sQQQd")
_COUNTER_LIMIT = 1 << 53


def to_bytes(state: State) -> bytes:
    """The state, whole and canonical: equal states give equal bytes.

    All little-endian: magic, version, episodes, steps (uint64), sigma (float64), theta (float32),
    the slots in the order of their names (float64); then with a normaliser its count, means,
    squares, shifts (float64) and exponents (int16); in a run that has a cap that (uint64); where
    the strategy keeps them, the sigmas per parameter, and what else it remembers in the order of
    the names (float64); where the strategy needs acceptance all this once more, of the accepted
    version. The run spec tells all lengths. Where updates have changed settings these follow, as
    `protocol.amended` writes them.
    """
    return b"".join(_whole(state))


def chunks(state: State) -> Iterator[bytes]:
    """What `to_bytes` gives, cut into chunks; never in memory as a whole."""
    chunk = bytearray()
    for part in _whole(state):
        begin = 0
        while begin < len(part):
            taken = part[begin : begin + CHUNK_BYTES - len(chunk)]
            begin += len(taken)
            chunk += taken
            if len(chunk) == CHUNK_BYTES:
                yield bytes(chunk)
                chunk.clear()
    if chunk:
        yield bytes(chunk)


def from_bytes(arithmetic: Arithmetic, data: Data) -> State:
    """The state that `to_bytes` wrote, for a run with this arithmetic.

    Raises:
        WireError: another length than this run's states have, or values that no state has.
    """
    expected = state_bytes(arithmetic)
    if not 0 <= len(data) - expected <= amended.MOST_BYTES:
        raise WireError(f"a state of {len(data):,} bytes where this run's have {expected:,}")
    try:
        settings = amended.from_bytes(memoryview(data)[expected:])
    except WireError as error:
        raise WireError(
            f"a state of {len(data):,} bytes where this run's have {expected:,}, and what follows "
            f"them is none that was amended: {error}"
        ) from None
    if not arithmetic.strategy.needs_acceptance:
        return dataclasses.replace(_plain(arithmetic, data), amended=settings)
    half = expected // 2
    state = _plain(arithmetic, memoryview(data)[:half])
    accepted = _plain(arithmetic, memoryview(data)[half:expected])
    if accepted.version > state.version:
        raise WireError(f"a state of version {state.version} that accepts {accepted.version}")
    return dataclasses.replace(state, accepted=accepted, amended=settings)


def _plain(arithmetic: Arithmetic, data: Data) -> State:
    """The state that these bytes are, without an accepted one."""
    magic, version, episodes, steps, sigma = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise WireError("a state that does not begin with the mark of this format")
    if max(version, episodes, steps) > _COUNTER_LIMIT:
        raise WireError(f"a state of version {version}, {episodes} episodes, {steps} steps")
    if not 0.0 < sigma <= LARGEST_SIGMA:
        raise WireError(
            f"a state with sigma {sigma}: must be above 0, and at most {LARGEST_SIGMA:g}"
        )
    reader = _Reader(data, _HEADER.size)
    theta = reader.floats("<f4", (arithmetic.size,)).astype(np.float32)
    blank = arithmetic.optimizer.initial_slots(arithmetic.size)
    slots = {
        name: reader.floats("<f8", blank[name].shape).astype(np.float64) for name in sorted(blank)
    }
    statistics = None
    if arithmetic.observation_dims:
        statistics = _statistics(reader, arithmetic.observation_dims, arithmetic.window)
    cap = None
    if arithmetic.cap is not None:
        cap = int(reader.array("<u8", (1,))[0])
        if cap > arithmetic.cap.longest:
            raise WireError(f"a state that cuts episodes after {cap} steps")
    begun = arithmetic.strategy.begin(arithmetic.size, sigma)
    sigmas = None
    if begun.sigmas is not None:
        sigmas = reader.floats("<f8", (arithmetic.size,)).astype(np.float64)
        if (sigmas <= 0.0).any() or (sigmas > LARGEST_SIGMA).any():
            raise WireError(f"a state with a sigma that is not above 0, or over {LARGEST_SIGMA:g}")
    memory = {
        name: reader.floats("<f8", begun.memory[name].shape).astype(np.float64)
        for name in sorted(begun.memory)
    }
    return State(version, theta, slots, sigma, statistics, episodes, steps, cap, sigmas, memory)


def state_bytes(arithmetic: Arithmetic) -> int:
    """How many bytes every state of a run takes, without settings that were changed."""
    slots = arithmetic.optimizer.initial_slots(arithmetic.size).values()
    total = _HEADER.size + 4 * arithmetic.size + sum(slot.nbytes for slot in slots)
    dims, window = arithmetic.observation_dims, arithmetic.window
    if dims:
        total += 8 + 16 * dims + 10 * window * dims
    begun = arithmetic.strategy.begin(arithmetic.size, 1.0)
    total += 0 if begun.sigmas is None else begun.sigmas.nbytes
    total += sum(vector.nbytes for vector in begun.memory.values())
    total += 8 if arithmetic.cap is not None else 0
    return 2 * total if arithmetic.strategy.needs_acceptance else total


def prove(state: State) -> Proof:
    """What proves a whole state."""
    return proof(chunks(state))


def state_digest(state: State) -> bytes:
    """16 bytes that prove a whole state."""
    return prove(state).digest


class _Reader:
    """Takes arrays off the front of bytes whose length has been checked."""

    def __init__(self, data: Data, offset: int) -> None:
        self._data = data
        self._offset = offset

    def array(self, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[np.generic]:
        count = math.prod(shape)
        taken = np.frombuffer(self._data, dtype, count, self._offset).reshape(shape)
        self._offset += taken.nbytes
        return taken

    def floats(self, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[np.generic]:
        taken = self.array(dtype, shape)
        if not np.isfinite(taken).all():
            raise WireError("a state with NaN or infinity")
        return taken


def _statistics(reader: _Reader, dims: int, window: int) -> NormalizerState:
    count = float(reader.floats("<f8", (1,))[0])
    mean = reader.floats("<f8", (dims,)).astype(np.float64)
    squares = reader.floats("<f8", (dims,)).astype(np.float64)
    shifts = reader.floats("<f8", (window, dims)).astype(np.float64)
    exponents = reader.array("<i2", (window, dims)).astype(np.int16)
    if count < 0.0 or count != math.floor(count) or (squares < 0.0).any():
        raise WireError("a state with impossible observation statistics")
    if (exponents < LOWEST_EXPONENT).any() or (exponents > HIGHEST_EXPONENT).any():
        raise WireError("a state with observation exponents out of range")
    return NormalizerState(count, mean, squares, shifts, exponents)


def _whole(state: State) -> Iterator[bytes | memoryview]:
    """The bytes of a state in order, and those of the settings that hold."""
    yield from _parts(state)
    if settings := state.amended.to_bytes():
        yield settings


def _parts(state: State) -> Iterator[bytes | memoryview]:
    """Those of all else, its arrays not copied."""
    yield _HEADER.pack(MAGIC, state.version, state.episodes, state.steps, state.sigma)
    yield _octets(state.theta, "<f4")
    for name in sorted(state.slots):
        yield _octets(state.slots[name], "<f8")
    statistics = state.normalizer
    if statistics is not None:
        yield struct.pack("<d", statistics.count)
        for array in (statistics.mean, statistics.squares, statistics.shifts):
            yield _octets(array, "<f8")
        yield _octets(statistics.exponents, "<i2")
    if state.cap is not None:
        yield struct.pack("<Q", state.cap)
    if state.sigmas is not None:
        yield _octets(state.sigmas, "<f8")
    for name in sorted(state.memory):
        yield _octets(state.memory[name], "<f8")
    if state.accepted is not None:
        yield from _parts(state.accepted)


def _octets(array: NDArray[np.generic], dtype: DTypeLike) -> memoryview:
    return np.ascontiguousarray(array, dtype=dtype).reshape(-1).view(np.uint8).data
