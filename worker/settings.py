"""What the volunteer chose for the whole worker."""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol.address import Address
from worker.limits import Limits
from worker.permission import Terms
from worker.shares import Shares

UPLOAD_LIMIT = 4e6
"""Bytes per second."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the volunteer chose.

    Attributes:
        address: of the broker, with the run, or without one for all runs there.
        children: evaluation processes.
        cpu_share: of a core that each of them may use.
        memory_limit: bytes that each of them may take; None for a fair part of what is free.
        credit: tasks held at once.
        allowed: modules that may register environments, hold the policy, add a strategy or an
            optimizer.
        device: that policies are computed on; see `devices`.
        lanes: of each evaluation process; 0 for as many as suit.
        once: end, instead of waiting, where broker or run are not there.
        upload_limit: bytes per second that peers get at most; 0: none.
        limits: what the machine does for a run at most.
        private: keep label and machine from the host, and so from whom it shows its workers.
        terms: when the machine may work, and when the worker leaves.
        shares: how much of it each run may have, where it serves several.
    """

    address: Address
    name: str = ""
    children: int = 1
    cpu_share: float = 1.0
    memory_limit: int | None = None
    credit: int = 2
    allowed: tuple[str, ...] = ()
    device: str = "cpu"
    lanes: int = 0
    once: bool = False
    upload_limit: float = UPLOAD_LIMIT
    limits: Limits = field(default_factory=Limits)
    private: bool = False
    terms: Terms = field(default_factory=Terms)
    shares: Shares = field(default_factory=lambda: Shares({}))
