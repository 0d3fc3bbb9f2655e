"""What a step of Gymnasium's MuJoCo tasks does beside the simulation, for all lanes by one kernel.

Rewards and ends are the tasks' own expressions in their own order, sums in NumPy's, so that they
are the same bits. Kernels read and write the simulations where they are: `where` has addresses of
their arrays, a row for each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

POSITIONS, VELOCITIES, CONTROLS, BODY, FORCES = range(5)
"""Columns of addresses that all tasks have, the last two where they need them: of a body's place in
the world, and of the forces from outside on each. A humanoid has more."""
CENTRES, INERTIAS, TURNS, PULLS = 3, 5, 6, 7
"""A humanoid's: centres of mass in the place of one body's, inertias, velocities of bodies, forces
of actuators."""
SPATIAL, INERTIA = 6, 10
"""Numbers of a force or velocity in space, and of an inertia."""
ROOT = 6
"""Degrees of freedom of a body that floats: no actuator pulls them."""


class Rules(NamedTuple):
    """What a step tells, in numbers; kernels take it as a plain tuple.

    Attributes:
        hidden: coordinates that are not observed.
        slow: observed velocities are cut at that many units.
        seconds: of a step.
        forward: reward of a unit of distance in a second.
        effort: cost of an action's square.
        touch: cost of a square of forces from outside.
        force: range that these are cut to.
        touches: range that their cost is cut to.
        lasting: whether the episode ends where the ranges are left that are rewarded.
        reward: of a step within them.
        height, angle, state: ranges of the second and third coordinate, or the third; and of all
            from the third on and velocities, where `checked`.
    """

    hidden: int
    slow: float
    seconds: float
    forward: float
    effort: float
    touch: float
    force: tuple[float, float]
    touches: tuple[float, float]
    lasting: bool
    reward: float
    height: tuple[float, float]
    angle: tuple[float, float]
    checked: bool
    state: tuple[float, float]


Where = NDArray[np.uint64]
Row = NDArray[np.float64]


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    """An address of float64 as a pointer."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.DoubleType().as_pointer())

    return types.CPointer(types.float64)(types.uint64), code


@njit(error_model="numpy")
def _at(where: Where, place: int, column: int, size: int) -> Row:
    """The array of so many numbers at an address."""
    return carray(_pointer(where[place, column]), size)


@njit(error_model="numpy")
def _within(value: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] < value < bounds[1]


@njit(error_model="numpy")
def _cut(value: float, bounds: tuple[float, float]) -> float:
    value = bounds[0] if value < bounds[0] else value
    return bounds[1] if value > bounds[1] else value


@njit(error_model="numpy")
def squares(values: NDArray[Any]) -> Any:
    """The sum of the squares of at most 128 numbers, as NumPy adds them up."""
    total, begin = values[0] * values[0], 1
    if values.size >= 8:
        sums = np.empty(8, values.dtype)
        for k in range(8):
            sums[k] = values[k] * values[k]
        begin = values.size - values.size % 8
        for i in range(8, begin, 8):
            for k in range(8):
                sums[k] += values[i + k] * values[i + k]
        left = (sums[0] + sums[1]) + (sums[2] + sums[3])
        total = left + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
    for i in range(begin, values.size):
        total += values[i] * values[i]
    return total


@njit(error_model="numpy")
def _control(where: Where, place: int, actions: NDArray[np.float32]) -> None:
    controls = _at(where, place, CONTROLS, actions.shape[1])
    for i in range(controls.size):
        controls[i] = actions[place, i]


@njit(error_model="numpy")
def _copy(values: Row, first: int, seen: Row, begin: int) -> int:
    """Write the values from the first that is observed on, and say where they end."""
    for i in range(first, values.size):
        seen[begin + i - first] = values[i]
    return begin + values.size - first


@njit(error_model="numpy")
def _finite(values: Row) -> bool:
    finite = True
    for i in range(values.size):
        finite = finite and np.isfinite(values[i])
    return finite


@njit(cache=True, error_model="numpy")
def steer(where: Where, actions: NDArray[np.float32], masses: Row, begun: Row) -> None:
    """Give the actions to the simulations, and note where each body is.

    Args:
        actions: shape (l, actuators).
        masses: of each body, and then of all.
        begun: shape (l,), first coordinates in the world, written.
    """
    for place in range(begun.size):
        begun[place] = _at(where, place, BODY, 1)[0]
        _control(where, place, actions)


@njit(cache=True, error_model="numpy")
def steer_humanoid(where: Where, actions: NDArray[np.float32], masses: Row, begun: Row) -> None:
    """As `steer`, with the centre of mass of all."""
    for place in range(begun.size):
        begun[place] = _centre(where, place, masses)
        _control(where, place, actions)


@njit(error_model="numpy")
def _centre(where: Where, place: int, masses: Row) -> float:
    """The first coordinate of the centre of mass."""
    bodies = masses.size - 1
    centres = _at(where, place, CENTRES, 3 * bodies)
    total = masses[0] * centres[0]
    for i in range(1, bodies):
        total += masses[i] * centres[3 * i]
    return total / masses[bodies]


@njit(error_model="numpy")
def _see(seen: Row, positions: Row, velocities: Row, hidden: int, slow: float) -> int:
    """Write what is observed of these; how many numbers."""
    shown = _copy(positions, hidden, seen, 0)
    for i in range(velocities.size):
        seen[shown + i] = _cut(velocities[i], (-slow, slow))
    return shown + velocities.size


@njit(cache=True, error_model="numpy")
def tell_cheetah(
    where: Where,
    actions: NDArray[np.float32],
    masses: Row,
    begun: Row,
    sizes: tuple[int, int],
    rules: Rules,
    observations: NDArray[np.float64],
    rewards: Row,
    ended: NDArray[np.bool_],
) -> None:
    """What steps of the half-cheetah and the swimmer tell, which never end.

    Args:
        actions, masses, begun: see `steer`.
        sizes: how many coordinates and velocities there are.
        observations, rewards, ended: of `l` rows each, written.
    """
    hidden, slow, seconds, forward, effort = rules[:5]
    for place in range(begun.size):
        positions = _at(where, place, POSITIONS, sizes[0])
        _see(observations[place], positions, _at(where, place, VELOCITIES, sizes[1]), hidden, slow)
        told = forward * ((positions[0] - begun[place]) / seconds)
        rewards[place] = told - np.float32(effort) * squares(actions[place])
        ended[place] = False


@njit(cache=True, error_model="numpy")
def tell_walker(
    where: Where,
    actions: NDArray[np.float32],
    masses: Row,
    begun: Row,
    sizes: tuple[int, int],
    rules: Rules,
    observations: NDArray[np.float64],
    rewards: Row,
    ended: NDArray[np.bool_],
) -> None:
    """What steps of the hopper and the walker tell; arguments as those of `tell_cheetah`."""
    hidden, slow, seconds, forward, effort, _, _, _, lasting, reward = rules[:10]
    height, angle, checked, state = rules[10:]
    for place in range(begun.size):
        positions = _at(where, place, POSITIONS, sizes[0])
        velocities = _at(where, place, VELOCITIES, sizes[1])
        _see(observations[place], positions, velocities, hidden, slow)
        well = _within(positions[1], height) and _within(positions[2], angle)
        if checked:
            for i in range(2, positions.size):
                well = well and _within(positions[i], state)
            for i in range(velocities.size):
                well = well and _within(velocities[i], state)
        told = forward * ((positions[0] - begun[place]) / seconds) + well * reward
        rewards[place] = told - np.float32(effort) * squares(actions[place])
        ended[place] = lasting and not well


@njit(cache=True, error_model="numpy")
def tell_pendulum(
    where: Where,
    actions: NDArray[np.float32],
    masses: Row,
    begun: Row,
    sizes: tuple[int, int],
    rules: Rules,
    observations: NDArray[np.float64],
    rewards: Row,
    ended: NDArray[np.bool_],
) -> None:
    """What steps of the inverted pendulum tell; arguments as those of `tell_cheetah`."""
    for place in range(begun.size):
        seen = observations[place]
        positions = _at(where, place, POSITIONS, sizes[0])
        _see(seen, positions, _at(where, place, VELOCITIES, sizes[1]), rules[0], rules[1])
        ended[place] = not _finite(seen) or abs(seen[1]) > 0.2
        rewards[place] = not ended[place]


@njit(cache=True, error_model="numpy")
def tell_ant(
    where: Where,
    actions: NDArray[np.float32],
    masses: Row,
    begun: Row,
    sizes: tuple[int, int],
    rules: Rules,
    observations: NDArray[np.float64],
    rewards: Row,
    ended: NDArray[np.bool_],
) -> None:
    """What steps of the ant tell; arguments as those of `tell_cheetah`."""
    hidden, slow, seconds, forward, effort, touch, force, _, lasting, reward = rules[:10]
    height = rules[10]
    forces = np.empty(SPATIAL * (masses.size - 1))
    for place in range(begun.size):
        seen = observations[place]
        positions = _at(where, place, POSITIONS, sizes[0])
        velocities = _at(where, place, VELOCITIES, sizes[1])
        many = _see(seen, positions, velocities, hidden, slow)
        outside = _at(where, place, FORCES, forces.size)
        for i in range(forces.size):
            forces[i] = _cut(outside[i], force)
        _copy(forces, SPATIAL, seen, many)  # less those on the world
        finite = _finite(positions) and _finite(velocities)
        well = finite and height[0] <= positions[2] <= height[1]
        reached = _at(where, place, BODY, 1)[0]
        told = ((reached - begun[place]) / seconds) * forward + well * reward
        cost = np.float32(effort) * squares(actions[place]) + touch * squares(forces)
        rewards[place] = told - cost
        ended[place] = lasting and not well


@njit(cache=True, error_model="numpy")
def tell_humanoid(
    where: Where,
    actions: NDArray[np.float32],
    masses: Row,
    begun: Row,
    sizes: tuple[int, int],
    rules: Rules,
    observations: NDArray[np.float64],
    rewards: Row,
    ended: NDArray[np.bool_],
) -> None:
    """What steps of the humanoid tell; arguments as those of `tell_cheetah`."""
    hidden, slow, seconds, forward, effort, touch, _, touches, lasting, reward = rules[:10]
    height, bodies = rules[10], masses.size - 1
    for place in range(begun.size):
        seen = observations[place]
        positions = _at(where, place, POSITIONS, sizes[0])
        velocities = _at(where, place, VELOCITIES, sizes[1])
        end = _see(seen, positions, velocities, hidden, slow)
        forces = _at(where, place, FORCES, SPATIAL * bodies)
        # Of bodies but the world, and of joints but the one that lets all of it float.
        end = _copy(_at(where, place, INERTIAS, INERTIA * bodies), INERTIA, seen, end)
        end = _copy(_at(where, place, TURNS, SPATIAL * bodies), SPATIAL, seen, end)
        end = _copy(_at(where, place, PULLS, sizes[1]), ROOT, seen, end)
        _copy(forces, SPATIAL, seen, end)
        well = _within(positions[2], height)
        reached = _centre(where, place, masses)
        told = forward * ((reached - begun[place]) / seconds) + well * reward
        control = _at(where, place, CONTROLS, actions.shape[1])
        touched = _cut(touch * squares(forces), touches)
        rewards[place] = told - (effort * squares(control) + touched)
        ended[place] = lasting and not well
