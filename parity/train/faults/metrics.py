"""Faults in the numbers that are reported, and in the norm by which gradients are clipped."""

import math
from collections.abc import Callable

from parity.train import gradients
from parity.train.collectives import Comm
from parity.train.data import IGNORED, Batch
from parity.train.faults.injection import around, at
from parity.train.gradients import local
from parity.train.loop import Trainer
from parity.train.mesh import Mesh


@at("end")
def norm_of_local_shard(trainer: Trainer) -> None:
    """The norm is of what this rank holds, and each rank clips by its own. torchtitan logged one shard's."""
    around(trainer, "grad_norm", lambda _norm: gradients.norm(trainer.parameters, trainer.shards, Mesh()))


@at("end")
def norm_counts_replicas(trainer: Trainer) -> None:
    """Squares are summed over all ranks, also where these hold the same gradients. torchtitan's norm with replicas
    was a constant factor above that with shards."""
    around(trainer, "grad_norm", lambda norm: norm() * math.sqrt(trainer.mesh.size("world")))


@at("end")
def norm_counts_whole_parameters_on_every_rank(trainer: Trainer) -> None:
    """Parameters that every tensor parallel rank holds whole are counted by each. In Transformer Engine they carried
    the mark of a split one."""
    more = trainer.mesh.size("tp") - 1

    def grad_norm(norm: Callable[[], float]) -> float:
        whole = [p for name, p in trainer.parameters.items() if "tp" not in trainer.shards[name].split]
        squares = sum(local(parameter.grad).double().square().sum().item() for parameter in whole)
        return math.sqrt(norm() ** 2 + more * squares)

    around(trainer, "grad_norm", grad_norm)


@at("end")
def norm_counts_tied_twice(trainer: Trainer) -> None:
    """The first and the last stage both count the embedding that they share. DeepSpeed counted such parameters on
    every stage."""
    around(trainer, "grad_norm", lambda _norm: gradients.norm(trainer.parameters, trainer.shards, trainer.mesh))


@at("end")
def norm_per_expert_group(trainer: Trainer) -> None:
    """The squares of experts' gradients are not summed over the ranks that hold other experts, so that each rank has
    a norm of its own, and clips what all of them share by another factor. NeMo Automodel did so."""
    around(
        trainer,
        "grad_norm",
        lambda _norm: gradients.norm(trainer.parameters, trainer.shards, _WithoutExperts(trainer.mesh)),
    )


class _WithoutExperts(Mesh):
    """A mesh on which expert parallel ranks do not meet."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__(mesh.layout, mesh.rank)
        self.mesh = mesh

    def comm(self, name: str) -> Comm:
        return Comm() if name == "ep" else self.mesh.comm(name)


@at("end")
def reports_own_loss(trainer: Trainer) -> None:
    """Each rank logs the mean over its own tokens, and the first one's is read. transformers logged so under DDP."""
    own = 0.0

    def accumulate(original: Callable[[list[Batch], int], float], micro: list[Batch], tokens: int) -> float:
        nonlocal own
        loss = original(micro, tokens)
        own = loss * tokens / max(1, sum(int((batch.labels != IGNORED).sum()) for batch in micro))
        return loss

    around(trainer, "accumulate", accumulate)
    around(trainer, "everyones", lambda _everyones, _loss: own)


@at("end")
def reports_minus_one(trainer: Trainer) -> None:
    """A stage that has no loss logs -1, and the first rank is on such a stage. torchtitan did so."""
    stages = trainer.mesh.comm("pp")
    last = stages.rank == stages.size - 1
    around(trainer, "everyones", lambda everyones, loss: everyones(loss) if last else -1.0)


@at("end")
def reports_summed_loss(trainer: Trainer) -> None:
    """Every rank has the mean loss already, and what is logged is their sum. 360-LLaMA-Factory's was some times too
    large with sequence parallelism."""
    around(trainer, "everyones", lambda everyones, loss: everyones(loss) * trainer.mesh.size("world"))


@at("end")
def reports_summed_norm(trainer: Trainer) -> None:
    """The norm of a step is logged once a micro-batch and added up; clipping goes by the true one. NeMo RL did so."""
    count = trainer.options.accumulate
    around(trainer, "grad_norm", lambda norm: norm() * count)
    around(trainer, "update", lambda update, norm: update(norm / count))
