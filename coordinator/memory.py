"""Keeps Python from looking for garbage again and again in what lives as long as a run."""

from __future__ import annotations

import contextlib
import gc
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


@contextlib.contextmanager
def collector_as_before() -> Iterator[None]:
    """Python's collector looks at everything again afterwards, as often as it did before."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()
