"""No policy at all: the parameters of a lane's member are its action, for objectives."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.policies.policy import Act, Forward, Policy, View


class ParametersPolicy(Policy):
    """One run's parameters on some lanes."""

    def prepare_act(self, lanes: NDArray[np.int64], parameters: Any, view: View) -> Act:
        """What gives the parameters of `lanes`, in that order: copies, which a function may
        change."""
        return lambda: list(parameters[self.rows[lanes]])

    def prepare_forward(self, lanes: NDArray[np.int64], parameters: Any, view: View) -> Forward:
        """There is nothing to compute."""
        return lambda: 0
