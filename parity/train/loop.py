"""The training loop, one and the same under every layout."""

import torch
from torch import Tensor

from parity.layout import Layout
from parity.record import Recorder
from parity.train import tensor_parallel, weights
from parity.train.collectives import Comm
from parity.train.data import IGNORED, batches
from parity.train.options import TrainOptions
from parity.train.qwen3 import DTYPES, Qwen3
from parity.train.shards import Shard

__all__ = ["Trainer", "train"]


class Trainer:
    """A model under a layout, with its optimizer. Call `backward`, `grad_norm` and `update` once each a step.

    Args:
        options: what is trained.
        seed: of the weights and the data.
        device: where.
        tp: the ranks that the model is split over.
    """

    def __init__(self, options: TrainOptions, *, seed: int, device: torch.device, tp: Comm) -> None:
        self.options = options
        self.seed = seed
        self.device = device
        self.tp = tp
        self.model = Qwen3(options)
        self.shards: dict[str, Shard]
        """Each parameter's place in its whole tensor, by name."""
        if tp.size > 1:
            self.shards = tensor_parallel.apply(self.model, options, tp)
        else:
            self.shards = {name: Shard.whole(tuple(p.shape)) for name, p in self.model.named_parameters()}
        dtype = torch.promote_types(DTYPES[options.dtype], torch.float32)  # bf16 computes from fp32 weights
        weights.fill(self.model, self.shards, seed=seed, dtype=dtype, device=device)
        self.optimizer = _optimizer(self.model, options)

    def backward(self, step: int) -> float:
        """Compute a step's gradients over all its micro-batches.

        Returns:
            The mean loss of the tokens of the global batch that are not masked: a sum over all micro-batches
            divided by one count, so that the number of micro-batches changes nothing.
        """
        self.optimizer.zero_grad(set_to_none=True)
        micro = batches(self.options, self.seed, step)
        tokens = sum(int((batch.labels != IGNORED).sum()) for batch in micro)
        total = 0.0
        for batch in micro:
            loss = self.model(batch.tokens.to(self.device), batch.labels.to(self.device)) / tokens
            loss.backward()
            total += loss.item()
        self._sum_partial_gradients()
        return total

    def grad_norm(self) -> float:
        """L2 norm of the whole gradient, from sums of squares in float64; the same on every rank."""
        split, everywhere = (torch.zeros((), dtype=torch.float64, device=self.device) for _ in range(2))
        for name, parameter in self.model.named_parameters():
            # What every rank holds is counted once, and what is split is counted where it is.
            (everywhere if self.shards[name].is_whole else split).add_(parameter.grad.double().square().sum())
        return (self.tp.sum(split) + everywhere).sqrt().item()

    def update(self, grad_norm: float) -> None:
        """Clip the gradients and take an optimizer step."""
        if 0 < self.options.clip < grad_norm:
            scale = self.options.clip / grad_norm
            for parameter in self.model.parameters():
                parameter.grad.mul_(scale)
        self.optimizer.step()

    def _sum_partial_gradients(self) -> None:
        partial = [p.grad for name, p in self.model.named_parameters() if self.shards[name].partial]
        if not partial:
            return
        sums = self.tp.sum(torch.cat([grad.flatten() for grad in partial]))
        for grad, total in zip(partial, sums.split([grad.numel() for grad in partial]), strict=True):
            grad.copy_(total.view_as(grad))


def train(
    options: TrainOptions,
    layout: Layout,
    *,
    steps: int,
    seed: int,
    device: torch.device,
    tp: Comm,
    recorder: Recorder,
    environment: dict[str, object],
) -> None:
    """Train, record every step, and print a line for each on rank 0.

    Args:
        options: what is trained.
        layout: the parallel sizes, for the record.
        steps: optimizer steps.
        seed: of the weights and the data.
        device: where.
        tp: the ranks of the tensor parallel axis.
        recorder: gets the curves.
        environment: of the process, for the record; completed by what the model adds.
    """
    trainer = Trainer(options, seed=seed, device=device, tp=tp)
    sizes = (torch.Size(shard.shape).numel() for shard in trainer.shards.values())
    recorder.start({**environment, "dtype": options.dtype, "layout": layout.sizes(), "parameters": sum(sizes)})
    for step in range(steps):
        loss = trainer.backward(step)
        norm = trainer.grad_norm()
        trainer.update(norm)
        recorder.step(step, loss=loss, grad_norm=norm, lr=options.lr)
        if tp.rank == 0:
            # Flushed line by line: a rank that is killed leaves what it has done.
            print(f"step {step} loss {loss:.6f} grad_norm {norm:.4f} lr {options.lr:g}", flush=True)
    recorder.end(steps)


def _optimizer(model: torch.nn.Module, options: TrainOptions) -> torch.optim.Optimizer:
    def matrix(parameter: Tensor) -> bool:
        return parameter.ndim > 1

    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if matrix(p)], "weight_decay": options.weight_decay},
        {"params": [p for p in parameters if not matrix(p)], "weight_decay": 0.0},
    ]
    kind = torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.SGD
    return kind(groups, lr=options.lr)
