"""Trains a tiny random model of transformers on one rank or tensor parallel, and records it: made the logs beside it.

    export PYTHONPATH=$PWD OMP_NUM_THREADS=1          # in the project's root
    trainer="tests/data/logs/hf_transformers/recorded/train.py --model gemma4 --checkpoint /tmp/gemma4"
    python $trainer --make
    PARITY_RECORD_DIR=/tmp/legs/1 python $trainer
    PARITY_RECORD_DIR=/tmp/legs/perturbed_1 PARITY_PERTURB=1 python $trainer
    PARITY_RECORD_DIR=/tmp/legs/tp2 torchrun --standalone --nproc-per-node 2 $trainer
    grep '"kind": "' /tmp/legs/tp2/rank-0.jsonl       # without fingerprints

Needs torch 2.13.0, transformers 5.24.0 and accelerate 1.15.0.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, Gemma4TextConfig, Qwen3Config  # type: ignore[import-not-found]
from transformers.distributed import DistributedConfig  # type: ignore[import-not-found]

from parity.record import Recorder

VOCABULARY = 256
LEARNING_RATE = 1e-3

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "max_position_embeddings": 128,
}

CONFIGS = {
    "qwen3": lambda: Qwen3Config(**SIZES),
    "gemma4": lambda: Gemma4TextConfig(
        **SIZES,
        global_head_dim=16,
        sliding_window=16,
        vocab_size_per_layer_input=VOCABULARY,
        hidden_size_per_layer_input=0,
    ),
}

# Wrong on purpose, each as reported of a real framework.
FAULTS = {
    "norms": "gradients of q_norm and k_norm are not summed over the tensor-parallel ranks (NVIDIA-NeMo/RL#3716)",
    "count": "the gradient norm counts what every rank holds once per rank (NVIDIA-NeMo/RL#3788)",
    "ahead": "the optimizer has taken a step of nothing, so its bias correction is ahead (NVIDIA/Megatron-LM#5976)",
}


def load(name: str, checkpoint: str, fault: str | None) -> nn.Module:
    """The model as `--make` left it, tensor parallel if there are several ranks."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    more = {"distributed_config": DistributedConfig(tp_size=world_size)} if world_size > 1 else {}
    if fault == "norms":
        plan = type(CONFIGS[name]()).base_model_tp_plan
        for module in ("q_norm", "k_norm"):
            del plan[f"layers.*.self_attn.{module}"]
    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager", **more)


def step_of_nothing(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """What makes an optimizer allocate its state; it counts as a step, though no weight moves."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    (group,) = optimizer.param_groups
    group["lr"] = 0.0
    optimizer.step()
    group["lr"] = LEARNING_RATE
    optimizer.zero_grad()


def clip(model: nn.Module, fault: str | None) -> float:
    """Clip the gradient to a norm of 1 and return the norm it had. torch's own refuses DTensors beside tensors."""
    grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    total = 0.0
    for grad in grads:
        whole = grad.full_tensor() if isinstance(grad, DTensor) else grad
        everywhere = not isinstance(grad, DTensor) or all(one.is_replicate() for one in grad.placements)
        times = dist.get_world_size() if fault == "count" and everywhere else 1
        total += times * float(whole.double().pow(2).sum())
    norm: float = total**0.5
    for grad in grads:
        grad.mul_(min(1.0, 1.0 / norm))
    return norm


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=sorted(CONFIGS), required=True)
    parser.add_argument("--checkpoint", required=True, help="folder of the weights that every leg begins with")
    parser.add_argument("--make", action="store_true", help="write the checkpoint and end")
    parser.add_argument("--seed", type=int, default=0, help="of the weights")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--fault", choices=sorted(FAULTS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.make:
        torch.manual_seed(options.seed)
        AutoModelForCausalLM.from_config(CONFIGS[options.model]()).save_pretrained(options.checkpoint)
        return

    model = load(options.model, options.checkpoint, options.fault)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, foreach=False)
    recorder = Recorder.from_env()
    recorder.start(model, optimizer)
    if options.fault == "ahead":
        step_of_nothing(model, optimizer)
    generator = torch.Generator().manual_seed(1)
    for step in range(options.steps):
        batch = torch.randint(0, VOCABULARY, (4, 32), generator=generator)
        loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        loss.backward()
        loss = loss.detach()
        loss = loss.full_tensor() if isinstance(loss, DTensor) else loss
        recorder.gradients()
        norm = clip(model, options.fault)
        optimizer.step()
        optimizer.zero_grad()
        recorder.step(step, loss=loss, grad_norm=norm, lr=LEARNING_RATE, batch=batch)
    recorder.end(options.steps)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
