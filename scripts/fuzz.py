"""Holds every decoder to its declared errors, in bounded memory and time, on changed payloads.

    python scripts/fuzz.py --payloads 1000000 [--seed S] [--decoder NAME ...] [--first N]

Each decoder gets so many payloads: valid ones that were changed in their structure (trees of
msgpack and JSON, lines of TOML) or their bytes (bits, cuts, lengths that lie, depth), and noise. A
payload that breaks a rule is kept as a file, and named by its number, from which `--first` goes on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.fuzzing.trying import DECODERS, Fault, bound_memory, tried

MOST_MEMORY = 1 << 30
"""Bytes that the process may grow by; beyond them it gets no more."""


def main() -> None:
    """Print a line for each decoder; the exit code is 1 where one broke its word."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--payloads", type=int, default=10_000, help="for each decoder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first payload")
    parser.add_argument("--decoder", action="append", choices=sorted(DECODERS), metavar="NAME")
    given = parser.parse_args()
    bound_memory(MOST_MEMORY)
    faults = 0
    for name in given.decoder or DECODERS:
        try:
            done = tried(name, given.payloads, given.seed, given.first)
        except Fault as fault:
            faults += 1
            kept = Path(f"fuzz-{name}.payload")
            kept.write_bytes(fault.payload)
            print(f"FAULT {fault}\nkept in {kept}", flush=True)
            continue
        print(
            f"{name:14} {done.payloads:9,} payloads, {done.accepted / done.payloads:5.1%} taken, "
            f"{1e6 * done.seconds / done.payloads:6.0f} us each, the slowest "
            f"{1e3 * done.slowest:5.0f} ms, the largest {done.largest / 1e6:5.1f} MB",
            flush=True,
        )
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
