"""Faults of tensor parallelism."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  torch's own name for it

from parity.train.faults.injection import around, at
from parity.train.loop import Trainer
from parity.train.qwen3 import Attention
from parity.train.shards import Shard, span
from parity.train.tensor_parallel import SEQUENCE, RowParallelLinear
from parity.train.weights import draw


@at("end")
def row_bias_on_every_rank(trainer: Trainer) -> None:
    """A linear that fans in adds its bias to the partial outputs, whose sum then has it tp times.

    In text-generation-inference the layer called the plain linear's forward, bias and all, before its all-reduce.
    """

    def before_the_sum(linear: RowParallelLinear) -> Callable[[Tensor], Tensor]:
        return lambda x: linear.leave(F.linear(x, linear.weight.to(x.dtype), linear.bias.to(x.dtype)))

    for module in trainer.model.modules():
        if isinstance(module, RowParallelLinear):
            module.forward = before_the_sum(module)


@at("end")
def row_output_not_summed(trainer: Trainer) -> None:
    """Attention's output projection hands on its partial output: of all tokens, or with sequence parallelism of this
    rank's. SGLang's Mamba layers switched the reduction off and nobody made up for it."""
    options, comm = trainer.options, trainer.mesh.comm("tp")
    start, stop = span(options.seq_len, comm.size, comm.rank) if options.sequence_parallel else (0, options.seq_len)
    for _, attention in _attention(trainer):
        attention.o.leave = lambda x: x.narrow(SEQUENCE, start, stop - start)


@at("end")
def loss_plus_log_tp(trainer: Trainer) -> None:
    """The loss is log(tp) too high for every token, as if the exponentials of all columns were summed on each rank
    and then over the ranks. Megatron-LM does so where logits were gathered already; its gradient stays right."""
    tp = trainer.mesh.size("tp")
    around(
        trainer.model.token_loss,
        "forward",
        lambda loss, logits, labels: loss(logits, labels) + (labels >= 0) * math.log(tp),
    )


@at("end")
def pad_columns_in_softmax(trainer: Trainer) -> None:
    """Shards of an odd vocabulary are padded to one width, and the padding's logits, zeros, are not masked out of the
    softmax. Megatron-LM pads so; a vocabulary that divides never shows it."""
    wide = -(-trainer.options.vocab // trainer.mesh.size("tp"))
    around(
        trainer.model.token_loss,
        "forward",
        lambda loss, logits, labels: loss(F.pad(logits, (0, wide - logits.shape[-1])), labels),
    )


@at("split")
def heads_cut_through(trainer: Trainer) -> None:
    """Attention is cut by rows wherever they fall. What is cut inside a head is filled up to whole heads with rows
    that give zero, and so normalised, turned and scored as a head of its own on both ranks.

    DeepSpeed had a count of KV heads left that was the whole model's, which did no harm where heads divide.
    """
    options, comm = trainer.options, trainer.mesh.comm("tp")
    size, group = options.head_dim, options.heads // options.kv_heads
    q = span(options.heads * size, comm.size, comm.rank)
    kv = span(options.kv_heads * size, comm.size, comm.rank)
    whole = size * max(-(-(kv[1] - kv[0]) // size), -(-(q[1] - q[0]) // (size * group)))

    def recut(name: str, dim: int, rows: tuple[int, int]) -> None:
        if name in trainer.shards:
            trainer.shards[name] = _moved(trainer.shards[name], dim, *rows)

    def padded(rows: int) -> Callable[..., Tensor]:
        return lambda _module, _args, output: F.pad(output, (0, rows - output.shape[-1]))

    for name, attention in _attention(trainer):
        for part, rows, width in (("q", q, whole * group), ("k", kv, whole), ("v", kv, whole)):
            recut(f"{name}.{part}.weight", 0, rows)
            recut(f"{name}.{part}.bias", 0, rows)
            getattr(attention, part).register_forward_hook(padded(width))
        recut(f"{name}.o.weight", 1, q)
        attention.o.register_forward_pre_hook(lambda _module, args: (args[0][..., : q[1] - q[0]],))


@at("end")
def kv_heads_permuted(trainer: Trainer) -> None:
    """Each rank's query heads meet the keys and values of the next group, as where a fused projection is laid out in
    one order and read in another. nnsight read vLLM's shards of fused projections so."""
    for _, attention in _attention(trainer):
        for part in (attention.k, attention.v):
            part.register_forward_hook(lambda _module, _args, output: output.roll(trainer.options.head_dim, -1))


@at("end")
def norm_gradients_not_reduced(trainer: Trainer) -> None:
    """Under sequence parallelism each rank's norms saw its own tokens only, and their gradients stay partial sums.

    gpt-neox left them so; training flattened out after some hundred steps.
    """
    _left_partial(trainer, ("attention_norm.weight", "mlp_norm.weight", "norm.weight"), but=_OF_HEADS)


@at("end")
def head_norm_gradients_not_reduced(trainer: Trainer) -> None:
    """Norms of queries and keys are on all ranks, which have other heads, and their gradients stay partial sums.

    torchtitan did this with a key that all heads share; it took a thousand steps to show.
    """
    _left_partial(trainer, _OF_HEADS)


@at("end")
def shards_from_one_seed(trainer: Trainer) -> None:
    """Each rank draws its shards as if they were whole, and so the same as the other ranks' of that shape.

    ms-swift seeded all tensor parallel ranks alike.
    """
    for name, parameter in trainer.parameters.items():
        if "tp" in trainer.shards[name].split:
            with torch.no_grad():
                parameter.copy_(draw(name, tuple(parameter.shape), trainer.seed))


_OF_HEADS = ("q_norm.weight", "k_norm.weight")


def _attention(trainer: Trainer) -> Iterator[tuple[str, Attention]]:
    for name, module in trainer.model.named_modules():
        if isinstance(module, Attention):
            yield name, module


def _left_partial(trainer: Trainer, ends: tuple[str, ...], but: tuple[str, ...] = ()) -> None:
    for name, shard in trainer.shards.items():
        if name.endswith(ends) and not name.endswith(but or ("\0",)):
            trainer.shards[name] = replace(shard, partial=tuple(axis for axis in shard.partial if axis != "tp"))


def _moved(shard: Shard, dim: int, start: int, stop: int) -> Shard:
    starts, stops = list(shard.starts), list(shard.stops)
    starts[dim], stops[dim] = start, stop
    return replace(shard, starts=tuple(starts), stops=tuple(stops))
