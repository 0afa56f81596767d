"""A small model of token ids, trained in plain PyTorch under one layout. It knows nothing of a recorder, unless it is
told to record itself by the three calls."""

import argparse
import json
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

VOCABULARY, WIDTH, LAYERS, SAMPLES, LENGTH, MICRO = 29, 16, 2, 4, 6, 2


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 32)
        self.down = nn.Linear(32, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.embed: nn.Module | None = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleDict({str(i): Layer() for i in range(LAYERS)})
        self.head: nn.Module | None = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.embed is None else self.embed(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(x * self.scale)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch(step: int) -> Tensor:
    return torch.randint(0, VOCABULARY, (SAMPLES, LENGTH), generator=torch.Generator().manual_seed(step))


def applied(layout: str, model: Model) -> nn.Module:
    """The model under a layout of all ranks."""
    if layout == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if layout in ("fsdp", "tp"):
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=(layout,))
        if layout == "tp":
            from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

            plan: Any = {
                f"layers.{i}.{name}": style
                for i in range(LAYERS)
                for name, style in _styles(ColwiseParallel, RowwiseParallel)
            }
            return parallelize_module(model, mesh, plan)
        from torch.distributed.fsdp import fully_shard

        for layer in model.layers.values():
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    if layout == "pp":
        first = dist.get_rank() == 0
        del model.layers["1" if first else "0"]
        if first:
            model.head = None
        else:
            model.embed = None
    return model


def _styles(up: Any, down: Any) -> list[tuple[str, Any]]:
    return [("up", up()), ("down", down())]


def schedule_of(model: nn.Module) -> Any:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    stage = PipelineStage(model, dist.get_rank(), dist.get_world_size(), torch.device("cpu"))
    return ScheduleGPipe(stage, MICRO, loss_fn=loss_of)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layout", default="plain")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--clip", action="store_true")
    parser.add_argument("--two-optimizers", action="store_true")
    parser.add_argument("--by-parts", action="store_true", help="call embedding, layers and head one by one")
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--checkpoint", action="store_true", help="compute activations again in the backward pass")
    parser.add_argument("--three-calls", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if args.layout != "plain":
        dist.init_process_group("gloo")
    model = applied(args.layout, Model())
    schedule = schedule_of(model) if args.layout == "pp" else None
    parameters = list(model.parameters())
    halves = [parameters[:3], parameters[3:]] if args.two_optimizers else [parameters]
    optimizers = [torch.optim.AdamW(half, lr=0.01) for half in halves]
    rec = None
    if args.three_calls:
        from parity.record import Recorder

        rec = Recorder.from_env()
        rec.start(model, optimizers)
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if args.layout in ("ddp", "fsdp") else (0, 1)
    log = []
    for step in range(args.steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        losses: list[Tensor] = []
        micro_batches = [micro.chunk(ranks)[rank] for micro in batch(step).chunk(MICRO)]
        if schedule is not None:
            first = dist.get_rank() == 0
            if first:
                schedule.step(batch(step))
            else:
                schedule.step(target=batch(step), losses=losses)
        for micro in micro_batches if schedule is None else ():
            if args.by_parts:
                x = model.embed(micro)
                for layer in model.layers.values():
                    x = layer(x)
                logits = model.head(x)
            elif args.checkpoint:
                logits = torch.utils.checkpoint.checkpoint(model, micro, use_reentrant=False)
            else:
                logits = model(micro)
            loss = loss_of(logits, micro)
            losses.append(loss.detach())
            (loss / MICRO).backward()
        if args.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for optimizer in optimizers:
            optimizer.step()
        if rec is not None:
            rec.step(step, loss=None, lr=0.01, batch=micro_batches if schedule is None else None)
        if args.evaluate:
            model.eval()
            with torch.no_grad():
                model(batch(1000 + step))
            model.train()
        if losses:
            mean = torch.stack(losses).mean()
            if ranks > 1:
                dist.all_reduce(mean)
                mean /= ranks
            log.append({"step": step, "loss": mean.item()})
    if rec is not None:
        rec.end(args.steps)
    if log and rank == 0:
        with open(args.metrics, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in log)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
