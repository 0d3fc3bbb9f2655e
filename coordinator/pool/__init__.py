"""The pool decides: which worker evaluates what, what counts, when an update is made."""

from coordinator.pool.machine import Pool

__all__ = ["Pool"]
