"""What episodes were worth, of what chunks tell: exact sums, on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from protocol.kernels import observe_frame
from worker.policies.sampling import uniform

RUNNING, OVER, UNSOUND = 0, 1, 2
ENTRIES = 65536.0  # of the table of normal quantiles


@njit(cache=True, error_model="numpy")
def book(
    lanes: NDArray[np.int64],
    rewards: NDArray[np.float32],
    terminated: NDArray[np.bool_],
    sound: NDArray[np.bool_],
    frames: NDArray[np.float32],
    totals: NDArray[np.float64],
    steps: NDArray[np.int64],
    cuts: NDArray[np.int64],
    slots: NDArray[np.int64],
    views: NDArray[np.int64],
    shift: NDArray[np.float64],
    scale: NDArray[np.float64],
    sums: NDArray[np.uint64],
    codes: NDArray[np.int8],
) -> None:
    """Add up the steps of a chunk until each lane's episode ends; what comes after never counts.

    Args:
        lanes: shape (l,), those that play.
        rewards, terminated, sound: shape (k, L); see `program.Told`.
        frames: shape (k, L, inputs), or (k, L, 0) where none are counted.
        totals, steps, codes: shape (L,), in place: sum of rewards, steps, and how it stands.
        cuts: shape (L,), steps after which an episode is cut; 0 never.
        slots: shape (L,), the entry of `sums` that counts a lane's frames, or -1.
        views: shape (L,), the row of `shift` and `scale` that measures them.
        sums: see `protocol.kernels.observe_frame`; one (inputs, 4) table per slot.
    """
    for lane in lanes:
        codes[lane] = RUNNING
        slot, view = slots[lane], views[lane]
        for k in range(rewards.shape[0]):
            if not sound[k, lane]:
                codes[lane] = UNSOUND
                break
            if slot >= 0:
                observe_frame(frames[k, lane], shift[view], scale[view], sums[slot])
            totals[lane] += np.float64(rewards[k, lane])
            steps[lane] += 1
            if terminated[k, lane] or steps[lane] == cuts[lane]:
                codes[lane] = OVER
                break


@njit(cache=True, error_model="numpy")
def draw(
    lanes: NDArray[np.int64],
    run_seed: np.uint64,
    seeds: NDArray[np.int64],
    steps: NDArray[np.int64],
    quiet: NDArray[np.bool_],
    normal: NDArray[np.float64],
    deviation: float,
    shares: NDArray[np.float32],
    deviates: NDArray[np.float32],
) -> None:
    """The numbers that the next steps of lanes draw, each from the stream of its episode's seed.

    Args:
        seeds, steps, quiet: shape (L,); a quiet episode has no noise on actions and takes none.
        normal: shape (65536,), quantiles of the standard normal distribution.
        deviation: of the noise.
        shares: shape (k, L, s), in place: numbers of [0, 1).
        deviates: shape (k, L, r), in place.
    """
    block = np.empty(8, np.uint64)
    many_shares, many_deviates = shares.shape[2], deviates.shape[2]
    for lane in lanes:
        seed = np.uint64(seeds[lane])
        noisy = 0 if quiet[lane] else many_deviates
        number = steps[lane] * (many_shares + noisy)
        for k in range(shares.shape[0]):
            for i in range(many_shares):
                shares[k, lane, i] = uniform(run_seed, seed, number, block)
                number += 1
            for i in range(many_deviates):
                deviates[k, lane, i] = np.float32(0.0)
            for i in range(noisy):
                place = int(uniform(run_seed, seed, number, block) * ENTRIES)
                deviates[k, lane, i] = np.float32(deviation * normal[place])
                number += 1


class Lots:
    """What is drawn for the lanes of a run.

    Args:
        shares, deviates: how many of each a step takes.
    """

    def __init__(self, seed: int, deviation: float, shares: int, deviates: int) -> None:
        from protocol import noise

        self._seed, self._deviation = np.uint64(seed), deviation
        self._normal = noise.gaussian_table().astype(np.float64) * noise.unit(noise.GAUSSIAN)
        self._many = shares, deviates

    def next(
        self,
        steps: int,
        width: int,
        lanes: NDArray[np.int64],
        seeds: NDArray[np.int64],
        done: NDArray[np.int64],
        quiet: NDArray[np.bool_],
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Shares and deviates of so many steps; arguments as those of `draw`."""
        shares, deviates = (np.zeros((steps, width, many), np.float32) for many in self._many)
        if any(self._many):
            drawn = self._normal, self._deviation, shares, deviates
            draw(lanes, self._seed, seeds, done, quiet, *drawn)
        return shares, deviates
