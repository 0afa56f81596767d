"""Faults in what is logged, which train the right model as long as nothing is clipped by it: M10 and M18."""

from parity.train.faults.catalog.layouts import ANY, CP, DP, DP_EP, FSDP, FSDP_EP, PP, TP
from parity.train.faults.fault import Fault, Hint

__all__ = ["FAULTS"]

FAULTS = (
    Fault(
        name="norm-of-local-shard",
        mutation="M10",
        what="Each rank takes the norm of the gradients that it holds for the norm of all.",
        bug="pytorch/torchtitan#766",
        layouts=(FSDP, TP, PP, DP_EP, FSDP_EP),
        hint=Hint("grad_norm"),
        elsewhere="with dp or cp alone, each rank holds every gradient",
    ),
    Fault(
        name="norm-counts-replicas",
        mutation="M10",
        what="The squares of gradients that are the same on several ranks are counted on each of them.",
        bug="pytorch/torchtitan#2318",
        layouts=(DP, CP),
        hint=Hint("grad_norm", ratio="sqrt(world)"),
    ),
    Fault(
        name="norm-counts-whole-parameters-on-every-rank",
        mutation="M10",
        what="Parameters that tensor parallelism does not split are counted in the norm once for every rank.",
        bug="ROCm/TransformerEngine#715",
        layouts=(TP,),
        hint=Hint("grad_norm"),
    ),
    Fault(
        name="norm-counts-tied-twice",
        mutation="M10",
        what="The tied embedding is counted in the norm by the first and by the last pipeline stage.",
        bug="deepspeedai/DeepSpeed#1252",
        layouts=(PP,),
        options={"tie_embeddings": True},
        hint=Hint("grad_norm"),
    ),
    Fault(
        name="norm-per-expert-group",
        mutation="M10",
        what="The norm misses the experts that other ranks hold, so that ranks clip by different factors.",
        bug="NVIDIA-NeMo/Automodel#3816",
        layouts=(DP_EP, FSDP_EP),
        hint=Hint("grad_norm"),
    ),
    Fault(
        name="reports-own-loss",
        mutation="M18",
        what="Each rank reports the mean loss of its own tokens.",
        bug="huggingface/transformers#13681",
        layouts=(DP, FSDP, CP, DP_EP),
        hint=Hint("loss"),
        elsewhere="tensor parallel ranks share all tokens",
    ),
    Fault(
        name="reports-minus-one",
        mutation="M18",
        what="Pipeline stages other than the last report a loss of -1.",
        bug="pytorch/torchtitan#550",
        layouts=(PP,),
        hint=Hint("loss"),
    ),
    Fault(
        name="reports-summed-loss",
        mutation="M18",
        what="The loss that is reported is the sum of the ranks' means.",
        bug="Qihoo360/360-LLaMA-Factory#72",
        layouts=ANY,
        hint=Hint("loss", ratio="world"),
    ),
    Fault(
        name="reports-summed-norm",
        mutation="M18",
        what="The gradient norm that is reported is summed over the micro-batches.",
        bug="NVIDIA-NeMo/RL#1426",
        layouts=ANY,
        options={"accumulate": 2},
        hint=Hint("grad_norm", ratio="accumulate"),
    ),
)
