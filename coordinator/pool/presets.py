"""Named settings of the pool: one machine, told how long to wait for whom."""

from __future__ import annotations

from collections.abc import Mapping

PRESETS: Mapping[str, Mapping[str, float]] = {
    "sync": {
        "quorum": 1.0,
        "max_staleness": 0,
        "discount": 1,
        "patience": 1.0,
        "copies": 2,
        "stale_share": 0.0,
    },
    "quorum": {
        "quorum": 0.9,
        "max_staleness": 2,
        "discount": 2,
        "patience": 0.75,
        "copies": 1,
        "stale_share": 0.25,
    },
    "async": {
        "quorum": 0.8,
        "max_staleness": 4,
        "discount": 2,
        "patience": 0.0,
        "copies": 1,
        "stale_share": 0.5,
    },
}
"""Fields of `protocol.spec.PoolSpec` by the name of a preset: `sync` is classic ES, whose result
depends on nobody's speed; `quorum` leaves stragglers behind; `async` waits for nobody.

Each says all that decides when a batch closes, so that one can be laid over another. `async` closes
well before its last few results: those are of the longest episodes, and a discount for being late
must not be one for being long.
"""
