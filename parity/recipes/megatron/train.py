"""A small GPT on Megatron Core: its layers, schedules, gradient buffers and optimizer, in a loop of our own.

    torchrun --nproc-per-node 2 train.py --tp 2

Megatron Core has no training loop. What differs between layouts is all in it: which part of which weight a rank
holds, the pipeline's schedule, and how gradients are summed and clipped.
"""

import argparse
import hashlib
import math
import os
import re

import torch
import torch.distributed as dist

from parity.record import Recorder
from parity.train.shards import Shard

VOCAB, LENGTH, HIDDEN, HEADS, LAYERS, EXPERTS = 256, 32, 64, 8, 4, 8
MICRO_BATCHES, SAMPLES = 4, 4
RATE = 1e-3


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    for axis in ("tp", "pp", "ep"):
        parser.add_argument(f"--{axis}", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--experts", action="store_true", help="MoE layers: 8 experts, 2 for each token")
    parser.add_argument("--loss-alias", action="store_true", help="wrong on purpose: log a loss that was divided")
    return parser.parse_args()


def main() -> None:
    """Train, and record each step."""
    args = arguments()
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "0")
    cuda = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"])
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"  # Megatron asks for it where it is tensor parallel
    else:
        import cpu

        cpu.pretend()
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        train(args, torch.device("cuda" if cuda else "cpu"))
    finally:
        dist.destroy_process_group()


def train(args: argparse.Namespace, device: torch.device) -> None:
    """The loop."""
    from megatron.core import parallel_state as places
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    places.initialize_model_parallel(args.tp, args.pp, expert_model_parallel_size=args.ep)
    if device.type == "cuda":
        model_parallel_cuda_manual_seed(args.seed)
    model = gpt(args).to(device)
    fill(model, args.seed)
    config = model.config
    model = DistributedDataParallel(config, DistributedDataParallelConfig(), model)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=RATE, clip_grad=1.0), [model])
    config.finalize_model_grads_func = finalize_model_grads

    recorder = Recorder.from_env()
    recorder.start(
        model,
        [one.optimizer for one in optimizer.chained_optimizers if not one.is_stub_optimizer],
        environment={"device": device.type, "dtype": "fp32"},
        coordinates={
            "dp": places.get_data_parallel_rank(),
            "tp": places.get_tensor_model_parallel_rank(),
            "pp": places.get_pipeline_model_parallel_rank(),
            "ep": places.get_expert_model_parallel_rank(),
        },
        shards={name: shard for name, _, shard in named(model.module)},
        names={f"module.{own}": name for own, name in names(model.module).items()},
        layers=[layer.layer_number - 1 for layer in model.module.decoder.layers],
        experts=owned(model.module),
    )

    def forward(batches, module):
        tokens = next(batches)
        positions = torch.arange(LENGTH, device=device).expand(len(tokens), LENGTH)
        losses = module(tokens[:, :-1], positions, None, labels=tokens[:, 1:])

        def reduced(output):
            loss = output.float().mean()
            # The schedule divides the loss by the number of micro-batches in place: an alias would log a fraction.
            return loss, loss.detach() if args.loss_alias else loss.detach().clone()

        return losses, reduced

    schedule = get_forward_backward_func()
    for step in range(args.steps):
        mine = micro_batches(step, args.seed, device)
        model.zero_grad_buffer()
        optimizer.zero_grad()
        losses = schedule(
            forward_step_func=forward,
            data_iterator=iter(mine),
            model=model,
            num_microbatches=len(mine),
            seq_length=LENGTH,
            micro_batch_size=len(mine[0]),
            forward_only=False,
        )
        optimizer.prepare_grads()
        recorder.gradients()  # Megatron clips by functions of its own, which the recorder does not know
        _, norm, _ = optimizer.step()
        recorder.step(step, loss=mean_loss(losses, device), grad_norm=norm, lr=RATE, batch=mine)
    recorder.end(args.steps)


def gpt(args: argparse.Namespace) -> torch.nn.Module:
    """This rank's stage of the model: tied embeddings, so that stages share a parameter."""
    from megatron.core import parallel_state as places
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.moe import moe_utils

    experts = (
        {
            "num_moe_experts": EXPERTS,
            "moe_router_topk": 2,
            "moe_ffn_hidden_size": HIDDEN,
            "moe_token_dispatcher_type": "alltoall",
            # Per sequence: of whole micro-batches it would depend on how these are cut over the ranks.
            "moe_router_load_balancing_type": "seq_aux_loss",
            "moe_aux_loss_coeff": 1e-2,
        }
        if args.experts
        else {}
    )
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None  # asked for by every router, there with Transformer Engine only
    config = TransformerConfig(
        num_layers=LAYERS,
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_query_groups=HEADS // 2,
        ffn_hidden_size=2 * HIDDEN,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        add_bias_linear=not args.experts,
        tensor_model_parallel_size=args.tp,
        pipeline_model_parallel_size=args.pp,
        expert_model_parallel_size=args.ep,
        pipeline_dtype=torch.float32,
        use_cpu_initialization=True,
        # No fusions: they are CUDA kernels, and both legs are to run the same.
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        **experts,
    )
    return GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(EXPERTS if args.experts else None, normalization="RMSNorm"),
        vocab_size=VOCAB,
        max_sequence_length=LENGTH,
        pre_process=places.is_pipeline_first_stage(),
        post_process=places.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=True,
        position_embedding_type="rope",
    )


def names(model: torch.nn.Module) -> dict[str, str]:
    """Model-wide names by this stage's: layers and experts numbered through, and the tied copy as what it copies."""
    from megatron.core import parallel_state as places

    first_layer = model.decoder.layers[0].layer_number - 1
    owned_experts = EXPERTS // places.get_expert_model_parallel_world_size()
    first_expert = owned_experts * places.get_expert_model_parallel_rank()
    found = {}
    for own, _ in model.named_parameters():
        name = re.sub(r"(?<=\blayers\.)\d+", lambda number: str(int(number[0]) + first_layer), own)
        name = re.sub(r"(?<=\blocal_experts\.)\d+", lambda number: str(int(number[0]) + first_expert), name)
        found[own] = "embedding.word_embeddings.weight" if own == "output_layer.weight" else name
    return found


def named(model: torch.nn.Module):
    """Model-wide name, parameter, and which part of the whole tensor it is, of everything on this rank."""
    from megatron.core import parallel_state as places

    size, rank = places.get_tensor_model_parallel_world_size(), places.get_tensor_model_parallel_rank()
    renamed = names(model)
    for own, parameter in model.named_parameters():
        shape = list(parameter.shape)
        shard = Shard.whole(tuple(shape))
        if size > 1 and getattr(parameter, "tensor_model_parallel", False):
            assert parameter.partition_stride == 1, f"{own} is interleaved: no box"
            dim, extent = parameter.partition_dim, shape[parameter.partition_dim]
            shape[dim] *= size
            shard = Shard.whole(tuple(shape)).cut("tp", dim, rank * extent, (rank + 1) * extent)
        yield renamed[own], parameter, shard


def owned(model: torch.nn.Module) -> dict[str, list[int]] | None:
    """The experts on this rank, by module."""
    found: dict[str, set[int]] = {}
    for name in names(model).values():
        if match := re.match(r"(.*)\.local_experts\.(\d+)\.", name):
            found.setdefault(match[1], set()).add(int(match[2]))
    return {module: sorted(experts) for module, experts in found.items()} or None


def fill(model: torch.nn.Module, seed: int) -> None:
    """Give every parameter its part of a tensor that depends on its model-wide name and the seed alone."""
    with torch.no_grad():
        for name, parameter, shard in named(model):
            if parameter.ndim == 1:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
            whole = torch.randn(shard.shape, generator=generator) / math.sqrt(shard.shape[-1])
            parameter.copy_(shard.part(whole))


def micro_batches(step: int, seed: int, device: torch.device) -> list[torch.Tensor]:
    """This data-parallel rank's share of each of the step's micro-batches, int64 (samples, LENGTH + 1).

    As many micro-batches for every layout, of fewer samples each where there are more ranks.
    """
    from megatron.core import parallel_state as places

    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    tokens = torch.randint(VOCAB, (MICRO_BATCHES, SAMPLES, LENGTH + 1), generator=generator)
    size, rank = places.get_data_parallel_world_size(), places.get_data_parallel_rank()
    return list(tokens[:, rank::size].contiguous().to(device))


def mean_loss(losses: list[torch.Tensor], device: torch.device) -> torch.Tensor:
    """Of the global batch, on every rank: only the last stage has losses."""
    from megatron.core import parallel_state as places

    count = torch.tensor(float(len(losses)), device=device)
    loss = torch.stack(losses).sum() if losses else torch.zeros((), device=device)
    total = torch.stack([loss, count])
    dist.all_reduce(total, group=places.get_pipeline_model_parallel_group())
    dist.all_reduce(total, group=places.get_data_parallel_group())
    return total[0] / total[1]


if __name__ == "__main__":
    main()
