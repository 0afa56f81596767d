"""Initial weights that are the same under every layout."""

import hashlib

import torch
from torch import Tensor, nn

from parity.train.shards import Shard

__all__ = ["draw", "fill", "generator"]


def generator(seed: int, name: str) -> torch.Generator:
    """A CPU generator whose numbers depend on the seed and the name alone."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))


def draw(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """A whole parameter's first values, fp32.

    Matrices, also where several are stacked, have a standard deviation of one over the root of their inputs, so
    that every part of the model matters to the first loss already: at the customary 0.02 attention hardly does,
    and neither would a fault in it. Norm weights lie around 1 and biases around 0, both with a standard deviation
    of 0.1: constants would hide a permutation, and a zero bias that it is added twice.
    """
    normal = torch.randn(shape, generator=generator(seed, name), dtype=torch.float32)
    if len(shape) >= 2:
        return normal * shape[-1] ** -0.5
    return 0.1 * normal + (0.0 if name.endswith(".bias") else 1.0)


def fill(model: nn.Module, shards: dict[str, Shard], *, seed: int, dtype: torch.dtype, device: torch.device) -> None:
    """Give every parameter its rank's part of what `draw` says, in place, so that tied ones stay tied.

    Args:
        model: with parameters of the whole shapes, whose values do not matter.
        shards: by parameter name, this rank's part.
        seed: the run's.
        dtype: in which weights are stored; the draws are fp32 in any case.
        device: where they go.
    """
    for name, parameter in model.named_parameters():
        whole = draw(name, tuple(parameter.shape), seed)
        parameter.data = shards[name].part(whole).to(device, dtype, copy=True).contiguous()
    for buffer in model.buffers():
        buffer.data = buffer.to(device)
