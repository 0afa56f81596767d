"""The parallel sizes of a leg."""

import re
from dataclasses import asdict, dataclass

__all__ = ["AXES", "Layout", "axis_of"]

AXES = ("dp", "fsdp", "tp", "pp", "ep", "cp")


@dataclass(frozen=True)
class Layout:
    """Parallel sizes. Expert parallelism reuses the ranks of `dp`, `fsdp` and `cp`, so it adds none.

    Attributes:
        dp: data parallel replicas.
        fsdp: shards of fully sharded data parallelism.
        tp: tensor parallel size.
        pp: pipeline stages.
        ep: expert parallel size; must divide dp * fsdp * cp.
        cp: context parallel size.
    """

    dp: int = 1
    fsdp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    cp: int = 1

    @property
    def world_size(self) -> int:
        """How many ranks the layout takes."""
        return self.dp * self.fsdp * self.tp * self.pp * self.cp

    def sizes(self) -> dict[str, int]:
        """All sizes by axis name."""
        return asdict(self)

    def __str__(self) -> str:
        return " ".join(f"{axis}={size}" for axis, size in self.sizes().items() if size > 1) or "one rank"


def axis_of(mesh_dimension: str) -> str:
    """The axis that a mesh dimension stands for, in the words of torchtitan, NeMo Automodel, Megatron-Core, VeOmni
    and torch's examples, such as `dp_shard`, `ep_shard` or `tp`; empty if no word is known.
    """
    words = set(re.split(r"[^a-z]+", mesh_dimension.lower()))
    return next((axis for axis, known in _MESH_WORDS if words & known), "")


_MESH_WORDS = (
    ("fsdp", {"fsdp", "shard", "sharded"}),
    ("ep", {"ep", "expert", "experts"}),
    ("tp", {"tp", "tensor", "model"}),
    ("pp", {"pp", "pipe", "pipeline"}),
    ("cp", {"cp", "context"}),
    ("fsdp", {"dp", "data"}),
)
