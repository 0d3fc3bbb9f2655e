"""Policies on a device: noise travels there as the bytes that it is, members are built there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from protocol import noise
from protocol.spec import RunSpec
from worker.policies.batched import ModulePolicy

SHARE = 8
"""Of the memory that is free on the device a block of members takes one in so many: several blocks,
the lanes' own parameters and other processes have room too."""
MOST_BYTES = 1 << 30


class DevicePolicy(ModulePolicy):
    """A policy as a PyTorch module whose lanes and members are on a device."""

    def __init__(self, spec: RunSpec, lanes: int, module: nn.Module, device: str) -> None:
        """Raises `PolicyUnavailable` where the module can't be this run's policy."""
        super().__init__(spec, lanes, module, device)
        self._table = torch.empty(0)
        if spec.strategy.noise == noise.GAUSSIAN:
            table = torch.from_numpy(noise.gaussian_table().astype(np.float32))
            self._table = table.to(self.device)
        if self.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self.device)
            self.block_bytes = min(free // SHARE, MOST_BYTES)

    def room(self, rows: int) -> Tensor:
        """Memory on the device; see `Policy.room`."""
        return torch.empty(rows, self.order.size, device=self.device)

    def members(
        self,
        first: int,
        count: int,
        theta: NDArray[np.float32],
        sigma: noise.Spread,
        room: Tensor,
    ) -> None:
        """Members on the device, bit for bit those of `protocol.noise`; see `Policy.members`."""
        kind, seed = self._noise
        per_direction = self._per_direction
        scale = torch.from_numpy(np.asarray(noise.scale(kind, sigma))).to(self.device)
        with torch.inference_mode():
            centre = torch.from_numpy(np.array(theta, dtype=np.float32)).to(self.device)
            parts = self._signs if kind == noise.RADEMACHER else self._values
            begin = 0
            for directions in parts(seed, first, count, theta.size):
                # The product is rounded before the sum: in one operation it would not be.
                product = directions * scale
                end = begin + per_direction * len(product)
                rows = room[begin:end].view(len(product), per_direction, -1)
                torch.add(centre, product, out=rows[:, 0])
                if per_direction == 2:
                    torch.sub(centre, product, out=rows[:, 1])
                begin = end

    def centre(self, theta: NDArray[np.float32], room: Tensor) -> None:
        """Write theta to the device; see `Policy.centre`."""
        room[0] = torch.from_numpy(np.array(theta, dtype=np.float32)).to(self.device)

    def _signs(self, seed: int, first: int, count: int, size: int) -> Iterator[Tensor]:
        """Rademacher directions, -1 or +1: those of a block are the bits of the same bytes."""
        for block in range(first // 8, (first + count - 1) // 8 + 1):
            octets = noise.stream(seed, noise.Domain.NOISE, block, size)
            there = torch.from_numpy(octets).to(self.device)
            low, high = max(first, 8 * block), min(first + count, 8 * block + 8)
            bits = torch.arange(low, high, device=self.device).remainder(8).to(torch.uint8)
            yield ((there >> bits[:, None]) & 1).float() * 2 - 1

    def _values(self, seed: int, first: int, count: int, size: int) -> Iterator[Tensor]:
        """Gaussian directions, in integers of the noise's unit: entries of a table by 16 bits."""
        for direction in range(first, first + count):
            octets = noise.stream(seed, noise.Domain.NOISE, direction, 2 * size)
            places = torch.from_numpy(octets.view("<i2")).to(self.device).int() & 0xFFFF
            yield self._table[places][None]
