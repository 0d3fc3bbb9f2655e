"""The compiled loops: noise streams, exact sums over them, members, observation sums.

Everything here is integer arithmetic or single IEEE operations in a fixed order, so that it gives
the same bits on every CPU. Numba's `fastmath`, `parallel` and `error_model` stay at their defaults
for that reason. `protocol.noise` and `protocol.normalizer` say what the results mean; the functions
here check nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from protocol.normalizer import LIMIT

if sys.byteorder != "little":
    raise ImportError("this machine is big-endian: noise streams are read as little-endian words")

CHUNK = 2048  # bytes of a stream in hand at once: eight of them and their tables fit in L1
STRETCH = 8192  # parameters of a row that are written before the next row's
PAGE, GAP = np.uint64(CHUNK), np.uint64(64)
PAGE_WORDS = (CHUNK + 64) // 8
"""A stream that is read out of order lies in pages with a cache line between them: columns of a
matrix whose width is a power of two would else all fall into the same few sets of the cache."""
ROWS = 8  # streams that are summed in one pass over a chunk
HALF_ROWS = 4

# Philox4x64's multipliers and Weyl increments (Salmon et al. 2011, table 2).
MULTIPLIER_0 = np.uint64(0xD2E7470EE14C6C93)
MULTIPLIER_1 = np.uint64(0xCA5A826395121157)
WEYL_0 = np.uint64(0x9E3779B97F4A7C15)
WEYL_1 = np.uint64(0xBB67AE8584CAA73B)
PHILOX_ROUNDS = 10

ZERO = np.uint64(0)
ONE = np.uint64(1)
NOISE = np.uint64(0)  # protocol.streams.Domain.NOISE

OBSERVATION_LIMIT = np.int64(LIMIT)


@intrinsic
def wide_product(typing_context: Any, left: Any, right: Any) -> Any:
    """The 128-bit product of two unsigned 64-bit integers, as (high word, low word).

    One multiplication on every 64-bit CPU; NumPy and Numba have no word for it. Taking both halves
    from one product also keeps LLVM from splitting it into slower vector code.
    """
    pair = types.UniTuple(types.uint64, 2)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = arguments[0].type
        double = type(word)(128)
        product = builder.mul(
            builder.zext(arguments[0], double), builder.zext(arguments[1], double)
        )
        high = builder.trunc(builder.lshr(product, double(64)), word)
        return context.make_tuple(builder, pair, (high, builder.trunc(product, word)))

    return pair(types.uint64, types.uint64), generate


@njit
def fill_stream(
    run_seed: np.uint64,
    domain: np.uint64,
    index: np.uint64,
    first_counter: np.uint64,
    out: NDArray[np.uint64],
    count: int,
) -> None:
    """Write stream words from word 4 * first_counter on; `count` is rounded up to eights.

    Two counters go side by side: one alone leaves the multiplier idle while it waits for itself.
    """
    for i in range(0, count, 8):
        # NumPy's Philox counts before it draws, so the first counter of a stream is 1.
        a0 = first_counter + np.uint64(i >> 2) + ONE
        b0 = a0 + ONE
        a1 = a2 = b1 = b2 = ZERO
        a3 = b3 = domain
        key_0 = run_seed
        key_1 = index
        for _ in range(PHILOX_ROUNDS):
            high_0, low_0 = wide_product(MULTIPLIER_0, a0)
            high_1, low_1 = wide_product(MULTIPLIER_1, a2)
            a0, a1, a2, a3 = high_1 ^ a1 ^ key_0, low_1, high_0 ^ a3 ^ key_1, low_0
            high_0, low_0 = wide_product(MULTIPLIER_0, b0)
            high_1, low_1 = wide_product(MULTIPLIER_1, b2)
            b0, b1, b2, b3 = high_1 ^ b1 ^ key_0, low_1, high_0 ^ b3 ^ key_1, low_0
            key_0 += WEYL_0
            key_1 += WEYL_1
        out[i] = a0
        out[i + 1] = a1
        out[i + 2] = a2
        out[i + 3] = a3
        out[i + 4] = b0
        out[i + 5] = b1
        out[i + 6] = b2
        out[i + 7] = b3


@njit(cache=True, nogil=True)
def first_words(
    run_seed: np.uint64, domain: np.uint64, indices: NDArray[np.uint64], out: NDArray[np.uint64]
) -> None:
    """out[i] = the first word of stream (run_seed, domain, indices[i])."""
    block = np.empty(8, np.uint64)
    for i in range(indices.size):
        fill_stream(run_seed, domain, indices[i], ZERO, block, 8)
        out[i] = block[0]


@njit
def byte_table(weights: NDArray[np.int64], first: int, table: NDArray[np.int64]) -> None:
    """table[v] = sum over bits b of v of +-weights[first + b]: eight signed weights in one look-up.

    Weights before the first and behind the last are zero.
    """
    below = 0
    for bit in range(8):
        if 0 <= first + bit < weights.size:
            below -= weights[first + bit]
    table[0] = below
    for bit in range(8):
        step = 0
        if 0 <= first + bit < weights.size:
            step = 2 * weights[first + bit]
        for value in range(1 << bit):
            table[value + (1 << bit)] = table[value] + step


@njit(cache=True, nogil=True)
def add_rademacher_sum(
    run_seed: np.uint64, start: int, weights: NDArray[np.int64], out: NDArray[np.int64]
) -> None:
    """out[j] += sum over i of weights[i] * rademacher direction (start + i) at j.

    Eight directions share a block of the stream, one byte a parameter, so a block costs one look-up
    a parameter. Sums stay in the 64-bit range, which the caller has proved.
    """
    size = out.size
    first_block = start >> 3
    blocks = ((start & 7) + weights.size + 7) >> 3
    # Zero tables fill the last group up; what stands in their rows of the buffer does not matter.
    tables = np.zeros(((blocks + ROWS - 1) // ROWS * ROWS, 256), np.int64)
    for block in range(blocks):
        byte_table(weights, 8 * block - (start & 7), tables[block])
    words = np.zeros((ROWS, CHUNK // 8), np.uint64)
    for chunk in range(0, size, CHUNK):
        length = min(CHUNK, size - chunk)
        whole = length >> 3
        for group in range(0, blocks, ROWS):
            for row in range(min(ROWS, blocks - group)):
                index = np.uint64(first_block + group + row)
                counter = np.uint64(chunk >> 5)
                fill_stream(run_seed, NOISE, index, counter, words[row], (length + 7) >> 3)
            for i in range(whole):
                s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0
                for row in range(ROWS):
                    word = words[row, i]
                    table = tables[group + row]
                    s0 += table[np.uint8(word)]
                    s1 += table[np.uint8(word >> np.uint64(8))]
                    s2 += table[np.uint8(word >> np.uint64(16))]
                    s3 += table[np.uint8(word >> np.uint64(24))]
                    s4 += table[np.uint8(word >> np.uint64(32))]
                    s5 += table[np.uint8(word >> np.uint64(40))]
                    s6 += table[np.uint8(word >> np.uint64(48))]
                    s7 += table[np.uint8(word >> np.uint64(56))]
                j = chunk + 8 * i
                out[j] += s0
                out[j + 1] += s1
                out[j + 2] += s2
                out[j + 3] += s3
                out[j + 4] += s4
                out[j + 5] += s5
                out[j + 6] += s6
                out[j + 7] += s7
            for i in range(8 * whole, length):
                shift = np.uint64(8 * (i & 7))
                for row in range(ROWS):
                    out[chunk + i] += tables[group + row, np.uint8(words[row, i >> 3] >> shift)]


@njit(cache=True, nogil=True)
def add_table_sum(
    run_seed: np.uint64,
    start: np.uint64,
    weights: NDArray[np.int64],
    table: NDArray[np.int16] | NDArray[np.int32],
    out: NDArray[np.int64],
) -> None:
    """out[j] += sum over i of weights[i] * table[16-bit word j of direction (start + i)]."""
    size = out.size
    words = np.zeros((HALF_ROWS, CHUNK // 4), np.uint64)
    weight = np.empty(HALF_ROWS, np.int64)
    for chunk in range(0, size, CHUNK):
        length = min(CHUNK, size - chunk)
        whole = length >> 2
        for group in range(0, weights.size, HALF_ROWS):
            weight[:] = 0
            for row in range(min(HALF_ROWS, weights.size - group)):
                weight[row] = weights[group + row]
                index = start + np.uint64(group + row)
                counter = np.uint64(chunk >> 4)
                fill_stream(run_seed, NOISE, index, counter, words[row], (length + 3) >> 2)
            for i in range(whole):
                s0 = s1 = s2 = s3 = 0
                for row in range(HALF_ROWS):
                    word = words[row, i]
                    s0 += weight[row] * table[np.uint16(word)]
                    s1 += weight[row] * table[np.uint16(word >> np.uint64(16))]
                    s2 += weight[row] * table[np.uint16(word >> np.uint64(32))]
                    s3 += weight[row] * table[np.uint16(word >> np.uint64(48))]
                j = chunk + 4 * i
                out[j] += s0
                out[j + 1] += s1
                out[j + 2] += s2
                out[j + 3] += s3
            for i in range(4 * whole, length):
                shift = np.uint64(16 * (i & 3))
                for row in range(HALF_ROWS):
                    word = words[row, i >> 2]
                    out[chunk + i] += weight[row] * table[np.uint16(word >> shift)]


def size_at(scale: Any, j: int) -> np.float32:
    """The scale of parameter j: of all where it is one number, else its own."""
    raise NotImplementedError("this is for compiled code")


@overload(size_at, strict=False)  # the lambdas have no annotations
def _size_at(scale: Any, j: Any) -> Any:
    if isinstance(scale, types.Array):
        return lambda scale, j: scale[j]
    return lambda scale, j: scale


@njit(cache=True, nogil=True)
def rademacher_members(
    run_seed: np.uint64,
    start: int,
    per_direction: int,
    theta: NDArray[np.float32],
    scale: np.float32 | NDArray[np.float32],
    order: NDArray[np.int32],
    out: NDArray[np.float32],
) -> None:
    """Rows 2 i and 2 i + 1 of `out` become theta + and - scale * direction (start + i); with one
    member per direction row i becomes theta + scale * direction (start + i).

    Column j of `theta`, of a `scale` that is no number, and of `out` is parameter order[j]. Eight
    directions are put in order at once, as bytes, so that the rows are written straight through.
    """
    size, end = theta.size, start + out.shape[0] // per_direction
    pages = (size + CHUNK - 1) // CHUNK
    words = np.empty(pages * PAGE_WORDS, np.uint64)
    octets = words.view(np.uint8)
    ordered = np.empty(STRETCH, np.uint8)
    for block in range(start >> 3, (end + 7) >> 3):
        for page in range(pages):
            counter = np.uint64(page * (CHUNK >> 5))
            length = min(CHUNK, size - page * CHUNK)
            room = words[page * PAGE_WORDS : (page + 1) * PAGE_WORDS]
            fill_stream(run_seed, NOISE, np.uint64(block), counter, room, (length + 7) >> 3)
        for chunk in range(0, size, STRETCH):
            length = min(STRETCH, size - chunk)
            places = order[chunk : chunk + length]
            for j in range(length):
                place = np.uint64(places[j])  # unsigned: Numba need not look for negative ones
                ordered[j] = octets[place + (place // PAGE) * GAP]
            centre = theta[chunk : chunk + length]
            for direction in range(max(start, 8 * block), min(end, 8 * block + 8)):
                mask = np.uint8(1 << (direction & 7))
                row = per_direction * (direction - start)
                plus = out[row, chunk : chunk + length]
                if per_direction == 1:
                    for j in range(length):
                        size_here = size_at(scale, chunk + j)
                        plus[j] = centre[j] + (size_here if ordered[j] & mask else -size_here)
                    continue
                minus = out[row + 1, chunk : chunk + length]
                for j in range(length):
                    size_here = size_at(scale, chunk + j)
                    step = size_here if ordered[j] & mask else -size_here
                    plus[j] = centre[j] + step
                    minus[j] = centre[j] - step


@njit(cache=True, nogil=True)
def table_members(
    run_seed: np.uint64,
    start: np.uint64,
    per_direction: int,
    table: NDArray[np.int16],
    theta: NDArray[np.float32],
    scale: np.float32 | NDArray[np.float32],
    order: NDArray[np.int32],
    out: NDArray[np.float32],
) -> None:
    """As `rademacher_members`, with table[16-bit word] as the noise; product and sum each round."""
    size = theta.size
    words = np.empty((size + 31) // 32 * 8, np.uint64)
    halves = words.view(np.uint16)
    for i in range(out.shape[0] // per_direction):
        fill_stream(run_seed, NOISE, start + np.uint64(i), ZERO, words, (size + 3) >> 2)
        plus = out[per_direction * i]
        if per_direction == 1:
            for j in range(size):
                plus[j] = theta[j] + size_at(scale, j) * np.float32(table[halves[order[j]]])
            continue
        minus = out[2 * i + 1]
        for j in range(size):
            step = size_at(scale, j) * np.float32(table[halves[order[j]]])
            plus[j] = theta[j] + step
            minus[j] = theta[j] - step


@njit
def observe_frame(
    observation: NDArray[np.float32] | NDArray[np.float64],
    shift: NDArray[np.float64],
    scale: NDArray[np.float64],
    sums: NDArray[np.uint64],
) -> None:
    """Add one frame to `sums`, which the caller counts; other kernels may call this directly.

    Args:
        observation: shape (dims,).
        shift, scale: shape (dims,); of the version that the frame is measured under.
        sums: shape (dims, 4), in place: the sum of q as a signed 128-bit integer (low word, high
            word), the sum of q**2 as an unsigned one. q = rint((x - shift) * scale), limited to
            +-OBSERVATION_LIMIT; NaN counts as 0.
    """
    for d in range(shift.size):
        scaled = (np.float64(observation[d]) - shift[d]) * scale[d]
        q = np.int64(0)
        if scaled >= OBSERVATION_LIMIT:
            q = OBSERVATION_LIMIT
        elif scaled <= -OBSERVATION_LIMIT:
            q = -OBSERVATION_LIMIT
        elif scaled == scaled:
            q = np.int64(np.rint(scaled))
        low = np.uint64(q)
        total = sums[d, 0] + low
        # The high word of a negative q is all ones: adding it is taking one away.
        sums[d, 1] += np.uint64(q >> 63) + (ONE if total < low else ZERO)
        sums[d, 0] = total
        high, low = wide_product(np.uint64(abs(q)), np.uint64(abs(q)))
        total = sums[d, 2] + low
        sums[d, 3] += high + (ONE if total < low else ZERO)
        sums[d, 2] = total


@njit(cache=True, nogil=True)
def observe_frames(
    observations: NDArray[np.float32] | NDArray[np.float64],
    shift: NDArray[np.float64],
    scale: NDArray[np.float64],
    sums: NDArray[np.uint64],
) -> None:
    """Add every row of `observations`, shape (frames, dims), to `sums`; see `observe_frame`."""
    for i in range(observations.shape[0]):
        observe_frame(observations[i], shift, scale, sums)
