"""Which directions each batch has, where their number changes in the course of a run: pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stretch:
    """Batches from `index` on: the directions of that one begin with `first`, and each of them has
    `count`."""

    index: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Batches side by side, without gap or overlap: no direction is in two of them.

    Attributes:
        stretches: by index, ascending, at least one; the last has no end. Batches before the first
            are forgotten.
    """

    stretches: tuple[Stretch, ...]

    @classmethod
    def even(cls, count: int) -> Layout:
        """All batches have so many directions."""
        return cls((Stretch(0, 0, count),))

    def count(self, index: int) -> int:
        """Directions of a batch."""
        return self._of_batch(index).count

    def first(self, index: int) -> int:
        """The first direction of a batch."""
        stretch = self._of_batch(index)
        return stretch.first + (index - stretch.index) * stretch.count

    def index(self, direction: int) -> int:
        """The batch that a direction belongs to; of one before all that are known, some index
        before theirs."""
        for stretch in reversed(self.stretches):
            if direction >= stretch.first:
                break
        return stretch.index + (direction - stretch.first) // stretch.count

    @property
    def most(self) -> int:
        """Directions of the largest batch."""
        return max(stretch.count for stretch in self.stretches)

    def resized(self, index: int, count: int) -> Layout:
        """Likewise, but that batches from `index` on, beyond all stretches, have `count`."""
        if index <= self.stretches[-1].index:
            raise ValueError(f"batch {index} is of another size already: give a later one")
        return Layout((*self.stretches, Stretch(index, self.first(index), count)))

    def since(self, index: int) -> Layout:
        """What of it tells of batches from `index` on."""
        ended = sum(after.index <= index for after in self.stretches[1:])
        return Layout(self.stretches[ended:]) if ended else self

    @property
    def fits_together(self) -> bool:
        """Whether each stretch begins where the one before it ends, as those that are made here."""
        pairs = zip(self.stretches, self.stretches[1:], strict=False)
        return all(
            after.index > before.index
            and after.first == before.first + (after.index - before.index) * before.count
            for before, after in pairs
        )

    def _of_batch(self, index: int) -> Stretch:
        for stretch in reversed(self.stretches):
            if index >= stretch.index:
                break
        return stretch
