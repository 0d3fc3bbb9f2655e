"""Runs the tables of the systems that Shoal follows, and writes docs/results.md.

    python -m scripts.reproduce_tables
    python -m scripts.reproduce_tables --only cartpole-gru acrobot-gru-normalised
    python -m scripts.reproduce_tables --page

A seed that has a result with the row's present settings is not run again: stop it whenever you
like, and go on later. `--seeds` runs others than those that are reported, as for choosing settings,
and keeps nothing. Each core runs one seed at a time; how long is left is told from the seeds that
are done, and is about two and a half hours on two cores for all rows.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from scripts.tables import page
from scripts.tables.rows import Row, select
from scripts.tables.running import Book, Result, run

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    """Run what is missing, then write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], metavar="ROW", help="or how names begin")
    parser.add_argument("--page", action="store_true", help="write the page, run nothing")
    parser.add_argument("--seeds", type=int, nargs="*", help="run these, and keep nothing")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    rows = select(options.only)
    if not rows:
        parser.error(f"--only {' '.join(options.only)}: no row has such a name")
    book = Book(DOCS / "results")
    if options.seeds:
        for row in rows:
            run_all([(row, seed) for seed in options.seeds], options.cores, None)
        return
    if not options.page:
        run_all([(row, seed) for row in rows for seed in book.open_seeds(row)], options.cores, book)
    page.write(book, DOCS / "results.md")


def run_all(work: list[tuple[Row, int]], cores: int, book: Book | None) -> None:
    """Run these seeds, one on each core at a time, and keep the results in the book."""
    free: SimpleQueue[int] = SimpleQueue()
    for core in sorted(os.sched_getaffinity(0))[:cores]:
        free.put(core)
    began, done = time.monotonic(), 0

    def one(row: Row, seed: int) -> Result:
        core = free.get()
        try:
            return run(row, seed, core)
        finally:
            free.put(core)

    with ThreadPoolExecutor(cores) as threads:
        for (row, seed), result in zip(
            work, threads.map(lambda entry: one(*entry), work), strict=True
        ):
            done += 1
            if book is not None:
                book.add(row, result)
            left = (time.monotonic() - began) / done * (len(work) - done)
            print(
                f"{row.name} seed {seed}: centre {result.centre:.1f}, members "
                f"{result.members:.1f}, {result.updates} updates, {result.episodes:,} episodes, "
                f"{result.seconds:.1f} s ({result.cpu_seconds:.1f} s of CPU); "
                f"about {left / 60:.0f} min left",
                flush=True,
            )


if __name__ == "__main__":
    main()
