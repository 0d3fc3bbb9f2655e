"""Bytes on the coordinator's sockets per episode, for a small network and one of a million weights.

Population 256, 2 workers, CartPole-v1; the large network's episodes are cut to keep it short.
"""

from __future__ import annotations

import json

from bench_demo import solve

NETWORKS = {
    "226 parameters": ["--hidden", "32", "--updates", "12"],
    "1,003,990 parameters": [
        "--hidden",
        "998,998",
        "--updates",
        "8",
        "--set",
        "centre.screening=5",
        "--set",
        "centre.episodes=5",
    ],
}


def main() -> None:
    """Print a line per network and one of JSON."""
    figures = {}
    for name, flags in NETWORKS.items():
        extra = ["--population", "256", "--set", "stop.target=1e9", *flags]
        row = solve("CartPole-v1", seed=0, workers=2, limit=300.0, extra=extra)
        figures[name] = row["wire_bytes_per_episode"]
        print(
            f"{name}: {row['wire_bytes_per_episode']:.2f} bytes/episode over "
            f"{row['episodes']:,} episodes, {row['updates']} updates",
            flush=True,
        )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
