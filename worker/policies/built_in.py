"""Which built-in policy a run's spec asks for."""

from __future__ import annotations

from protocol.spec import EnvironmentSpec, PolicySpec
from worker.policies.dense import DensePolicy
from worker.policies.gru import GruPolicy
from worker.policies.policy import Policy


def make(policy: PolicySpec, environment: EnvironmentSpec, lanes: int) -> Policy:
    """The policy of that kind on so many lanes."""
    kind = GruPolicy if policy.kind == "gru" else DensePolicy
    return kind(policy, environment, lanes)
