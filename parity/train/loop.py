"""The training loop, one and the same under every layout.

How an axis plugs in. It is one file beside this one, and `Trainer` calls its `apply` when the axis is larger than 1.
An axis changes a model in place, by replacing or hooking modules that it finds by type or name, and describes in a
`Shard` for each parameter what this rank holds (`split`) and over which axes of the mesh the gradients must still
be summed after the backward pass (`partial`). The sums, the norm and the clipping follow from that and need no
change. Axes that decide what a rank computes come before the weights are filled (tensor, pipeline), those that store
filled weights differently come after (fully sharded). `options.PAIRS` names what can be
asked for together.

How a model plugs in: see `models`.
How a fault is put in: see `faults.injection`. It replaces one of the trainer's public methods, for the most part.
"""

import torch
from torch import Tensor, nn

from parity.record import Recorder
from parity.train import (
    context_parallel,
    data_parallel,
    expert_parallel,
    fully_sharded,
    gradients,
    moe,
    pipeline_parallel,
    tensor_parallel,
    weights,
)
from parity.train.collectives import Comm
from parity.train.data import IGNORED, Batch, batches
from parity.train.faults.injection import inject
from parity.train.mesh import Mesh
from parity.train.models import DTYPES, build
from parity.train.options import TrainOptions
from parity.train.shards import Shard, span

__all__ = ["Trainer", "train"]


class Trainer:
    """A model under a layout, with its optimizer. Call `backward`, `grad_norm` and `update` once each a step.

    Args:
        options: what is trained.
        seed: of the weights and the data.
        device: where.
        mesh: the layout, and this rank's place in it.
    """

    def __init__(self, options: TrainOptions, *, seed: int, device: torch.device, mesh: Mesh | None = None) -> None:
        self.options = options
        self.seed = seed
        self.device = device
        self.mesh = mesh or Mesh()
        inject(self, "begin")
        mesh = self.mesh
        self.model = build(options)
        self.size = sum(parameter.numel() for parameter in self.model.parameters())
        """Elements of the whole model's parameters."""
        self.shards: dict[str, Shard]
        """The place of each parameter that this rank holds in its whole tensor, by name."""
        if mesh.size("tp") > 1:
            self.shards = tensor_parallel.apply(self.model, options, mesh.comm("tp"))
        else:
            self.shards = {name: Shard.whole(tuple(p.shape)) for name, p in self.model.named_parameters()}
        if mesh.size("ep") > 1:
            self.shards |= expert_parallel.apply(self.model, mesh.comm("ep"))
        if mesh.size("cp") > 1:
            self.shards = context_parallel.apply(self.model, options, mesh.comm("cp"), self.shards)
        if mesh.size("dp") > 1:
            self.shards = data_parallel.apply(self.shards)
        self.tied: frozenset[str] = frozenset()
        """Names of the parameters that the first and the last stage of a pipeline both hold."""
        if mesh.size("pp") > 1:
            self.tied = pipeline_parallel.apply(self.model, options, mesh.comm("pp"))
            self.shards = {name: self.shards[name] for name, _ in self.model.named_parameters()}
        inject(self, "split")
        dtype = torch.promote_types(DTYPES[options.dtype], torch.float32)  # bf16 computes from fp32 weights
        weights.fill(self.model, self.shards, seed=seed, dtype=dtype, device=device)
        if mesh.size("fsdp") > 1:
            self.shards = fully_sharded.apply(self.model, options, mesh.comm("fsdp"), self.shards)
        self.narrow = expert_parallel.narrow(self.model) if options.expert_reduce_dtype == "bf16" else frozenset()
        """Names of the parameters whose gradients are summed in bf16."""
        # The mean over all ranks' micro-batches, as the loss is the mean over all ranks' tokens.
        moe.set_auxiliary_loss(self.model, options.aux_loss / (options.accumulate * mesh.size("data")))
        self.parameters = dict(self.model.named_parameters())
        """What this rank holds, by the names of the whole model."""
        self.pipeline: pipeline_parallel.Pipeline | None = None
        if mesh.size("pp") > 1:
            like = self.stretches(self.deal(batches(options, seed, 0)))[0]
            self.pipeline = pipeline_parallel.Pipeline(self.model, options, mesh.comm("pp"), device, like)
        self.optimizer = _optimizer(self.model, options)
        self.dealt: list[Batch] = []
        """The samples of each micro-batch of the last step that this data parallel rank had, whole."""
        inject(self, "end")

    def backward(self, step: int) -> float:
        """Compute a step's gradients over all its micro-batches.

        Returns:
            The mean loss of the tokens of the global batch that are not masked: a sum over all micro-batches and
            ranks divided by one count, so that neither's number changes anything. The same on every rank.
        """
        self.optimizer.zero_grad(set_to_none=True)
        whole = self.global_batch(step)
        tokens = sum(int((batch.labels != IGNORED).sum()) for batch in whole)
        self.dealt = self.deal(whole)
        loss = self.accumulate(self.stretches(self.dealt), tokens)
        self.reduce()
        return self.everyones(loss)

    def global_batch(self, step: int) -> list[Batch]:
        """A step's micro-batches over all ranks."""
        return batches(self.options, self.seed, step)

    def deal(self, micro: list[Batch]) -> list[Batch]:
        """This data parallel rank's samples of each micro-batch."""
        data = self.mesh.comm("data")
        return [batch.part(data.rank, data.size) for batch in micro]

    def stretches(self, micro: list[Batch]) -> list[Batch]:
        """This context parallel rank's tokens of each sample."""
        cp = self.mesh.comm("cp")
        tokens = span(self.options.seq_len, cp.size, cp.rank)
        return [batch.stretch(*tokens) for batch in micro]

    def accumulate(self, micro: list[Batch], tokens: int) -> float:
        """Add up the gradients of this rank's part of each micro-batch.

        Returns:
            Its loss, a sum divided by `tokens`; the same on every stage of a pipeline.
        """
        if self.pipeline is not None:
            return self.pipeline.backward(micro, tokens)
        total = 0.0
        for batch in micro:
            loss = self.model(batch.tokens.to(self.device), batch.labels.to(self.device)) / tokens
            loss.backward()
            total += loss.item()
        return total

    def reduce(self) -> None:
        """Sum the gradients over the ranks that each saw a part of what their parameter did."""
        gradients.sum_partial(self.parameters, self.shards, self.mesh, self.narrow)
        if self.tied:
            self.sum_tied()

    def sum_tied(self) -> None:
        """Sum the gradients of what the first and the last stage both hold."""
        tied = [parameter.grad for name, parameter in self.parameters.items() if name in self.tied]
        pipeline_parallel.sum_tied(tied, self.mesh.comm("pp"))

    def everyones(self, loss: float) -> float:
        """The sum of the ranks' losses."""
        mine = torch.tensor(loss, dtype=torch.float64, device=self.device)
        return self.mesh.comm("tokens").sum(mine).item()

    def grad_norm(self) -> float:
        """L2 norm of the whole gradient, from sums of squares in float64; the same on every rank."""
        copies = self.tied if self.mesh.coordinates["pp"] > 0 else frozenset()
        counted = {name: parameter for name, parameter in self.parameters.items() if name not in copies}
        return gradients.norm(counted, self.shards, self.mesh)

    def update(self, grad_norm: float) -> None:
        """Clip the gradients and take an optimizer step."""
        gradients.clip(self.parameters.values(), grad_norm, self.options.clip)
        self.optimizer.step()
        self.balance(self.mesh.comm("tokens"))

    def balance(self, ranks: Comm) -> None:
        """Move the experts' selection biases by the load of the tokens of these ranks."""
        moe.update_biases(self.model, self.options.bias_update_rate, ranks)

    def auxiliary_loss(self) -> float | None:
        """The load-balancing loss of the last `backward`, the same on every rank; None if it is off."""
        if not self.options.aux_loss:
            return None
        mine = torch.tensor(moe.take_auxiliary_loss(self.model), dtype=torch.float64, device=self.device)
        return self.mesh.comm("pp").sum(self.mesh.comm("tokens").sum(mine)).item()

    def layers(self) -> list[int]:
        """Indices in the whole model of the layers that this rank computes."""
        return [int(name) for name, _ in self.model.layers.named_children()]


def train(
    options: TrainOptions,
    mesh: Mesh,
    *,
    steps: int,
    seed: int,
    device: torch.device,
    recorder: Recorder,
    environment: dict[str, object],
) -> None:
    """Train, record every step, and print a line for each on rank 0.

    Args:
        options: what is trained.
        mesh: the layout, and this rank's place in it.
        steps: optimizer steps.
        seed: of the weights and the data.
        device: where.
        recorder: gets the curves, and watches the model.
        environment: of the process, for the record; completed by what the model adds.
    """
    trainer = Trainer(options, seed=seed, device=device, mesh=mesh)
    about = {"dtype": options.dtype, "layout": mesh.layout.sizes(), "parameters": trainer.size}
    recorder.start(
        trainer.model,
        trainer.optimizer,
        environment={**environment, **about},
        coordinates=trainer.mesh.coordinates,
        shards=trainer.shards,
        layers=trainer.layers(),
        experts=expert_parallel.held(trainer.model, trainer.shards) or None,
    )
    for step in range(steps):
        loss = trainer.backward(step)
        recorder.gradients()
        norm = trainer.grad_norm()
        trainer.update(norm)
        recorder.step(
            step,
            loss=loss,
            grad_norm=norm,
            lr=options.lr,
            batch=trainer.dealt,
            micro_batches=options.accumulate,
            aux_loss=trainer.auxiliary_loss(),
        )
        if step == 0:
            recorder.traits(moe.routing(trainer.model))
        if mesh.rank == 0:
            # Flushed line by line: a rank that is killed leaves what it has done.
            print(f"step {step} loss {loss:.6f} grad_norm {norm:.4f} lr {options.lr:g}", flush=True)
    recorder.end(steps)


def _optimizer(model: nn.Module, options: TrainOptions) -> torch.optim.Optimizer:
    def matrix(parameter: Tensor) -> bool:
        return parameter.ndim > 1

    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if matrix(p)], "weight_decay": options.weight_decay},
        {"params": [p for p in parameters if not matrix(p)], "weight_decay": 0.0},
    ]
    kind = torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.SGD
    return kind(groups, lr=options.lr)
