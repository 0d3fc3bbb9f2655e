"""Where the environments of a run come from, be they Gymnasium's or an objective's."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.spec import RunSpec
from worker.evaluation import environments, objectives
from worker.evaluation.quiet import quieten

RunMaker = environments.Maker | objectives.Maker


def maker(spec: RunSpec, allowed: Sequence[str] = ()) -> RunMaker:
    """The maker of a run's environments.

    Args:
        allowed: modules that the volunteer lets be imported.

    Raises:
        EnvironmentUnavailable: it can't be had here.
    """
    if spec.objective is not None:
        return objectives.maker(spec.objective, allowed)
    found = environments.maker(spec.environment, allowed)
    quieten(found.registration)
    return found
