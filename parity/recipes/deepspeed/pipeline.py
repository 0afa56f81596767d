"""Trains the small Qwen3 under DeepSpeed's pipeline engine, over as many stages as there are ranks.

torchrun --nproc-per-node 2 pipeline.py
"""

import argparse

import deepspeed
import deepspeed.comm as dist
import tiny
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.pipe import PipelineModule
from torch import nn
from torch.nn.functional import cross_entropy

from parity.record import Recorder

MICRO_BATCHES = 2


class Block(nn.Module):
    """A decoder layer that makes its own positions, as only one tensor goes from layer to layer."""

    def __init__(self, layer: nn.Module, rotary: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.rotary = rotary

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
        # Without a mask, scaled_dot_product_attention is called as causal.
        return self.layer(hidden, position_embeddings=self.rotary(hidden, positions))


def next_token_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clip", type=float, default=tiny.CLIP)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1234)
    options = parser.parse_args()

    deepspeed.init_distributed(dist_backend=get_accelerator().communication_backend_name())
    whole = tiny.model(options.seed, attention="sdpa")
    names = {id(tensor): name for name, tensor in (*whole.named_parameters(), *whole.named_buffers())}
    body = whole.model
    blocks = [Block(layer, body.rotary_emb) for layer in body.layers]
    model = PipelineModule(
        [body.embed_tokens, *blocks, body.norm, whole.lm_head],
        num_stages=dist.get_world_size(),
        loss_fn=next_token_loss,
    )
    config = tiny.config(tiny.SAMPLES // MICRO_BATCHES, MICRO_BATCHES, options.clip)
    engine, *_ = deepspeed.initialize(model=model, config=config)

    recorder = Recorder.from_env()
    norms = tiny.clipping_norms()
    stage = engine.module
    recorder.start(
        stage,
        engine.optimizer,
        names={name: names[id(one)] for name, one in (*stage.named_parameters(), *stage.named_buffers())},
        layers=[at - 1 for at in range(stage._local_start, stage._local_stop) if 1 <= at <= len(blocks)],
        coordinates={"pp": engine.stage_id},
    )
    # `train_batch` clips and steps in one go.
    clip = engine.clip_fp32_gradients

    def read_then_clip() -> None:
        recorder.gradients()
        clip()

    engine.clip_fp32_gradients = read_then_clip
    for step in range(options.steps):
        micro = list(tiny.tokens(options.seed, step).chunk(MICRO_BATCHES))
        loss = engine.train_batch(iter([(one, one) for one in micro]))
        recorder.step(step, loss=loss, grad_norm=norms[-1] if norms else None, lr=engine.get_lr()[0], batch=micro)
    recorder.end(options.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
