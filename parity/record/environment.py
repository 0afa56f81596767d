"""What a rank's numbers may depend on besides its code and its options."""

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist

from parity.record.parts import Part

__all__ = ["completed"]

_SHORT = {"float32": "fp32", "float64": "fp64", "bfloat16": "bf16", "float16": "fp16"}


def completed(environment: Mapping[str, object], parts: Sequence[Part], world_size: int) -> dict[str, object]:
    """An environment as it was given, with everything added that can be seen from here.

    `dtype` is that of most of the parameters' elements; a loop that computes in another says so itself.

    Args:
        environment: JSON values by name; these stay as they are.
        parts: the model's parameters.
        world_size: ranks of the leg.
    """
    found: dict[str, object] = {
        "torch": torch.__version__,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "world_size": world_size,
        "matmul_precision": torch.get_float32_matmul_precision(),
        "backend": str(dist.get_backend()) if dist.is_available() and dist.is_initialized() else None,
    }
    device = parts[0].local.device if parts else torch.device("cpu")
    found["device"] = (
        f"{device.type} {torch.backends.cpu.get_cpu_capability()}" if device.type == "cpu" else str(device)
    )
    if device.type == "cuda":
        found["device"] = torch.cuda.get_device_name(device)
        found["cuda"] = torch.version.cuda
        found["cudnn_deterministic"] = torch.backends.cudnn.deterministic
        found["cudnn_benchmark"] = torch.backends.cudnn.benchmark
        try:
            found["matmul_tf32"] = torch.backends.cuda.matmul.allow_tf32
            found["cudnn_tf32"] = torch.backends.cudnn.allow_tf32
        except RuntimeError:
            pass  # torch 2.9 and later refuse these names to a process that has used their successors
    sizes: Counter[str] = Counter()
    for part in parts:
        sizes[part.dtype] += part.box.numel
    if sizes:
        most = sizes.most_common(1)[0][0]
        found["dtype"] = _SHORT.get(most, most)
    return {**found, **environment}
