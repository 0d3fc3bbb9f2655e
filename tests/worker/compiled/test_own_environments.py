"""Our environments of JAX, held against Gymnasium's and against a plain walk."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from protocol.spaces import Discrete
from worker.compiled import grid_world
from worker.compiled.environment import Functional, functional
from worker.evaluation.jobs import EnvironmentUnavailable

KEY = jax.random.key(5)


def walked(name: str, steps: int) -> dict[str, NDArray[Any]]:
    """What random actions do in Gymnasium: the numbers of each step, one after the other."""
    environment = gymnasium.make(name, disable_env_checker=True).unwrapped
    chance = np.random.default_rng(7)
    rows: dict[str, list[Any]] = {}
    seen, _ = environment.reset(seed=11)
    for _ in range(steps):
        action = int(chance.integers(environment.action_space.n))
        before = seen
        seen, reward, terminated, _, _ = environment.step(action)
        columns = ("before", "action", "after", "reward", "over")
        for column, value in zip(columns, (before, action, seen, reward, terminated), strict=True):
            rows.setdefault(column, []).append(value)
        if terminated:
            seen, _ = environment.reset()
    environment.close()
    return {column: np.array(values) for column, values in rows.items()}


def stepped(environment: Functional, states: Any, actions: Any) -> tuple[NDArray[Any], ...]:
    """One step from each state."""
    key = jax.random.split(KEY, len(actions))
    found = jax.jit(jax.vmap(environment.step))(
        jnp.asarray(states), jnp.asarray(actions, jnp.int32), key
    )
    return tuple(np.asarray(part) for part in found)


def test_the_cliff_is_gymnasiums_step_by_step() -> None:
    theirs = walked("CliffWalking-v1", 3000)
    assert -100 in theirs["reward"]
    # A random walk hardly finds the goal: the steps onto it are added.
    ours = functional("jax:CliffWalking-v0", {})
    _, after, reward, over = stepped(ours, theirs["before"].astype(np.int32), theirs["action"])
    np.testing.assert_array_equal(after, theirs["after"])
    np.testing.assert_array_equal(reward, theirs["reward"])
    np.testing.assert_array_equal(over, theirs["over"])
    every = gymnasium.make("CliffWalking-v1").unwrapped.P
    states = np.repeat(np.arange(48, dtype=np.int32), 4)
    actions = np.tile(np.arange(4), 48)
    _, after, reward, over = stepped(ours, states, actions)
    told = [every[state][action][0][1:] for state, action in zip(states, actions, strict=True)]
    np.testing.assert_array_equal(np.array(told), np.stack([after, reward, over], axis=1))
    assert ours.reset(KEY)[1] == 36
    assert ours.limit == 0


def test_the_pole_is_gymnasiums_step_by_step() -> None:
    theirs = walked("CartPole-v1", 3000)
    assert theirs["over"].sum() > 50
    ours = functional("jax:CartPole-v1", {})
    _, after, reward, over = stepped(ours, theirs["before"], theirs["action"])
    np.testing.assert_allclose(after, theirs["after"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(reward, theirs["reward"])
    np.testing.assert_array_equal(over, theirs["over"])
    assert ours.limit == gymnasium.spec("CartPole-v1").max_episode_steps == 500
    assert ours.threshold == gymnasium.spec("CartPole-v1").reward_threshold


def test_whole_episodes_of_the_pole_go_as_gymnasiums() -> None:
    ours = functional("jax:CartPole-v1", {})
    environment = gymnasium.make("CartPole-v1").unwrapped
    starts = np.stack([environment.reset(seed=seed)[0] for seed in range(20)])
    actions = np.random.default_rng(1).integers(2, size=(60, 20)).astype(np.int32)
    keys = jax.random.split(KEY, 20)

    def advance(states: Any, chosen: Any) -> Any:
        states, seen, _, over = jax.vmap(ours.step)(states, chosen, keys)
        return states, (seen, over)

    _, (seen, over) = jax.jit(lambda *given: jax.lax.scan(advance, *given))(starts, actions)
    for episode in range(20):
        environment.reset(seed=episode)
        for step in range(60):
            observation, _, terminated, _, _ = environment.step(int(actions[step, episode]))
            np.testing.assert_allclose(seen[step, episode], observation, rtol=1e-4, atol=1e-5)
            assert terminated == over[step, episode]
            if terminated:
                break
        else:
            pytest.fail("the pole stood for 60 random steps")


def test_poles_begin_within_a_twentieth() -> None:
    states, seen = jax.vmap(functional("CartPole-v1", {}).reset)(jax.random.split(KEY, 2000))
    assert np.abs(states).max() <= 0.05
    np.testing.assert_allclose(np.std(states, axis=0), 0.05 / np.sqrt(3.0), rtol=0.05)
    np.testing.assert_array_equal(states, seen)


def plain_step(cell: tuple[int, int], action: int, walls: set[tuple[int, int]]) -> tuple[int, int]:
    """Where a move leads on the grid of 8 rows and 12 columns."""
    down, right = [(0, 1), (1, 0), (0, -1), (-1, 0)][action]
    to = cell[0] + down, cell[1] + right
    return cell if to in walls or not (0 <= to[0] < 8 and 0 <= to[1] < 12) else to


def test_the_grid_is_walked_as_one_would_by_hand() -> None:
    walls = {(0, 1), (3, 3), (3, 4)}
    given = {"walls": "0,1 3,3 3,4", "step_cost": 0.25}
    ours = functional("jax:GridWorld-v0", given)
    assert ours.observation == Discrete(n=96)
    assert ours.action == Discrete(n=4)
    states = np.repeat(np.arange(96, dtype=np.int32), 4)
    actions = np.tile(np.arange(4), 96)
    _, after, reward, over = stepped(ours, states, actions)
    for state, action, to, paid, end in zip(states, actions, after, reward, over, strict=True):
        if divmod(int(state), 12) in walls:
            continue
        cell = plain_step(divmod(int(state), 12), int(action), walls)
        assert divmod(int(to), 12) == cell
        assert paid == (cell == (0, 0)) - 0.25
        assert end == (cell == (0, 0))
    assert ours.reset(KEY)[1] == 95


def test_start_and_goal_are_where_they_are_put() -> None:
    ours = grid_world.make(rows=3, columns=4, start="1,2", goal="2,3")
    assert ours.reset(KEY)[0] == 6
    _, after, reward, over = stepped(ours, np.array([7, 10, 6], np.int32), [1, 0, 0])
    assert after.tolist() == [11, 11, 7]
    assert reward.tolist() == [1.0, 1.0, 0.0]
    assert over.tolist() == [True, True, False]


def test_a_slip_goes_to_either_side_alike() -> None:
    ours = grid_world.make(rows=3, columns=3, start="2,2", goal="0,0", slip=0.3)
    _, after, _, _ = stepped(ours, np.full(20_000, 4, np.int32), np.zeros(20_000))
    shares = np.bincount(after, minlength=9) / 20_000
    # From the middle to the right; slips go down and up, never back.
    np.testing.assert_allclose(shares[[5, 7, 1]], [0.7, 0.15, 0.15], atol=0.015)
    assert shares[3] == 0.0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rows": 0}, "rows is 0"),
        ({"slip": 1.5}, "slip is 1.5"),
        ({"goal": "8,0"}, "goal has '8,0'"),
        ({"start": "0,0"}, "must be two cells"),
        ({"walls": "1,1 x"}, "walls has 'x'"),
        ({"walls": "0,0"}, "neither of them a wall"),
        ({"height": 3}, "give it arguments that it takes"),
    ],
)
def test_arguments_that_make_no_grid_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(EnvironmentUnavailable, match="GridWorld-v0") as refused:
        functional("jax:GridWorld-v0", given)
    assert told in str(refused.value)
