"""What is trained, and how: one dataclass, from which the command line and the suite's keys are made."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Literal

from parity.layout import Layout
from parity.train import faults

__all__ = ["TrainOptions", "problems"]

PAIRS = (
    ("dp", "fsdp"),
    ("dp", "tp"),
    ("dp", "pp"),
    ("dp", "ep"),
    ("dp", "cp"),
    ("fsdp", "ep"),
    ("fsdp", "cp"),
    ("tp", "pp"),
    ("pp", "ep"),
    ("pp", "cp"),
    ("ep", "cp"),
)
"""Axes that can be larger than 1 together. More than two can where each two of them can."""

DEEPSEEK_COUNTS = ("experts", "top_k", "expert_ffn", "streams", "q_lora", "o_lora", "o_groups", "rope_dim")
"""Options of deepseek_v4 of which there must be at least one."""


@dataclass(frozen=True)
class TrainOptions:
    """The embedded trainer's options. Every field's `metadata["help"]` says what it means.

    The defaults are what the embedded suite runs: 16 query and 8 KV heads, which 3 ranks can only share
    unevenly; a prime vocabulary, which no number of ranks divides; and 40 steps that take seconds on two
    CPU cores while the loss falls from 6.7 to below 1.
    """

    model: Literal["qwen3", "deepseek_v4"] = field(default="qwen3", metadata={"help": "architecture"})
    layers: int = field(default=2, metadata={"help": "decoder layers"})
    hidden: int = field(default=64, metadata={"help": "width of the residual stream"})
    heads: int = field(default=16, metadata={"help": "query heads"})
    kv_heads: int = field(default=8, metadata={"help": "key/value heads; divides heads; 1 in deepseek_v4"})
    head_dim: int = field(default=16, metadata={"help": "size of one head; even, for RoPE"})
    ffn: int = field(default=172, metadata={"help": "inner width of the SwiGLU block of qwen3"})
    vocab: int = field(default=509, metadata={"help": "vocabulary size"})
    tie_embeddings: bool = field(default=False, metadata={"help": "share the embedding with the output head"})
    bias: bool = field(
        default=False, metadata={"help": "biases, drawn non-zero, on every linear in a layer of qwen3"}
    )
    experts: int = field(default=8, metadata={"help": "routed experts of a deepseek_v4 layer, beside the shared one"})
    top_k: int = field(default=2, metadata={"help": "experts that a token chooses"})
    expert_ffn: int = field(default=32, metadata={"help": "inner width of an expert"})
    hash_layers: int = field(
        default=3, metadata={"help": "first layers of deepseek_v4, whose experts are chosen by token id"}
    )
    streams: int = field(default=4, metadata={"help": "residual streams of deepseek_v4"})
    q_lora: int = field(default=16, metadata={"help": "rank of the query projection of deepseek_v4"})
    o_lora: int = field(default=16, metadata={"help": "rank of each group's output projection of deepseek_v4"})
    o_groups: int = field(default=2, metadata={"help": "groups of heads with an output projection of their own"})
    rope_dim: int = field(
        default=4, metadata={"help": "dimensions of a deepseek_v4 head that carry positions, its last; even"}
    )
    aux_loss: float = field(
        default=0.0,
        metadata={"help": "weight of the load-balancing loss, computed of each rank's micro-batch; 0 is off"},
    )
    bias_update_rate: float = field(
        default=1e-3, metadata={"help": "by how much the experts' selection biases move after a step; 0 is off"}
    )
    rope_theta: float = field(default=10_000.0, metadata={"help": "base of the rotary frequencies"})
    seq_len: int = field(default=32, metadata={"help": "tokens in a sequence"})
    micro_batch: int = field(default=2, metadata={"help": "sequences in a micro-batch"})
    accumulate: int = field(default=2, metadata={"help": "micro-batches in a step"})
    optimizer: Literal["adamw", "sgd"] = field(default="adamw", metadata={"help": "optimizer"})
    lr: float = field(default=1e-3, metadata={"help": "learning rate, constant"})
    weight_decay: float = field(default=0.01, metadata={"help": "weight decay of matrices"})
    clip: float = field(default=1.0, metadata={"help": "greatest gradient norm; 0 does not clip"})
    dtype: Literal["fp32", "fp64", "bf16"] = field(
        default="fp32", metadata={"help": "dtype of the computation; bf16 keeps fp32 weights"}
    )
    sequence_parallel: bool = field(
        default=False, metadata={"help": "split the sequence over the tensor parallel ranks between blocks"}
    )
    schedule: Literal["1f1b", "gpipe"] = field(default="1f1b", metadata={"help": "pipeline schedule"})
    first_stage_layers: int = field(
        default=0,
        metadata={"help": "layers of the first pipeline stage, the rest being shared evenly; 0 shares all evenly"},
    )
    reduce_dtype: Literal["fp32", "bf16"] = field(
        default="fp32",
        metadata={"help": "dtype in which fully sharded gradients are summed; fp32 is the weights' own"},
    )
    expert_reduce_dtype: Literal["fp32", "bf16"] = field(
        default="fp32",
        metadata={"help": "dtype in which experts' gradients leave a micro-batch and are summed over ranks"},
    )
    fault: str = field(
        default="",
        metadata={"help": "mistake to make on purpose, by its name in parity/train/faults/catalog; empty makes none"},
    )
    threads: int = field(default=1, metadata={"help": "CPU threads of each rank"})


def problems(options: TrainOptions, layout: Layout) -> list[tuple[str, str]]:
    """Everything that keeps these options from being trained under this layout.

    Returns:
        Pairs of a field (`trainer.heads`, `layout.tp`) and a sentence that says what would be right; empty
        when all is well.
    """
    found = [*_trainer_problems(options), *_layout_problems(options, layout)]
    misfit = faults.misfit(options.fault, asdict(options), layout) if options.fault else None
    return found if misfit is None else [*found, ("trainer.fault", misfit)]


def _trainer_problems(options: TrainOptions) -> Iterator[tuple[str, str]]:
    counts = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "seq_len", "micro_batch")
    counts = (*counts, *DEEPSEEK_COUNTS) if options.model == "deepseek_v4" else counts
    for name in (*counts, "accumulate", "threads"):
        value = getattr(options, name)
        if value < 1:
            yield f"trainer.{name}", f"{value} is too few: give 1 or more"
    if options.vocab < 2:
        yield "trainer.vocab", f"{options.vocab} leaves nothing to predict: give 2 or more"
    if options.head_dim >= 1 and options.head_dim % 2:
        yield "trainer.head_dim", f"{options.head_dim} is odd, and RoPE turns pairs: give an even number"
    if options.kv_heads >= 1 and options.heads % options.kv_heads:
        yield (
            "trainer.heads",
            f"{options.heads} is no multiple of the {options.kv_heads} KV heads: every KV head serves equally"
            " many query heads",
        )
    if options.first_stage_layers < 0:
        yield "trainer.first_stage_layers", f"{options.first_stage_layers} is not possible: give 0 (even) or more"
    if options.model == "deepseek_v4":
        yield from _deepseek_problems(options)
    for name in ("lr", "rope_theta"):
        value = getattr(options, name)
        if not 0 < value < math.inf:
            yield f"trainer.{name}", f"{value} is not possible: give a finite number above 0"
    for name in ("weight_decay", "clip", "aux_loss", "bias_update_rate"):
        value = getattr(options, name)
        if not 0 <= value < math.inf:
            yield f"trainer.{name}", f"{value} is not possible: give 0 (off) or a finite number above it"


def _deepseek_problems(options: TrainOptions) -> Iterator[tuple[str, str]]:
    if options.kv_heads != 1:
        yield (
            "trainer.kv_heads",
            f"deepseek_v4 has one KV head, which is key and value in one: give 1, not {options.kv_heads}",
        )
    if not 0 <= options.hash_layers <= options.layers:
        yield (
            "trainer.hash_layers",
            f"{options.hash_layers} of {options.layers} layers cannot be routed by token id: give 0 to"
            f" {options.layers}, or more trainer.layers",
        )
    if options.top_k > options.experts:
        yield "trainer.top_k", f"{options.top_k} experts cannot be chosen from {options.experts}: give fewer"
    if options.o_groups >= 1 and options.heads % options.o_groups:
        yield "trainer.o_groups", f"{options.o_groups} groups cannot share {options.heads} heads evenly"
    if options.rope_dim % 2 or options.rope_dim > options.head_dim:
        yield (
            "trainer.rope_dim",
            f"{options.rope_dim} is not possible: give an even number up to the head_dim, {options.head_dim}",
        )


def _expert_problems(options: TrainOptions, layout: Layout) -> Iterator[tuple[str, str]]:
    if layout.ep < 2:
        return
    if options.model != "deepseek_v4":
        yield "layout.ep", f"{options.model} has no experts to spread: leave it at 1, or train deepseek_v4"
    elif layout.ep > options.experts:
        yield "layout.ep", f"{layout.ep} ranks cannot share {options.experts} experts: give at most {options.experts}"


def _layout_problems(options: TrainOptions, layout: Layout) -> Iterator[tuple[str, str]]:
    for axis, size in layout.sizes().items():
        if size < 1:
            yield f"layout.{axis}", f"{size} is too few: give 1 or more"
    yield from _pair_problems(layout)
    yield from _data_problems(options, layout)
    yield from _stage_problems(options, layout)
    yield from _expert_problems(options, layout)
    if layout.cp > options.seq_len >= 1:
        yield "layout.cp", f"{layout.cp} ranks cannot share {options.seq_len} tokens: give at most {options.seq_len}"
    if options.model == "deepseek_v4":
        if layout.tp > 1:
            yield "layout.tp", "deepseek_v4 is not split by tensor parallelism: leave it at 1, or train qwen3"
        return
    shared = {"kv_heads": "KV heads", "ffn": "rows of ffn", "vocab": "entries of the vocabulary"}
    if options.sequence_parallel:
        shared["seq_len"] = "tokens of a sequence, which sequence_parallel splits"
    for name, words in shared.items():
        count = getattr(options, name)
        if layout.tp > count >= 1:
            yield (
                "layout.tp",
                f"{layout.tp} ranks cannot share {count} {words}: give at most {count}, or raise trainer.{name}",
            )


def _pair_problems(layout: Layout) -> Iterator[tuple[str, str]]:
    used = [axis for axis, size in layout.sizes().items() if size > 1]
    for first, second in combinations(used, 2):
        if {first, second} not in [set(pair) for pair in PAIRS]:
            known = ", ".join(f"{one} with {other}" for one, other in PAIRS)
            yield (
                f"layout.{second}",
                f"cannot be combined with {first}: leave one of them at 1 (possible are {known})",
            )


def _data_problems(options: TrainOptions, layout: Layout) -> Iterator[tuple[str, str]]:
    ranks = layout.dp * layout.fsdp
    if ranks > 1 and options.micro_batch % ranks:
        yield (
            "trainer.micro_batch",
            f"{options.micro_batch} sequences cannot be dealt evenly over {ranks} data parallel ranks (dp {layout.dp}"
            f" × fsdp {layout.fsdp}): give a multiple of {ranks}, to every leg, so that all have the same batches",
        )


def _stage_problems(options: TrainOptions, layout: Layout) -> Iterator[tuple[str, str]]:
    if layout.pp < 2:
        return
    if layout.pp > options.layers >= 1:
        yield "layout.pp", f"{layout.pp} stages cannot share {options.layers} layers: give at most {options.layers}"
    elif options.first_stage_layers > options.layers - layout.pp + 1:
        yield (
            "trainer.first_stage_layers",
            f"{options.first_stage_layers} of {options.layers} layers leave too few for the other"
            f" {layout.pp - 1} stages: give at most {options.layers - layout.pp + 1}",
        )
    least = layout.pp if options.schedule == "1f1b" else 2
    if 1 <= options.accumulate < least:
        why = "1f1b needs a micro-batch for every stage" if least > 2 else "a pipeline needs two micro-batches"
        way_out = ", or take schedule gpipe, for which 2 are enough" if least > 2 else ""
        yield (
            "trainer.accumulate",
            f"{options.accumulate} is too few for {layout.pp} stages, as {why}: give {least} or more, and the same to"
            f" every leg{way_out}",
        )
