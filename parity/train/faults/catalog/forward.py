"""Faults that make the first loss wrong: M1 to M3, M9, M13 and M20."""

from parity.layout import Layout
from parity.train.faults.catalog.layouts import CP, DP, DP_EP, FSDP, PP, TP
from parity.train.faults.fault import EXPERTS, Fault, Hint

__all__ = ["FAULTS"]

FAULTS = (
    Fault(
        name="row-bias-on-every-rank",
        mutation="M1",
        what="Each tensor parallel rank adds a row-parallel bias before the ranks' outputs are summed.",
        bug="huggingface/text-generation-inference#1036",
        layouts=(TP,),
        options={"bias": True},
    ),
    Fault(
        name="row-output-not-summed",
        mutation="M1",
        what="Partial outputs of attention's output projection are not summed over the tensor parallel ranks.",
        bug="sgl-project/sglang#14811",
        layouts=(TP,),
    ),
    Fault(
        name="loss-plus-log-tp",
        mutation="M2",
        what="The vocabulary's columns are counted once for every tensor parallel rank in the softmax's denominator.",
        bug="NVIDIA/Megatron-LM#7452",
        layouts=(TP,),
        hint=Hint("loss", offset="log(tp)"),
    ),
    Fault(
        name="pad-columns-in-softmax",
        mutation="M2",
        what="Columns that pad an odd vocabulary to even shards take part in the softmax.",
        bug="NVIDIA/Megatron-LM#1754",
        layouts=(TP,),
        options={"vocab": 509},
    ),
    Fault(
        name="heads-cut-through",
        mutation="M3",
        what="Attention is cut by rows wherever they fall, through the middle of heads.",
        bug="deepspeedai/DeepSpeed#8316",
        layouts=(TP,),
        options={"heads": 6, "kv_heads": 3},
        hint=Hint("gradients", "attention"),
    ),
    Fault(
        name="kv-heads-permuted",
        mutation="M3",
        what="Each rank reads its key and value heads in another order than its query heads.",
        bug="ndif-team/nnsight#719",
        layouts=(TP,),
        hint=Hint("gradients", "attention"),
    ),
    Fault(
        name="mean-of-rank-means",
        mutation="M9",
        what="Each rank divides by its own number of tokens, and the ranks' means are averaged.",
        bug="NVIDIA/Megatron-LM#7513",
        layouts=(DP, FSDP, CP),
    ),
    Fault(
        name="mean-of-micro-batch-means",
        mutation="M9",
        what="Each micro-batch is divided by its own number of tokens, and the micro-batches' means are averaged.",
        bug="huggingface/transformers#34191",
        layouts=(DP, FSDP, TP, PP, CP, DP_EP),
        options={"accumulate": 2},
    ),
    Fault(
        name="positions-restart",
        mutation="M13",
        what="Rotary positions start from zero on each context parallel rank.",
        bug="NVIDIA/Megatron-LM#5243",
        layouts=(CP,),
        elsewhere="sequence parallelism gathers the sequence before attention, which sees all positions",
    ),
    Fault(
        name="labels-shifted-after-split",
        mutation="M13",
        what="Labels are shifted after the sequence was cut, so that the last token of a stretch loses its label.",
        bug="NVIDIA-BioNeMo/bionemo-recipes#1449",
        layouts=(CP,),
        elsewhere="sequence parallelism gathers the sequence before the loss, whose labels are whole",
    ),
    Fault(
        name="hash-ids-dropped",
        mutation="M20",
        what="Later pipeline stages get no token ids, and layers that are routed by them choose experts by score.",
        bug="NVIDIA-NeMo/Automodel#3613",
        layouts=(Layout(pp=2),),
        options={**EXPERTS, "hash_layers": 2},
        hint=Hint("gradients", "experts"),
    ),
)
