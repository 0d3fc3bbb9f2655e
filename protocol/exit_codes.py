"""How commands end: what scripts, service managers and hosts go by."""

from __future__ import annotations

DONE = 0
"""Of a worker: the run has ended, or whoever may told it to leave."""
WRONG_USE = 2
UNSUITABLE = 3
"""This version can't take part."""
NO_ENVIRONMENT = 4
"""The environment is not installed here."""
UNREACHABLE = 5
"""The broker or the run is not there, refuses, or is another than the join line says: the only
failure that passes by itself."""
SENT_AWAY = 6
"""The host sends the worker away, or the worker can't follow the run."""
INTERRUPTED = 130
"""Ctrl-C, as shells have it."""

REPEATED = (WRONG_USE, UNSUITABLE, NO_ENVIRONMENT)
"""What a new start on the same machine only repeats."""
