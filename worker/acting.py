"""A trained policy for programs: three lines from a run directory to its actions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from protocol import learners
from protocol.errors import ShoalError
from protocol.spec import RunSpec
from worker.compiled.makers import CompiledMaker
from worker.evaluation import makers
from worker.evaluation.blocks import Room
from worker.play import BEST, LATEST, TrainedPolicy, load
from worker.policies import making
from worker.policies.making import Grant

SEED_LIMIT = 1 << 31


class LoadedPolicy:
    """A run's policy that acts: the kernels of training, with one lane.

    Args:
        trained: what `worker.play.load` gave.
        allowed: modules that environments or policies may be imported from.

    Attributes:
        spec: of the run.
        version: whose parameters these are.
    """

    def __init__(self, trained: TrainedPolicy, allowed: Sequence[str] = ()) -> None:
        self.spec: RunSpec = trained.spec
        self.version = trained.version
        self._allowed = tuple(allowed)
        self._policy = making.make(self.spec, 1, Grant(self._allowed))
        room = Room(self.spec, self._policy, 1, 1)
        self._policy.centre(trained.theta[self._policy.order], room.parameters)
        view = room.view(trained.normalization)
        self._act = self._policy.prepare_act(np.zeros(1, np.int64), room.parameters, view)
        self.reset()

    def __repr__(self) -> str:
        """Such as `<policy of cartpole, version 40: CartPole-v1, mlp, 226 parameters>`."""
        spec = self.spec
        return (
            f"<policy of {spec.name}, version {self.version}: {spec.environment.id}, "
            f"{spec.policy.kind}, {spec.size:,} parameters>"
        )

    def reset(self, seed: int = 0) -> None:
        """An episode begins: memories are emptied, and what is drawn in it follows from `seed`.

        Raises ValueError where the seed is not one of 0 to 2**31 - 1.
        """
        if not 0 <= seed < SEED_LIMIT:
            raise ValueError(f"seed {seed}: must lie in 0 .. 2**31 - 1")
        self._policy.begin(0, 0, -1, seed, quiet=not self.spec.policy.centre_noise)

    def __call__(self, observation: Any) -> Any:
        """The action of the policy, as `action_space.sample` would give it.

        Args:
            observation: as `environment` gives it, of the shape that the run's spec names.

        Raises:
            ValueError: of another shape, or not finite.
        """
        target = self._policy.targets[0]
        given = np.asarray(observation)
        if given.size != target.size:
            raise ValueError(
                f"an observation of shape {given.shape}: this policy sees {target.shape}, "
                "as the environment of its own gives it"
            )
        target[...] = given.reshape(target.shape)
        chosen = self._act()
        if chosen is None:
            raise ValueError(f"an observation that is not finite, or outside its space: {given}")
        return chosen[0]

    def environment(self, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        """A new environment of the run, wrapped as in training, episodes cut as there.

        Raises `ShoalError` where there is none on this machine.
        """
        maker = makers.maker(self.spec, self._allowed)
        if isinstance(maker, CompiledMaker):  # which Gymnasium's own wrappers do not take
            return cast("gymnasium.Env[Any, Any]", maker.make(render_mode, maker.limit))
        made = cast("gymnasium.Env[Any, Any]", maker.make(render_mode))
        return TimeLimit(made, maker.limit) if maker.limit else made


def load_policy(
    path: str | Path, *, best: bool = False, allow_modules: Sequence[str] = ()
) -> LoadedPolicy:
    """The policy of a run directory, or of a `.safetensors` file in one.

    Args:
        best: the version whose centre was judged best, not the latest or returned one.
        allow_modules: modules that environments or the policy may be imported from.

    Raises:
        ShoalError: there is none, it can't be read, or it is an objective's parameters or a
            learner's.
    """
    trained = load(Path(path), BEST if best else LATEST)
    require_acting(trained, path)
    return LoadedPolicy(trained, allow_modules)


def require_acting(trained: TrainedPolicy, path: str | Path) -> None:
    """Raises `ShoalError` where these are an objective's parameters, or a learner's."""
    if trained.spec.objective is not None:
        raise ShoalError(
            f"{path} holds the parameters of an objective, which don't act: read them with "
            "`safetensors.numpy.load_file`"
        )
    if trained.spec.policy.kind in learners.KINDS:
        raise ShoalError(
            f"{path} holds the hyperparameters of a learner, which doesn't act before it has "
            "learned: `shoal play` trains it, and tells how well it does then"
        )
