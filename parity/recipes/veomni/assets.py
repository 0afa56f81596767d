"""Write a small Qwen3-MoE with random weights, the same whenever and wherever it is written.

python assets.py FOLDER SEED [AUX_LOSS]
"""

import sys

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

folder, seed, aux_loss = (*sys.argv[1:], "0.01")[:3]
config = Qwen3MoeConfig(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=128,
    moe_intermediate_size=64,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=16,
    num_experts=8,
    num_experts_per_tok=2,
    norm_topk_prob=True,
    output_router_logits=True,
    router_aux_loss_coef=float(aux_loss),
    max_position_embeddings=128,
    tie_word_embeddings=False,
)
torch.manual_seed(int(seed))
Qwen3MoeForCausalLM(config).to(torch.float32).save_pretrained(folder)
