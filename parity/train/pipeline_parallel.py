"""Pipeline parallelism with the schedules of `torch.distributed.pipelining`.

A stage is the whole model without the parts that are elsewhere, so that parameters keep their names. Every stage
gets each micro-batch's token ids directly, as the data is the same everywhere; only the stream crosses a stage
boundary, and its gradient the other way.
"""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from parity.errors import UsageError
from parity.train.collectives import Comm
from parity.train.data import Batch
from parity.train.models import Model
from parity.train.options import TrainOptions
from parity.train.shards import span

__all__ = ["Pipeline", "apply", "stage_layers", "sum_tied"]

WIDTH = 8
"""Numbers in which a stream's shape is told: its dimensions, padded with zeros, and its dtype."""

DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def stage_layers(options: TrainOptions, stages: int, stage: int) -> range:
    """The layers of a stage: `first_stage_layers` on the first if that is not 0, and the rest shared evenly."""
    first = options.first_stage_layers
    if first == 0 or stages == 1:
        return range(*span(options.layers, stages, stage))
    if stage == 0:
        return range(first)
    start, stop = span(options.layers - first, stages - 1, stage - 1)
    return range(first + start, first + stop)


def apply(model: Model, options: TrainOptions, comm: Comm) -> frozenset[str]:
    """Take away from a model what other stages have, in place.

    The first stage keeps what `enter` uses and the last what `leave` and `loss` use. A parameter that both use
    (tied embeddings) is kept by both, under the one name it has in the whole model.

    Returns:
        Names of the parameters that both the first and the last stage hold; the same on every stage.
    """
    first, last = comm.rank == 0, comm.rank == comm.size - 1
    tied = _tied(model)
    here = set(stage_layers(options, comm.size, comm.rank))
    model.layers = nn.ModuleDict({name: layer for name, layer in model.layers.named_children() if int(name) in here})
    shared = {name.partition(".")[0] for name in tied}
    for name in model.entry:
        # The last stage needs the module for its name only: its parameter is the one that an exit module uses.
        if not first and not (last and name in shared):
            delattr(model, name)
    for name in model.exit:
        if not last:
            delattr(model, name)
    return frozenset(tied)


def _tied(model: Model) -> list[str]:
    at_exit = {id(parameter) for name in model.exit for parameter in getattr(model, name).parameters()}
    return [
        f"{module}.{name}"
        for module in model.entry
        for name, parameter in getattr(model, module).named_parameters()
        if id(parameter) in at_exit
    ]


class Pipeline:
    """Runs a step's micro-batches through the stages.

    Args:
        model: this stage's, from `apply`.
        options: what is trained.
        comm: the stages.
        device: where this stage computes.
        like: a micro-batch, for its shape.
    """

    def __init__(self, model: Model, options: TrainOptions, comm: Comm, device: torch.device, like: Batch) -> None:
        self.model = model
        self.comm = comm
        self.device = device
        self.first, self.last = comm.rank == 0, comm.rank == comm.size - 1
        self.tokens = 0
        tokens = like.tokens.to(device)
        stream, output = _shapes(model, tokens, comm)
        # Shapes are given, or the schedule would find them by running every stage forward and backward once.
        stage = PipelineStage(
            _Stage(model, self.first, self.last),
            comm.rank,
            comm.size,
            device,
            input_args=(tokens.to("meta"),) if self.first else (stream,),
            output_args=(output,),
            group=comm.group,
        )
        if "scale_grads" not in inspect.signature(ScheduleGPipe).parameters:
            raise UsageError(f"layout.pp: torch {torch.__version__} cannot leave gradients unscaled: take a later")
        kind = ScheduleGPipe if options.schedule == "gpipe" else Schedule1F1B
        # The loss is divided by the tokens of the global batch; a mean over micro-batches would be another one.
        self.schedule = kind(stage, options.accumulate, loss_fn=self._loss, scale_grads=False)

    def backward(self, micro: list[Batch], tokens: int) -> float:
        """Compute this stage's gradients over all micro-batches.

        Args:
            micro: this rank's part of each micro-batch, on the CPU.
            tokens: that have a loss in the whole global batch.

        Returns:
            The loss summed over the micro-batches and divided by `tokens`; the same on every stage.
        """
        self.tokens = tokens
        ids = torch.cat([batch.tokens for batch in micro]).to(self.device)
        labels = torch.cat([batch.labels for batch in micro]).to(self.device)
        losses: list[Tensor] = []
        given: dict[str, Any] = {"target": labels, "losses": losses} if self.last else {}
        self.schedule.step(*((ids,) if self.first else ()), tokens=ids, **given)
        # Summed one by one as without a pipeline: losses is empty on all stages but the last.
        total = sum(loss.item() for loss in losses)
        return self.comm.sum(torch.tensor(total, dtype=torch.float64, device=self.device)).item()

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.model.loss(logits, labels) / self.tokens


class _Stage(nn.Module):
    """What the schedule calls for each micro-batch."""

    def __init__(self, model: Model, first: bool, last: bool) -> None:
        super().__init__()
        self.model = model
        self.first = first
        self.last = last

    def forward(self, x: Tensor, *, tokens: Tensor) -> Tensor:
        """The previous stage's stream, or token ids on the first, to the stream, or logits on the last."""
        x = self.model.through(self.model.enter(x) if self.first else x, tokens)
        return self.model.leave(x) if self.last else x


@torch.no_grad()
def _shapes(model: Model, tokens: Tensor, comm: Comm) -> tuple[Tensor, Tensor]:
    """The stream, and what this stage gives (the stream or logits), as tensors without values."""
    told = torch.zeros(WIDTH, dtype=torch.int64, device=tokens.device)
    if comm.rank == 0:
        x = model.enter(tokens)
        numbers = [DTYPES.index(x.dtype), *x.shape]
        told[: len(numbers)] = torch.tensor(numbers)
    dtype, *shape = comm.sum(told).tolist()
    x = torch.zeros([size for size in shape if size], dtype=DTYPES[dtype], device=tokens.device)
    given = model.leave(x) if comm.rank == comm.size - 1 else x
    # Gradients come back along whatever is said to require one.
    return x.to("meta").requires_grad_(), given.to("meta").requires_grad_()


def sum_tied(grads: list[Tensor], comm: Comm) -> None:
    """Sum over the first and the last stage the gradients of what both hold, in place.

    Args:
        grads: in the same order on both, and of one dtype; empty on the stages between, which must call this too.
        comm: the stages.
    """
    ends = (0, comm.size - 1)
    flat = torch.cat([grad.flatten() for grad in grads]) if grads else torch.empty(0)
    nothing = flat[:0]
    parts = [flat if comm.rank in ends and peer in ends else nothing for peer in range(comm.size)]
    received = comm.exchange(parts, [part.shape for part in parts])
    total = received[0] + received[-1]
    for grad, summed in zip(grads, total.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(summed.view_as(grad))
