"""The conformance vectors, and the ways in which they describe their inputs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

VECTORS: dict[str, Any] = json.loads(Path(__file__).with_name("vectors.json").read_text())


def digest(values: np.ndarray) -> str:
    """BLAKE2b-128 of the values as little-endian int64."""
    return hashlib.blake2b(values.astype("<i8").tobytes(), digest_size=16).hexdigest()


def weights(count: int) -> np.ndarray:
    """w[i] = (7919*i + 13) mod 1021 - 510."""
    return (7919 * np.arange(count) + 13) % 1021 - 510


def theta(size: int) -> np.ndarray:
    """float32(i) / 7."""
    return np.arange(size, dtype=np.float32) / np.float32(7)
