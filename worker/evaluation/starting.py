"""What a process begins with: the lanes of its run, tried out, be they compiled or not."""

from __future__ import annotations

import importlib.util
from typing import cast

from protocol import learners
from protocol.spec import RunSpec
from worker.compiled.makers import CompiledMaker
from worker.evaluation.lanes import Lanes, Pulse
from worker.evaluation.makers import RunMaker
from worker.evaluation.probe import Findings, probe
from worker.policies.making import NOTHING, Grant


def set_up(spec: RunSpec, device: str) -> None:
    """Set up what computes environments themselves, before anything has imported it.

    Args:
        device: as the volunteer asked for it.
    """
    compiled = spec.environment.backend == "jax" or spec.environment.equivalent_backends
    if compiled and importlib.util.find_spec("jax") is not None:
        from worker.compiled import devices

        devices.set_up(device)


def longest(spec: RunSpec, maker: RunMaker) -> int:
    """Steps of an episode at most, of a learner's with all its agents; 0 where nothing cuts it."""
    return spec.longest if spec.policy.kind in learners.KINDS else maker.limit


def start(
    spec: RunSpec,
    maker: RunMaker,
    pulse: Pulse,
    trial: int = 0,
    grant: Grant = NOTHING,
    lanes: int = 0,
) -> tuple[Findings, Lanes]:
    """What a few fixed episodes tell of this machine, and the lanes that suit; arguments as those
    of `probe`.

    Raises:
        EnvironmentUnavailable: it can't be made, or not one of the episodes succeeds.
    """
    if isinstance(maker, CompiledMaker):
        from worker.compiled import devices, learner_probing, probing

        given = spec, maker, pulse, trial, lanes, devices.set_up(grant.device)
        if spec.policy.kind not in learners.KINDS:
            return probing.prepare(*given)
        told, made = learner_probing.prepare(*given)
        return told, cast(Lanes, made)
    found = probe(spec, maker, pulse, trial, grant, lanes)
    return found, Lanes(spec, found.maker, found.lanes, fresh=found.fresh, grant=grant)
