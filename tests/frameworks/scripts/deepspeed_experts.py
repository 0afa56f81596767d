"""A small Qwen3 with experts, trained by DeepSpeed over data parallel ranks. It knows nothing of a recorder."""

import argparse
import json

import deepspeed  # type: ignore[import-not-found]
import torch
import torch.distributed as dist
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM, set_seed  # type: ignore[import-not-found]

SAMPLES, LENGTH, VOCABULARY = 4, 16, 64


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, default=0)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--log", required=True)
    parser.add_argument("--monitor", help="folder for DeepSpeed's own CSV monitor")
    args = parser.parse_args()
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    set_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        moe_intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        attn_implementation="eager",
        use_cache=False,
    )
    settings = {
        "train_micro_batch_size_per_gpu": SAMPLES // ranks,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": args.stage},
        "gradient_clipping": 1.0,
    }
    if args.monitor:
        settings["csv_monitor"] = {"enabled": True, "output_path": args.monitor, "job_name": "job"}
    engine, *_ = deepspeed.initialize(model=Qwen3MoeForCausalLM(config).float(), config=settings)
    log = []
    for step in range(args.steps):
        ids = torch.randint(0, VOCABULARY, (SAMPLES, LENGTH), generator=torch.Generator().manual_seed(step))
        mine = ids.chunk(ranks)[rank]
        loss = engine(input_ids=mine, labels=mine).loss
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        log.append({"step": step, "loss": mean.item() / ranks})
        if args.monitor:  # the engine's own events are the rate and, where it is a pipeline's, the loss
            engine.monitor.write_events([("Train/Samples/train_loss", log[-1]["loss"], engine.global_samples)])
    if rank == 0:
        with open(args.log, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in log)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
