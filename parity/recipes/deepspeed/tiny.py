"""What all legs of these recipes have in common: a small Qwen3 with random weights, random tokens, settings."""

import torch

VOCABULARY = 512
SAMPLES = 4
"""Of the global batch, however many ranks share it."""
LENGTH = 64
LEARNING_RATE = 1e-3
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


def optimizer() -> dict[str, object]:
    """DeepSpeed's config of the optimizer.

    `torch_adam` takes torch's AdamW, where DeepSpeed would compile its own: one thing at a time.
    """
    return {"type": "AdamW", "params": {"lr": LEARNING_RATE, "weight_decay": 0.01, "torch_adam": True}}
