"""Keeps Python from looking for garbage again and again in what lives as long as a run."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

NEW_OBJECTS = 100_000
"""Containers that come to be, beyond those that go, before the collector looks at the new ones."""
LOOKS = 10
"""Such looks before one at what survived them, and so many of those before one at everything."""


def spare_the_collector() -> None:
    """Call once all is set up: what is there now is never looked at again, what comes rarely.

    The pool lets go of what it has done with by itself. Python's collector would find nothing, and
    with 10,000 workers its looks at hundreds of thousands of living objects cost more than all
    else that the pool does.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, LOOKS, LOOKS)


class _Collector:
    """How the collector was before the first of the runs that are led beside one another."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._runs = 0
        self._thresholds = (0, 0, 0)
        self._frozen = 0

    def keep(self) -> None:
        """One more run is led."""
        with self._changing:
            if not self._runs:
                self._thresholds, self._frozen = gc.get_threshold(), gc.get_freeze_count()
            self._runs += 1

    def restore(self) -> None:
        """One less; after the last of them it is as before."""
        with self._changing:
            self._runs -= 1
            if not self._runs:
                gc.set_threshold(*self._thresholds)
                if not self._frozen:
                    gc.unfreeze()


_COLLECTOR = _Collector()


@contextlib.contextmanager
def collector_as_before() -> Iterator[None]:
    """Python's collector looks at everything again afterwards, as often as it did before; for runs
    in the process of a program, which goes on."""
    _COLLECTOR.keep()
    try:
        yield
    finally:
        _COLLECTOR.restore()


def look_at_all_again() -> None:
    """Let the collector find what is left of runs that have ended, once the next one begins."""
    gc.unfreeze()
