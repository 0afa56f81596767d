"""Trains the small Qwen3 under DeepSpeed's engine, by ZeRO `--stage` over all ranks, with the recorder's three calls.

torchrun --nproc-per-node 2 recorded.py --stage 3
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
    parser.add_argument("--stage", type=int, default=0)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--attention", default="eager")
    parser.add_argument("--clip", type=float, default=tiny.CLIP)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1234)
    options = parser.parse_args()

    deepspeed.init_distributed(dist_backend=get_accelerator().communication_backend_name())
    dp, place = dist.get_world_size(), dist.get_rank()
    config = tiny.config(tiny.SAMPLES // dp // options.micro_batches, options.micro_batches, options.clip)
    # Below the default threshold, stage 3 keeps parameters whole on every rank.
    config["zero_optimization"] = {"stage": options.stage, "stage3_param_persistence_threshold": 0}
    engine, *_ = deepspeed.initialize(model=tiny.model(options.seed, options.attention), config=config)

    recorder = Recorder.from_env()
    watch = recording.Watch(engine)
    norms = tiny.clipping_norms()
    print(watch.evidence(), flush=True)
    recorder.start(
        watch.module,
        watch.optimizer,
        shards=watch.shards,
        names=watch.names,
        coordinates={"fsdp" if options.stage == 3 else "dp": place},
    )
    for step in range(options.steps):
        batch = tiny.tokens(options.seed, step).chunk(dp)[place].to(engine.device)
        micro = list(batch.chunk(options.micro_batches))
        total = torch.zeros((), device=engine.device)
        for index, one in enumerate(micro):
            if index:
                engine.step()  # no more than a count, until the last micro-batch
            loss = engine(input_ids=one, labels=one).loss
            engine.backward(loss)
            total += loss.detach() / len(micro)
        with watch.gradients():
            recorder.gradients()
        watch.optimizer.step()
        dist.all_reduce(total)
        recorder.step(
            step,
            loss=total / dp,
            grad_norm=engine.get_global_grad_norm() if options.stage else norms[-1] if norms else None,
            lr=engine.get_lr()[0],
            batch=micro,
        )
    recorder.end(options.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
