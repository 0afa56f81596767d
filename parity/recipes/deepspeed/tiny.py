"""What all legs of these recipes have in common: a small Qwen3 with random weights, random tokens, config and log."""

import json
from pathlib import Path
from typing import Any

import deepspeed.comm as dist
import deepspeed.runtime.engine
import torch

VOCABULARY = 512
SAMPLES = 4
"""Of the global batch, however many ranks share it."""
LENGTH = 64
CLIP = 1.0


def model(seed: int, attention: str = "eager") -> torch.nn.Module:
    """2.6 million fp32 parameters, drawn on the CPU: the same ones in every process and under every layout.

    16 heads and 8 KV heads divide by 4 and not by 3.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        attention_dropout=0.0,
        use_cache=False,
        attn_implementation=attention,
    )
    return Qwen3ForCausalLM(config).float()


def tokens(seed: int, step: int) -> torch.Tensor:
    """The global batch of a step: int64 (SAMPLES, LENGTH)."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    return torch.randint(0, VOCABULARY, (SAMPLES, LENGTH), generator=generator)


def config(micro_batch: int, accumulate: int = 1, clip: float = CLIP) -> dict[str, Any]:
    """DeepSpeed's config.

    `torch_adam` takes torch's AdamW, where DeepSpeed would compile its own: one thing at a time.
    """
    return {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulate,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01, "torch_adam": True}},
        "gradient_clipping": clip,
        "steps_per_print": 1,
    }


def clipping_norms() -> list[float]:
    """A list that gets the norm by which DeepSpeed clips in fp32 without ZeRO, step by step.

    The engine's `get_global_grad_norm()` is None there, and its clipping keeps what it computes to itself.
    """
    norms: list[float] = []
    clip = deepspeed.runtime.engine.clip_grad_norm_

    def heard(*args, **kwargs):
        norm = clip(*args, **kwargs)
        norms.append(float(norm))
        return norm

    deepspeed.runtime.engine.clip_grad_norm_ = heard
    return norms


class Log:
    """The first rank's metrics, one JSON line a step."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        if dist.get_rank() == 0:
            self._path.write_text("")

    def write(self, **metrics: float) -> None:
        if dist.get_rank() == 0:
            with self._path.open("a") as file:
                file.write(json.dumps(metrics) + "\n")
