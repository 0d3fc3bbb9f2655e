"""How many sockets a broker in this process may open, so that all else can open its files still."""

from __future__ import annotations

import contextlib
import resource
from dataclasses import replace

from coordinator.broker.limits import BrokerLimits

RESERVED = 96
"""Open files that are left to everything but clients' sockets: log, snapshots, libraries."""


def within_this_process(limits: BrokerLimits) -> BrokerLimits:
    """The limits with no more connections than fit here; more open files are asked for first.

    As many sockets again are accepted before the first of them is looked at, where many come at
    once.
    """
    wanted = 2 * limits.connections + RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    room = max(1, (soft - RESERVED) // 2)
    return replace(limits, connections=min(limits.connections, room))
