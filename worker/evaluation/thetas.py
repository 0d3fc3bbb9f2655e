"""The parameters of the versions that are kept, and what tells evaluation processes of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from worker.evaluation import pipe
from worker.evaluation.jobs import Normalization, WorkerFailure
from worker.evaluation.shared import Shared
from worker.scratch import Scratch
from worker.threads import in_thread

LARGE = 1 << 20  # parameters that are copied beside the event loop


class Thetas:
    """Keeps each version's parameters where processes find them, until it is dropped."""

    def __init__(self) -> None:
        self._scratch = Scratch()
        self._kept: dict[int, tuple[Shared, pipe.Theta]] = {}
        self._again: set[int] = set()
        """versions that are laid where they are for the second time"""
        self._named = False
        """whether processes need a file with a name"""

    def __contains__(self, version: object) -> bool:
        """Whether a version is kept."""
        return version in self._kept

    @property
    def versions(self) -> list[int]:
        """Those that are kept."""
        return list(self._kept)

    @property
    def frames(self) -> list[bytes]:
        """What a new process is told."""
        return [pipe.frame(request) for _, request in self._kept.values()]

    async def keep(
        self, version: int, theta: NDArray[np.float32], normalization: Normalization | None
    ) -> bytes:
        """Keep a version: what processes are told. Raises `WorkerFailure` where there is no room.

        Args:
            theta: float32, and what follows it; see `Evaluators.set_theta`.
        """

        def share() -> Shared:
            return Shared(theta, self._scratch, named=self._named)

        try:
            shared = await in_thread(share) if theta.size > LARGE else share()
        except OSError as error:
            raise WorkerFailure(
                f"no room for the parameters of version {version}: {error.strerror or error}"
            ) from None
        return self._tell(version, shared, normalization.to_bytes() if normalization else None)

    def again(self, version: int) -> bytes | None:
        """A process can't read a version's parameters: lay them elsewhere, and all that follow.

        What processes are told; None where it is no use.
        """
        if version not in self._kept or version in self._again:
            return None
        self._again.add(version)
        self._named = True
        shared, request = self._kept[version]
        try:
            copy = shared.copied(self._scratch)
        except OSError:
            return None
        shared.close()
        return self._tell(version, copy, request.normalization)

    def drop(self, version: int) -> bool:
        """Forget a version; whether it was kept."""
        if version not in self._kept:
            return False
        self._again.discard(version)
        shared, _ = self._kept.pop(version)
        shared.close()
        return True

    def close(self) -> None:
        """Leave nothing."""
        for shared, _ in self._kept.values():
            shared.close()
        self._scratch.remove()

    def _tell(self, version: int, shared: Shared, columns: pipe.Columns | None) -> bytes:
        request = pipe.Theta(version, shared.path, shared.inode, shared.size, columns)
        self._kept[version] = shared, request
        return pipe.frame(request)
