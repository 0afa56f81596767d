"""Where a rank's part of a parameter lies in the whole tensor."""

from dataclasses import dataclass, replace

import torch

__all__ = ["Shard", "span"]


@dataclass(frozen=True)
class Shard:
    """A box cut out of a parameter's whole tensor.

    Attributes:
        shape: of the whole tensor.
        starts: per dimension, the first index that this rank holds.
        stops: per dimension, one past the last.
        split: names of the mesh's axes whose ranks hold other boxes.
        partial: names of the mesh's axes over whose ranks the gradients must still be added up after the
            backward pass. A parameter that ranks hold whole needs it when each of them used it on other
            activations.
    """

    shape: tuple[int, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    split: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> "Shard":
        """All of a tensor."""
        return cls(tuple(shape), (0,) * len(shape), tuple(shape))

    @property
    def is_whole(self) -> bool:
        """Whether every rank holds everything."""
        return self.stops == self.shape and not any(self.starts)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Indexes the whole tensor to give this rank's part."""
        return tuple(map(slice, self.starts, self.stops))

    def part(self, whole: torch.Tensor) -> torch.Tensor:
        """This rank's part of the whole tensor, as a view."""
        return whole[self.slices]

    def cut(self, axis: str, dim: int, start: int, stop: int) -> "Shard":
        """The same box, reaching from `start` to `stop` of the whole tensor in one dimension: an axis splits it."""
        starts, stops = list(self.starts), list(self.stops)
        starts[dim], stops[dim] = start, stop
        return replace(self, starts=tuple(starts), stops=tuple(stops), split=(*self.split, axis))

    def summed(self, *axes: str) -> "Shard":
        """The same box, whose gradient must be added up over these axes too."""
        return replace(self, partial=(*self.partial, *axes))


def span(total: int, parts: int, index: int) -> tuple[int, int]:
    """Start and stop of one part of a near-even split: the first `total % parts` parts have one more."""
    size, rest = divmod(total, parts)
    start = index * size + min(index, rest)
    return start, start + size + (index < rest)
