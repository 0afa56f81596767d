"""Trains a small Qwen3 under DeepSpeed's engine: AutoTP over `--tp` ranks, or ZeRO `--stage` over all of them.

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
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--attention", default="eager")
    parser.add_argument("--clip", type=float, default=tiny.CLIP)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1234)
    options = parser.parse_args()

    deepspeed.init_distributed(dist_backend=get_accelerator().communication_backend_name())
    dp, place = (1, 0) if options.tp > 1 else (dist.get_world_size(), dist.get_rank())
    config = {
        "train_micro_batch_size_per_gpu": tiny.SAMPLES // dp // options.micro_batches,
        "gradient_accumulation_steps": options.micro_batches,
        "optimizer": tiny.optimizer(),
        "gradient_clipping": options.clip,
        # Below the default threshold, stage 3 keeps parameters whole on every rank.
        "zero_optimization": {"stage": options.stage, "stage3_param_persistence_threshold": 0},
    }
    if options.tp > 1:
        config["tensor_parallel"] = {"autotp_size": options.tp}
    engine, *_ = deepspeed.initialize(model=tiny.model(options.seed, options.attention), config=config)

    recorder = Recorder.from_env()
    watch = recording.Watch(engine)
    norms = recording.clipping_norms()
    print(watch.evidence(), flush=True)
    recorder.start(
        watch.module,
        watch.optimizer,
        shards=watch.shards,
        names=watch.names,
        coordinates={"tp": dist.get_rank() - place, "fsdp" if options.stage == 3 else "dp": place},
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
            loss=total / dist.get_world_size(),
            grad_norm=engine.get_global_grad_norm() if options.stage else norms[-1] if norms else None,
            lr=engine.get_lr()[0],
            batch=micro,
        )
    recorder.end(options.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
