"""The random streams that every peer draws alike: counter-based, named by (seed, domain, index)."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

SEED_LIMIT = 1 << 64
EPISODE_SEED_MASK = (1 << 31) - 1


class Domain(IntEnum):
    """What a stream is for; the same index in another domain is an unrelated stream."""

    NOISE = 0
    EPISODE = 1
    ACTION = 2
    INITIALISATION = 3
    CENTRE = 4
    AUDIT = 5


def words(run_seed: int, domain: int, index: int, count: int) -> NDArray[np.uint64]:
    """The first `count` 64-bit words of a stream.

    Philox4x64-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") with the key
    (run_seed, index) and the counter (0, 0, 0, domain), in NumPy's order. This is the definition;
    `protocol.kernels` produces the same words faster.

    Args:
        run_seed: of the run, 0 <= run_seed < 2**64.
        domain: see `Domain`.
        index: of the stream in its domain, 0 <= index < 2**64.
        count: of words, at least 0.
    """
    require_unsigned("run seed", run_seed)
    require_unsigned("stream index", index)
    # Arrays, since NumPy takes a plain list with a value above 2**63 through float64.
    generator = np.random.Philox(
        key=np.array([run_seed, index], dtype=np.uint64),
        counter=np.array([0, 0, 0, domain], dtype=np.uint64),
    )
    return generator.random_raw(count)


def stream(run_seed: int, domain: int, index: int, count_bytes: int) -> NDArray[np.uint8]:
    """The first `count_bytes` bytes of a stream: its words, little-endian; see `words`."""
    whole = words(run_seed, domain, index, -(-count_bytes // 8))
    return whole.astype("<u8", copy=False).view(np.uint8)[:count_bytes]


def episode_seed(run_seed: int, index: int, domain: int = Domain.EPISODE) -> int:
    """The seed, 0 <= seed < 2**31, with which an environment starts episode `index`."""
    return int(words(run_seed, domain, index, 1)[0]) & EPISODE_SEED_MASK


def require_unsigned(what: str, value: int) -> None:
    """Raise ValueError unless 0 <= value < 2**64."""
    if not 0 <= value < SEED_LIMIT:
        raise ValueError(f"{what} {value}: must lie in 0 .. 2**64 - 1")
