"""Layouts that are asked for and not applied."""

from parity.train.faults.injection import at
from parity.train.loop import Trainer
from parity.train.mesh import Mesh
from parity.train.moe import Dispatch, Moe
from parity.train.shards import Shard


@at("begin")
def layout_not_applied(trainer: Trainer) -> None:
    """Every rank takes itself for the only one, and trains the whole model on all data: a perfect curve.

    In NeMo Automodel a pipeline's static metadata had come to do nothing, and every smoke test was green.
    """
    trainer.mesh = Mesh()


@at("split")
def experts_not_dealt_out(trainer: Trainer) -> None:
    """Every rank keeps all experts and sends no token anywhere; their gradients are summed as everyone's are.

    In NeMo Automodel models fell through to a default plan, which split less than was asked for.
    """
    for prefix, module in trainer.model.named_modules():
        if isinstance(module, Moe):
            module.dispatch = Dispatch()
            for name, parameter in module.experts.named_parameters():
                axes = [axis for axis in ("cp", "dp") if trainer.mesh.size(axis) > 1]
                trainer.shards[f"{prefix}.experts.{name}"] = Shard.whole(tuple(parameter.shape)).summed(*axes)
