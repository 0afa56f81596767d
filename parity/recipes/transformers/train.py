"""A plain loop around a model that transformers splits by its `DistributedConfig`.

torchrun --nproc-per-node 2 train.py --model qwen3_moe --fsdp 2 --ep 2
"""

import argparse

import models
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from parity.record import Recorder


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=models.CONFIGS, default="qwen3")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--fsdp", type=int, default=1)
    parser.add_argument("--ep", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1234)
    options = parser.parse_args()

    sizes = {f"{axis}_size": size for axis in ("tp", "fsdp", "ep") if (size := getattr(options, axis)) > 1}
    model = models.load(options.model, options.seed, sizes)
    rank = dist.get_rank() if dist.is_initialized() else 0
    place = rank // options.tp
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, foreach=False)
    recorder = Recorder.from_env()
    coordinates = {"tp": rank % options.tp, "fsdp": place}
    recorder.start(model, optimizer, coordinates=coordinates, experts=experts(model) if options.ep > 1 else None)
    for step in range(options.steps):
        generator = torch.Generator().manual_seed(options.seed * 1_000_003 + step)
        batch = torch.randint(0, models.VOCABULARY, (models.SAMPLES, models.LENGTH), generator=generator)
        mine = batch.chunk(options.fsdp)[place].to(model.device)
        loss = model(input_ids=mine, labels=mine).loss
        loss.backward()
        recorder.gradients()
        norm = clip(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        total = whole(loss.detach())
        if options.fsdp > 1:
            dist.all_reduce(total)
            total /= dist.get_world_size()
        recorder.step(step, loss=total, grad_norm=norm, lr=options.lr, batch=mine)
    recorder.end(options.steps)
    if dist.is_initialized():
        dist.destroy_process_group()


def experts(model: torch.nn.Module) -> dict[str, list[int]]:
    """By module, the experts whose weights this rank holds; they lie along dimension 0."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    found = {}
    for name, parameter in model.named_parameters():
        module = name.rpartition(".")[0]
        if module.endswith("experts") and isinstance(parameter, DTensor):
            shape, offset = compute_local_shape_and_global_offset(
                parameter.shape, parameter.device_mesh, parameter.placements
            )
            found[module] = list(range(offset[0], offset[0] + shape[0]))
    for module, mine in found.items():
        print(f"{module}: {len(mine)} experts on this rank, from {mine[0]}", flush=True)
    return found


def clip(parameters, most: float) -> torch.Tensor:
    """Scale gradients to a norm of at most `most`, and return what it was.

    torch's own function takes no mixture of plain tensors and DTensors, nor of DTensors on several meshes.
    """
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = sum(whole(grad).double().square().sum() for grad in grads).sqrt()
    for grad in grads:
        grad.mul_(min(1.0, most / (norm.item() + 1e-6)))
    return norm


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
