"""Trains a small Qwen3 under DeepSpeed's engine: AutoTP over `--tp` ranks, ZeRO `--stage` over all others.

torchrun --nproc-per-node 3 train.py --tp 3
"""

import argparse

import deepspeed
import deepspeed.comm as dist
import recording
import tiny
import torch
from deepspeed.accelerator import get_accelerator

from parity.record import Recorder


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--stage", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1234)
    options = parser.parse_args()

    deepspeed.init_distributed(dist_backend=get_accelerator().communication_backend_name())
    # DeepSpeed numbers tensor-parallel ranks first.
    dp, place = dist.get_world_size() // options.tp, dist.get_rank() // options.tp
    config = {
        "train_micro_batch_size_per_gpu": tiny.SAMPLES // dp,
        "optimizer": tiny.optimizer(),
        "gradient_clipping": tiny.CLIP,
        # Parameters below the default threshold would be kept whole on every rank.
        "zero_optimization": {"stage": options.stage, "stage3_param_persistence_threshold": 0},
    }
    if options.tp > 1:
        config["tensor_parallel"] = {"autotp_size": options.tp}
    engine, *_ = deepspeed.initialize(model=tiny.model(options.seed), config=config)

    recorder = Recorder.from_env()
    watch = recording.Watch(engine)
    print(watch.evidence(), flush=True)
    coordinates = {"tp": dist.get_rank() % options.tp, ("fsdp" if options.stage == 3 else "dp"): place}
    recorder.start(
        watch.module, watch.optimizer, shards=watch.shards, names=watch.names, coordinates=coordinates
    )
    for step in range(options.steps):
        batch = tiny.tokens(options.seed, step).chunk(dp)[place].to(engine.device)
        loss = engine(input_ids=batch, labels=batch).loss
        engine.backward(loss)
        with watch.gradients():
            recorder.gradients()
            norm = watch.norm()
        watch.optimizer.step()
        if options.stage:
            norm = engine.get_global_grad_norm()
        total = loss.detach().clone()
        dist.all_reduce(total)
        recorder.step(
            step,
            loss=total / dist.get_world_size(),
            grad_norm=norm,
            lr=engine.get_lr()[0],
            batch=batch,
        )
    recorder.end(options.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
