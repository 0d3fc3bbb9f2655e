"""Which policy a run's spec asks for, as far as the volunteer grants it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from protocol.spec import RunSpec
from worker.policies import devices
from worker.policies.cnn import CnnPolicy
from worker.policies.dense import DensePolicy, SignedPolicy
from worker.policies.gru import GruPolicy
from worker.policies.lstm import LstmPolicy
from worker.policies.parameters import ParametersPolicy
from worker.policies.policy import Policy
from worker.policies.tabular import TabularPolicy


def _dense(spec: RunSpec, lanes: int) -> Policy:
    return SignedPolicy(spec, lanes) if SignedPolicy.suits(spec) else DensePolicy(spec, lanes)


BUILT_IN: dict[str, Callable[[RunSpec, int], Policy]] = {
    "linear": _dense,
    "mlp": _dense,
    "gru": GruPolicy,
    "lstm": LstmPolicy,
    "cnn": CnnPolicy,
    "tabular": TabularPolicy,
}


class Grant(NamedTuple):
    """What the volunteer lets policies use.

    Attributes:
        modules: packages and modules that may hold a policy's class.
        device: as `devices.parse` lets it through.
    """

    modules: tuple[str, ...] = ()
    device: str = devices.CPU


NOTHING = Grant()


def make(spec: RunSpec, lanes: int, grant: Grant = NOTHING) -> Policy:
    """The run's policy on so many lanes.

    Raises `PolicyUnavailable`, `DeviceError`.
    """
    if spec.objective is not None:
        return ParametersPolicy(spec, lanes)
    # PyTorch takes seconds to load: our own kernels do without it.
    if spec.policy.kind == "module":
        from worker.policies import modules

        module = modules.load(spec.policy.module, spec.policy.arguments, grant.modules)
        modules.require_same(spec.policy.module, module, spec.policy.parameters)
        device = devices.choose(grant.device, spec)
    else:
        device = devices.choose(grant.device, spec)
        if device == devices.CPU:
            return BUILT_IN[spec.policy.kind](spec, lanes)
        from worker.policies.forms import form

        module = form(spec)
    if device == devices.CPU:
        from worker.policies.batched import ModulePolicy

        return ModulePolicy(spec, lanes, module)
    from worker.policies.on_device import DevicePolicy

    return DevicePolicy(spec, lanes, module, device)


def together(spec: RunSpec, grant: Grant = NOTHING) -> bool:
    """Whether a step of many lanes costs the policy about as much as one of few."""
    if spec.objective is not None:
        return False
    return spec.policy.kind == "module" or devices.choose(grant.device, spec) != devices.CPU
