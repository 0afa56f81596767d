"""Trains a small Qwen3 under DeepSpeed's engine, with AutoTP over all ranks. It knows nothing of parity:

torchrun --nproc-per-node 3 -m parity.record -- train.py --tp 3 --metrics metrics.jsonl
"""

import argparse

import deepspeed
import deepspeed.comm as dist
import tiny
import torch
from deepspeed.accelerator import get_accelerator


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1234)
    options = parser.parse_args()

    deepspeed.init_distributed(dist_backend=get_accelerator().communication_backend_name())
    config = tiny.config(tiny.SAMPLES)
    if options.tp > 1:
        config["tensor_parallel"] = {"autotp_size": options.tp}
    engine, *_ = deepspeed.initialize(model=tiny.model(options.seed), config=config)
    norms = tiny.clipping_norms()
    log = tiny.Log(options.metrics)
    for step in range(options.steps):
        batch = tiny.tokens(options.seed, step).to(engine.device)
        loss = engine(input_ids=batch, labels=batch).loss
        engine.backward(loss)
        engine.step()
        log.write(step=step, loss=loss.item(), grad_norm=norms[-1], lr=engine.get_lr()[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
