"""Small models of transformers with random weights, all of one vocabulary."""

import tempfile

import torch
import transformers

VOCABULARY = 256
SAMPLES = 4
LENGTH = 32

_SHARED = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "max_position_embeddings": 128,
    "use_cache": False,
}
_DENSE = {"intermediate_size": 128, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 16}
_EXPERTS = {
    "moe_intermediate_size": 32,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
}

CONFIGS = {
    "qwen3": lambda: transformers.Qwen3Config(**_SHARED, **_DENSE, tie_word_embeddings=False),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(**_SHARED, **_EXPERTS, tie_word_embeddings=False),
    "deepseek_v4": lambda: transformers.DeepseekV4Config(
        **_SHARED,
        moe_intermediate_size=32,
        num_attention_heads=8,
        num_key_value_heads=1,
        head_dim=32,
        q_lora_rank=32,
        o_lora_rank=16,
        o_groups=4,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        sliding_window=16,
        hc_mult=4,
        hc_sinkhorn_iters=4,
        index_n_heads=4,
        index_head_dim=16,
        index_topk=8,
        num_nextn_predict_layers=0,
    ),
    # The tables of the per-layer inputs would be a hundred times the rest.
    "gemma4": lambda: transformers.Gemma4TextConfig(
        **_SHARED,
        intermediate_size=128,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=16,
        sliding_window=16,
        vocab_size_per_layer_input=VOCABULARY,
        hidden_size_per_layer_input=0,
    ),
}


def load(name: str, seed: int, distributed: dict[str, int]) -> torch.nn.Module:
    """A model in fp32, split by transformers itself.

    Its weights are drawn whole from the seed and go through a checkpoint, as transformers splits what it loads: so
    they are the same under every layout.

    Args:
        name: of `CONFIGS`.
        seed: of the weights.
        distributed: sizes for `DistributedConfig`; empty for the plain model.
    """
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        if not distributed:
            plain = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            return plain.to("cuda" if torch.cuda.is_available() else "cpu")
        from transformers.distributed import DistributedConfig

        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, distributed_config=DistributedConfig(**distributed)
        )
