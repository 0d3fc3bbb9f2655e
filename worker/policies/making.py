"""Which policy a run's spec asks for, as far as the volunteer grants it."""

from __future__ import annotations

from typing import NamedTuple

from protocol.spec import RunSpec
from worker.policies.cnn import CnnPolicy
from worker.policies.dense import DensePolicy
from worker.policies.gru import GruPolicy
from worker.policies.policy import Policy

BUILT_IN: dict[str, type[DensePolicy] | type[GruPolicy] | type[CnnPolicy]] = {
    "linear": DensePolicy,
    "mlp": DensePolicy,
    "gru": GruPolicy,
    "cnn": CnnPolicy,
}


class Grant(NamedTuple):
    """What the volunteer lets policies use.

    Attributes:
        modules: packages and modules that may hold a policy's class.
    """

    modules: tuple[str, ...] = ()


NOTHING = Grant()


def make(spec: RunSpec, lanes: int, grant: Grant = NOTHING) -> Policy:
    """The run's policy on so many lanes.

    Raises `PolicyUnavailable`.
    """
    if spec.policy.kind == "module":
        # PyTorch takes seconds to load, and only modules need it.
        from worker.policies import modules
        from worker.policies.batched import ModulePolicy

        module = modules.load(spec.policy.module, spec.policy.arguments, grant.modules)
        modules.require_same(spec.policy.module, module, spec.policy.parameters)
        return ModulePolicy(spec, lanes, module)
    return BUILT_IN[spec.policy.kind](spec, lanes)


def together(spec: RunSpec) -> bool:
    """Whether a step of many lanes costs the policy about as much as one of few."""
    return spec.policy.kind == "module"
