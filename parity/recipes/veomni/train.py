"""VeOmni's own trainer on a small Qwen3-MoE and made-up tokens, with the recorder's three calls in a callback.

    torchrun --nproc-per-node 2 train.py assets 20 --train.accelerator.ep_size 2

Arguments after the number of steps are VeOmni's own.
"""

import os
import sys
from pathlib import Path

import torch
from torch import nn

from parity.record import Recorder
from parity.train.shards import Shard

CUDA = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
if not CUDA:
    import cpu

    cpu.pretend()

from veomni.arguments import VeOmniArguments, parse_args  # noqa: E402 - looks for its kernels when it is imported
from veomni.distributed.parallel_state import get_parallel_state  # noqa: E402
from veomni.trainer.base import BaseTrainer  # noqa: E402
from veomni.trainer.callbacks.base import Callback  # noqa: E402

LENGTH, VOCABULARY = 32, 256


class Tokens(torch.utils.data.Dataset):
    """Sample `index` is the same for every layout."""

    def __init__(self, samples: int, seed: int) -> None:
        self._samples, self._seed = samples, seed

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> list[dict[str, torch.Tensor]]:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + index)
        ids = torch.randint(VOCABULARY, (LENGTH,), generator=generator)
        return [{"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}]


class Trainer(BaseTrainer):
    """VeOmni's, without text."""

    def _build_model_assets(self) -> None:
        self.tokenizer, self.model_assets = None, [self.model_config]

    def _build_data_transform(self) -> None:
        self.data_transform = None

    def _build_dataset(self) -> None:
        samples = self.args.train.max_steps * self.args.train.global_batch_size
        self.train_dataset = Tokens(samples, self.args.train.seed)
        self.args.compute_train_steps(samples / self.args.train.accelerator.dp_size)
        self.train_steps = self.args.train_steps

    def _init_callbacks(self) -> None:
        super()._init_callbacks()
        self._callbacks.append(Recording(self))


class Recording(Callback):
    """The three calls."""

    def on_train_begin(self, state, **_) -> None:
        self.recorder = Recorder.from_env()
        places = get_parallel_state()
        mesh = places.device_mesh
        self.recorder.start(
            self.trainer.model,
            optimizers(self.trainer.optimizer),
            environment={"device": "cuda" if CUDA else "cpu", "dtype": "bf16" if CUDA else "fp32"},
            coordinates=coordinates(mesh) | ({"ep": places.ep_rank} if places.ep_enabled else {}),
            shards=dealt_out(self.trainer.model, places),
            experts=owned(self.trainer.model, places),
        )

    def on_step_begin(self, state, micro_batches=None, **_) -> None:
        self.batch = [micro_batch["input_ids"].view(-1, LENGTH).clone() for micro_batch in micro_batches]

    def on_step_end(self, state, **_) -> None:
        # What callbacks are given is this rank's own loss; VeOmni's meter, which comes before, averages over ranks.
        metrics = self.trainer.step_train_metrics
        self.recorder.step(
            state.global_step - 1,
            loss=metrics["training/total_loss"],
            grad_norm=metrics["training/grad_norm"],
            lr=metrics["training/lr"],
            batch=self.batch,
        )

    def on_train_end(self, state, **_) -> None:
        self.recorder.end(state.global_step)


def optimizers(optimizer) -> list:
    """Torch's own; VeOmni has one for each mesh where experts are dealt out."""
    return list(getattr(optimizer, "optimizers_dict", {"": optimizer}).values())


def coordinates(mesh) -> dict[str, int]:
    """This rank's place: VeOmni's meshes are called `dp_replicate` and `dp_shard`."""
    known = {"dp_replicate": "dp", "dp_shard": "fsdp"}
    names = [(known[name], dim) for dim, name in enumerate(mesh.mesh_dim_names) if name in known]
    return {axis: mesh.get_coordinate()[dim] for axis, dim in names}


def expert_parameters(model: nn.Module):
    """Name and parameter of all weights that hold experts along their first dimension."""
    return [(name, one) for name, one in model.named_parameters() if ".mlp.experts." in name]


def dealt_out(model: nn.Module, places) -> dict[str, Shard]:
    """Which part of all experts is here. Their DTensors do not know: they were dealt out before."""
    if not places.ep_enabled:
        return {}
    shards = {}
    for name, parameter in expert_parameters(model):
        local, shape = parameter.to_local(), list(parameter.shape)
        experts = shape[0]
        shape[0] *= places.ep_size
        shard = Shard.whole(tuple(shape)).cut("ep", 0, places.ep_rank * experts, (places.ep_rank + 1) * experts)
        for dim in range(1, local.ndim):
            if local.shape[dim] < shape[dim]:
                count = shape[dim] // local.shape[dim]
                place = parameter.device_mesh.get_coordinate()[-1]
                assert local.shape[dim] * count == shape[dim]
                shard = shard.cut("fsdp", dim, place * local.shape[dim], (place + 1) * local.shape[dim])
        shards[name] = shard
    return shards


def owned(model: nn.Module, places) -> dict[str, list[int]]:
    """The experts on this rank, by module."""
    rank = places.ep_rank if places.ep_enabled else 0
    return {
        name.rpartition(".")[0]: list(range(rank * parameter.shape[0], (rank + 1) * parameter.shape[0]))
        for name, parameter in expert_parameters(model)
    }


def main() -> None:
    """Train."""
    assets, steps, *rest = sys.argv[1:]
    dtype = "bfloat16" if CUDA else "float32"  # VeOmni's grouped products are of 16 bits on a GPU
    implementations = ["rms_norm", "swiglu_mlp", "rotary_pos_emb", "cross_entropy_loss", "load_balancing_loss"]
    fixed = {
        "model.config_path": assets,
        "model.model_path": assets,
        "model.tokenizer_path": assets,
        "model.ops_implementation.attn_implementation": "eager",
        "model.ops_implementation.moe_implementation": "fused_triton",
        **{f"model.ops_implementation.{name}_implementation": "eager" for name in implementations},
        "data.train_path": assets,
        "data.datasets_type": "mapping",
        "data.max_seq_len": LENGTH,
        "data.dataloader.num_workers": 0,
        "data.dataloader.pin_memory": False,
        "train.checkpoint.output_dir": Path(assets).parent / "output",
        "train.checkpoint.save_hf_weights": False,
        "train.init_device": "meta",
        "train.global_batch_size": 8,
        "train.dyn_bsz": False,
        "train.bsz_warmup_ratio": 0,
        "train.max_steps": steps,
        "train.optimizer.lr": 1e-3,
        "train.optimizer.lr_decay_style": "constant",
        "train.optimizer.lr_warmup_ratio": 0,
        "train.gradient_checkpointing.enable": False,
        "train.accelerator.fsdp_config.fsdp_mode": "fsdp2",
        "train.accelerator.fsdp_config.mixed_precision.param_dtype": dtype,
        "train.accelerator.fsdp_config.mixed_precision.reduce_dtype": "float32",
    }
    sys.argv[1:] = [*(word for key, value in fixed.items() for word in (f"--{key}", str(value))), *rest]
    trainer = Trainer(parse_args(VeOmniArguments))
    trainer.train()


if __name__ == "__main__":
    main()
