"""Which built-in policy a run's spec asks for."""

from __future__ import annotations

from protocol.spec import RunSpec
from worker.policies.dense import DensePolicy
from worker.policies.gru import GruPolicy
from worker.policies.policy import Policy


def make(spec: RunSpec, lanes: int) -> Policy:
    """The run's policy on so many lanes."""
    kind = GruPolicy if spec.policy.kind == "gru" else DensePolicy
    return kind(spec, lanes)
