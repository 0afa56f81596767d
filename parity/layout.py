"""The parallel sizes of a leg."""

from dataclasses import asdict, dataclass

__all__ = ["AXES", "Layout"]

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
