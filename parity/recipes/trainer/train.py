"""An ordinary script around transformers' Trainer. It knows nothing of parity, which runs it as it is:

torchrun --nproc-per-node 2 -m parity.record -- train.py --output out --batch 2
"""

import argparse

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Trainer, TrainingArguments, set_seed

VOCABULARY = 256
LENGTH = 32


class Samples(torch.utils.data.Dataset):
    """Random tokens; the first of each are no labels, up to two thirds of them, so that samples weigh differently."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.ids = torch.randint(0, VOCABULARY, (count, LENGTH), generator=generator)
        self.first = torch.randint(0, 2 * LENGTH // 3, (count,), generator=generator)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        labels = self.ids[index].clone()
        labels[: self.first[index]] = -100
        return {"input_ids": self.ids[index], "labels": labels}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", required=True)
    parser.add_argument("--batch", type=int, default=4, help="samples of one rank in a micro-batch")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--fsdp", action="store_true")
    parser.add_argument("--deepspeed", default=None)
    options = parser.parse_args()

    set_seed(options.seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        use_cache=False,
    )
    more = {}
    if options.fsdp:
        more["fsdp"] = "full_shard"
        more["fsdp_config"] = {"fsdp_version": 2, "transformer_layer_cls_to_wrap": ["Qwen3DecoderLayer"]}
    arguments = TrainingArguments(
        output_dir=options.output,
        per_device_train_batch_size=options.batch,
        gradient_accumulation_steps=options.accumulate,
        max_steps=options.steps,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        seed=options.seed,
        deepspeed=options.deepspeed,
        **more,
    )
    trainer = Trainer(model=Qwen3ForCausalLM(config), args=arguments, train_dataset=Samples(512))
    trainer.train()
    trainer.save_state()
    if trainer.accelerator.is_main_process:
        wrapped = trainer.model_wrapped
        stage = f", ZeRO stage {wrapped.zero_optimization_stage()}" if options.deepspeed else ""
        print(f"trained by {type(wrapped).__name__}{stage}")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
