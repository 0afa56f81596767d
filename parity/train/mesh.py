"""Where each rank stands on the axes of a layout, and which ranks communicate with which.

Ranks are numbered with `tp` running fastest, then `cp`, `fsdp`, `dp`, and `pp` slowest: the order of Megatron-LM
and torchtitan, which puts the axes that communicate most often on neighbouring ranks. Expert parallelism takes no
ranks of its own: it cuts the `dp`·`fsdp`·`cp` ranks of one stage into runs of `ep` neighbours.
"""

import torch.distributed as dist

from parity.layout import Layout
from parity.train.collectives import Comm

__all__ = ["ORDER", "Mesh"]

ORDER = ("pp", "dp", "fsdp", "cp", "tp")
"""Axes that take ranks, the slowest first."""

DATA = ("dp", "fsdp")
"""Axes over which samples are dealt."""

TOKENS = ("dp", "fsdp", "cp")
"""Axes over which the tokens of a global batch are spread; their ranks' losses add up."""

UNIONS = {**{axis: (axis,) for axis in ORDER}, "data": DATA, "tokens": TOKENS, "world": ORDER}


class Mesh:
    """This rank's place, and a `Comm` for every axis and for the unions that something needs.

    Names that `comm` and `size` know: the axes of `ORDER`; `data` (dp × fsdp), `tokens` (dp × fsdp × cp) and
    `world`; `ep`, the ranks that share one set of experts; and `expert_dp`, the ranks that hold the same
    experts, over which those experts' gradients are summed.

    Args:
        layout: the parallel sizes.
        rank: this process among `layout.world_size`.
    """

    def __init__(self, layout: Layout | None = None, rank: int = 0) -> None:
        self.layout = Layout() if layout is None else layout
        self.rank = rank
        self._groups: dict[tuple[int, ...], dist.ProcessGroup | None] = {}
        self._comms: dict[str, Comm] = {}

    @property
    def coordinates(self) -> dict[str, int]:
        """This rank's index on every axis, `ep` included."""
        place = self._place(self.rank)
        return {**place, "ep": self._flat(place) % self.layout.ep}

    def size(self, name: str) -> int:
        """How many ranks there are on an axis or in a union."""
        return self.comm(name).size

    def comm(self, name: str) -> Comm:
        """The ranks of an axis or union that this rank is one of."""
        if name not in self._comms:
            ranks = self._members(name, self.rank)
            self._comms[name] = Comm(ranks.index(self.rank), len(ranks), self._groups.get(tuple(ranks)))
        return self._comms[name]

    def connect(self) -> None:
        """Make the process groups. Every rank calls it, once the default group is there and before any `comm`."""
        world = self.layout.world_size
        for name in (*UNIONS, "ep", "expert_dp"):
            for rank in range(world):
                ranks = tuple(self._members(name, rank))
                # All ranks have the default group; a rank alone needs none.
                if 1 < len(ranks) < world and ranks not in self._groups:
                    group = dist.new_group(list(ranks))
                    self._groups[ranks] = group if self.rank in ranks else None

    def _members(self, name: str, rank: int) -> list[int]:
        """The ranks, in ascending order, that a rank meets on an axis or in a union."""
        key = self._key(name, rank)
        return [other for other in range(self.layout.world_size) if self._key(name, other) == key]

    def _key(self, name: str, rank: int) -> tuple[int, ...]:
        """Equal for ranks that meet."""
        place = self._place(rank)
        if name == "ep":
            return place["pp"], place["tp"], self._flat(place) // self.layout.ep
        if name == "expert_dp":
            return place["pp"], place["tp"], self._flat(place) % self.layout.ep
        return tuple(index for axis, index in place.items() if axis not in UNIONS[name])

    def _place(self, rank: int) -> dict[str, int]:
        place = {}
        for axis in reversed(ORDER):
            rank, place[axis] = divmod(rank, getattr(self.layout, axis))
        return {axis: place[axis] for axis in ORDER}

    def _flat(self, place: dict[str, int]) -> int:
        """Number of a rank among those over which the tokens of its stage are spread."""
        flat = 0
        for axis in TOKENS:
            flat = flat * getattr(self.layout, axis) + place[axis]
        return flat
