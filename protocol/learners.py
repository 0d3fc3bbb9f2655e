"""Learners as members: policies that learn within an episode, and whose hyperparameters evolve."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from protocol.networks import Tensor
from protocol.policies import choices
from protocol.spaces import Discrete

if TYPE_CHECKING:
    from protocol.spec.sections import EnvironmentSpec, PolicySpec

KINDS = ("q-learning", "expected-sarsa", "double-q")
HYPERPARAMETERS = ("learning_rate", "discount", "exploration", "optimism")
"""In the order of theta, each a tensor of one number."""
MOST_ACTIONS = 64
"""For all of which a step computes: more would take as long to compile."""
MOST_ESTIMATES = 1 << 24
"""In the tables of all agents of a member, 64 MiB."""
LONGEST_TRIAL = 1000
"""Steps after which an episode of a trial is cut where the environment cuts none."""


def tensors() -> tuple[Tensor, ...]:
    """What the parameters of a learner are."""
    return tuple(Tensor(name, (1,)) for name in HYPERPARAMETERS)


def meant(policy: PolicySpec, parameters: NDArray[np.float32]) -> NDArray[np.float64]:
    """The hyperparameters that members stand for, which are within their ranges wherever the
    parameters are: 0 stands for what the spec says, and 1 more for e times the odds p / (1 - p) of
    a learning rate, discount or epsilon, for e times a temperature, for 1 more optimism.

    Args:
        parameters: shape (members, 4), in the order of `HYPERPARAMETERS`.

    Returns:
        float64, same shape.
    """
    given = np.clip(parameters.astype(np.float64), -30.0, 30.0)
    rate, discount, exploration = given[:, 0], given[:, 1], given[:, 2]
    explores = (
        policy.temperature * np.exp(exploration)
        if policy.exploration == "softmax"
        else _odds(policy.epsilon, exploration)
    )
    optimism = policy.optimism + parameters[:, 3].astype(np.float64)
    learns, discounts = _odds(policy.learning_rate, rate), _odds(policy.discount, discount)
    return np.stack([learns, discounts, explores, optimism], axis=1)


def episode_steps(policy: PolicySpec, environment: EnvironmentSpec) -> int:
    """Steps of all agents in a training and the trials after it, at most."""
    trial = policy.trial_episodes * (environment.max_steps or LONGEST_TRIAL)
    return policy.agents * (policy.training_steps + trial)


def fault(policy: PolicySpec, environment: EnvironmentSpec, longest: int) -> str | None:
    """What is wrong with a learner in this environment, and what to do.

    Args:
        longest: steps that any episode has at most.
    """
    kind = f'policy.kind is "{policy.kind}"'
    if environment.backend != "jax":
        return (
            f'{kind} with environment.backend "{environment.backend}": learners are computed by '
            'JAX, use an environment such as jax:GridWorld-v0 and environment.backend = "jax"'
        )
    rows, action = choices(environment.observation), environment.action
    if rows is None or not isinstance(action, Discrete) or action.n > MOST_ACTIONS:
        return (
            f"{kind} but {environment.id} has observations that are not all discrete, or no single "
            f'choice of up to {MOST_ACTIONS} as action: a table has a number for each; use "mlp" '
            "or another kind"
        )
    tables = 2 if policy.kind == "double-q" else 1
    estimates = policy.agents * tables * math.prod(rows) * action.n
    if estimates > MOST_ESTIMATES:
        return (
            f"{kind} with policy.agents {policy.agents} in {environment.id}, which makes "
            f"{estimates:,} estimates for a member: at most {MOST_ESTIMATES:,}, give fewer agents"
        )
    steps = episode_steps(policy, environment)
    if steps > longest:
        return (
            f"{kind} with {policy.agents} agents, {policy.training_steps:,} training steps and "
            f"{policy.trial_episodes} trial episodes, {steps:,} steps in all: at most {longest:,}, "
            "give fewer in policy.agents, policy.training_steps or policy.trial_episodes"
        )
    for field, value in (("cap", environment.cap), ("alive_bonus", environment.alive_bonus)):
        if value:
            return (
                f"{kind} with environment.{field} {value}, which goes by the steps of an episode: "
                "those of a learner are its training, leave it out"
            )
    if environment.equivalent_backends:
        return (
            f"{kind} with environment.equivalent_backends, but only JAX has learners: leave it out"
        )
    if policy.choice != "argmax":
        return f'{kind} with policy.choice "{policy.choice}": policy.exploration says how it acts'
    return None


def _odds(share: float, more: NDArray[np.float64]) -> NDArray[np.float64]:
    """A share whose odds are e**more of another's."""
    grown: NDArray[np.float64] = share * np.exp(more)
    return grown / (grown + (1.0 - share))
