"""Write a tiny Qwen3 with random weights as a checkpoint: `python checkpoint.py FOLDER`. Nothing is downloaded.

The same seed gives the same file wherever it is run, so that every leg can make its own.
"""

import sys

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

CONFIG = Qwen3Config(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=16,
    max_position_embeddings=128,
    tie_word_embeddings=False,
    pad_token_id=None,
    bos_token_id=None,
    eos_token_id=None,
    dtype="float32",
)

if __name__ == "__main__":
    torch.manual_seed(1234)
    Qwen3ForCausalLM(CONFIG).save_pretrained(sys.argv[1])
