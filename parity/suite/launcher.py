"""What starts a leg's ranks, where that is not this machine alone."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from parity.suite.values import Line, Model

__all__ = ["Launcher", "LauncherSetting", "SlurmSetting", "TorchrunSetting"]


class SlurmSetting(Model):
    """Slurm runs the leg: in the allocation that parity itself runs in, or as a job of its own."""

    ranks_per_node: int | None = Field(
        default=None, ge=1, description="The most ranks of a leg on one node; all of them if not given."
    )
    options: list[Line] = Field(default=[], description="More options of srun; may hold placeholders.")
    max_jobs: int | None = Field(
        default=None, ge=1, description="Legs that Slurm is given at a time; all of them if not given."
    )


class TorchrunSetting(Model):
    """torchrun on several machines, on each of which `parity run --node-rank` is started by hand or by CI."""

    nnodes: int = Field(ge=2, le=10_000, description="Machines; each gets as many of a leg's ranks as any other.")
    rdzv_endpoint: str = Field(
        pattern=r"^[A-Za-z0-9._-]+(:\d{1,5})?$", description="Name of machine 0 as the others know it, and a port."
    )


class Launcher(Model):
    """What starts the ranks; this machine if nothing is given."""

    slurm: SlurmSetting | None = None
    torchrun: TorchrunSetting | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.slurm is not None and self.torchrun is not None:
            raise PydanticCustomError("launcher", "must name one launcher, slurm or torchrun")
        return self

    def nodes(self, ranks: int) -> int:
        """How many nodes a leg of so many ranks takes: as few as may be of Slurm's, as many as may be of torchrun's.

        Every node gets the same number of ranks.
        """
        counts = [count for count in range(1, ranks + 1) if ranks % count == 0]
        if self.slurm is not None:
            most = self.slurm.ranks_per_node or ranks
            return min(count for count in counts if ranks // count <= most)
        if self.torchrun is not None:
            return max(count for count in counts if count <= self.torchrun.nnodes)
        return 1

    def slots(self, ranks: int) -> int:
        """How many of a leg's ranks run on this machine; those of a job of Slurm's are not counted."""
        return 0 if self.slurm is not None else ranks // self.nodes(ranks)


def _by_name(value: object) -> object:
    """`local` and `slurm` for what needs no options."""
    return {"local": {}, "slurm": {"slurm": {}}}.get(value, value) if isinstance(value, str) else value


LauncherSetting = Annotated[Launcher, BeforeValidator(_by_name, json_schema_input_type=Launcher | str)] | None
