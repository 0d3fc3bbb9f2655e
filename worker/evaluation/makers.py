"""Where the environments of a run come from: Gymnasium's, JAX's, or an objective's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from protocol import backends
from protocol.spec import EnvironmentSpec, RunSpec
from worker.compiled import makers as compiled
from worker.evaluation import environments, objectives
from worker.evaluation.jobs import EnvironmentUnavailable
from worker.evaluation.quiet import quieten

RunMaker = environments.Maker | compiled.CompiledMaker | objectives.Maker
Make = Callable[[EnvironmentSpec, Sequence[str]], RunMaker]


def maker(spec: RunSpec, allowed: Sequence[str] = ()) -> RunMaker:
    """The maker of a run's environments; of an equivalent one where the spec lets that be played
    and there is no other here.

    Args:
        allowed: modules that the volunteer lets be imported.

    Raises:
        EnvironmentUnavailable: it can't be had here.
    """
    if spec.objective is not None:
        return objectives.maker(spec.objective, allowed)
    environment = spec.environment
    own: Make = _gymnasium
    other: Make = compiled.maker
    if environment.backend == backends.JAX:
        own, other = other, own
    if not environment.equivalent_backends:
        return own(environment, allowed)
    try:
        return _tried(own(environment, allowed))
    except EnvironmentUnavailable as missing:
        try:
            return _tried(other(environment, allowed))
        except EnvironmentUnavailable:
            raise missing from None


def _gymnasium(environment: EnvironmentSpec, allowed: Sequence[str]) -> environments.Maker:
    if environment.backend == backends.JAX:
        environment = msgspec.structs.replace(environment, id=backends.bare(environment.id))
    found = environments.maker(environment, allowed)
    quieten(found.registration)
    return found


def _tried(found: RunMaker) -> RunMaker:
    """A maker that has made an instance. Raises `EnvironmentUnavailable`."""
    found.make().close()
    return found
