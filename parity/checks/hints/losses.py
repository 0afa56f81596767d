"""The loss: an offset, a factor, a wrong forward, a value that is none."""

import math

import numpy as np

from parity.checks.comparison import Gap
from parity.checks.hints.facts import Facts, Hint, groups_in, median, values_agree
from parity.checks.hints.sizes import match, ratio_text
from parity.checks.words import number, plural

__all__ = [
    "CONSTANT",
    "WORDS",
    "constant_logged",
    "forward",
    "judged",
    "offset",
    "own_loss",
    "placeholder",
    "rank_loss",
    "scaled_loss",
    "weighted",
]

WORDS = {"loss": "loss", "grad_norm": "gradient norm"}

# A constant is one if it holds to so much of itself, over steps at which the loss moves by ten times as much.
CONSTANT = 1e-3
# Two means of ranks' means and one whose labels were shifted after the split had cosines of 0.964 and more in 95 of
# 100 parameters; a row-parallel bias too many and positions that restart had 0.84 and less.
_ALMOST = 0.93
# Against fp32, gradients of a forward and backward in bf16 were 9e-3 to 1.8e-2 apart (NeMo Automodel's default policy
# under FSDP2 and tensor parallelism).
_BF16 = 3e-2
# Losses this near were computed of almost the same: another weighting, another order, a few tokens.
_NEAR = 0.1

_FORWARD = {
    "tp": "a row-parallel bias added on every rank, an output that is not all-reduced, attention cut through its"
    " heads or with heads in another order, or padded columns of the vocabulary in the loss",
    "cp": "positions or labels that are cut wrongly, or a mean over each rank's own tokens",
    "ep": "tokens that are dropped or reach other experts",
    "pp": "a stage that lacks an input such as masks or the token ids that choose experts, or that holds other"
    " layers",
    "dp": "a mean over each rank's own tokens, or another setting of the model",
    "fsdp": "a mean over each rank's own tokens, or another setting of the model",
}


def placeholder(facts: Facts) -> Hint | None:
    """The loss of the candidate is one number at every step: -1 or 0 where a rank has none to log
    (pytorch/torchtitan#550, #1232)."""
    text = constant_logged(facts, "loss")
    return Hint("loss", text) if text else None


def rank_loss(facts: Facts) -> Hint | None:
    """Ranks log losses of their own, whose mean or sum is the baseline's (huggingface/transformers#13681,
    deepspeedai/DeepSpeed#5419)."""
    told = own_loss(facts) if judged(facts, "loss") is not None else ""
    text = f"ranks log losses of their own ({told}); looks like rank 0's is logged for the whole batch's"
    return Hint("loss", text) if told else None


def scaled_loss(facts: Facts) -> Hint | None:
    """The loss is one number times the baseline's at every step, and a size of the layout (ISEEKYAN/Megatron-LM#140,
    NVIDIA/Megatron-LM#673)."""
    gap = judged(facts, "loss")
    if gap is None or (gap.baseline == 0).any():
        return None
    ratios = gap.other / gap.baseline
    ratio = median(ratios)
    # A loss of 0 throughout is a placeholder's.
    if not ratio or abs(ratio - 1) <= 10 * CONSTANT or not values_agree(ratios, ratio, CONSTANT):
        return None
    norms = facts.gap("grad_norm")
    norm = median(norms.other / norms.baseline) if norms is not None and (norms.baseline > 0).all() else None
    text = f"the loss is {ratio_text(ratio)} times the baseline's at all {plural(gap.steps.size, 'step')}"
    matched = match(ratio, facts.sizes, CONSTANT, ("dp", "fsdp", "dp × fsdp", "cp", "micro-batches"))
    text += f": {matched}" if matched is not None else ""
    if norm is not None and abs(norm - 1) <= CONSTANT:
        text += ", with an equal gradient norm; looks like a reporting error"
    elif norm is not None and abs(norm / ratio - 1) <= 1e-2:
        text += (
            ", and so is the gradient norm; looks like a loss that is summed where it should be averaged, or averaged"
        )
        text += " where it should be summed, before the backward"
    else:
        text += "; looks like a sum that is reported for a mean, or a mean for a sum"
    return Hint("loss", text)


def offset(facts: Facts) -> Hint | None:
    """The loss is one number above or below the baseline's at every step: the logarithm of a size where columns of
    the vocabulary are counted by every rank (NVIDIA/Megatron-LM#7452 item 2), or a term that only one leg logs
    (NVIDIA/Megatron-LM#1330)."""
    gap = judged(facts, "loss")
    if gap is None:
        return None
    deltas = gap.other - gap.baseline
    delta = median(deltas)
    for size in facts.sizes:
        if abs(abs(delta) - math.log(size.value)) > CONSTANT * math.log(size.value):
            continue
        if not values_agree(deltas, delta, 10 * CONSTANT):
            continue
        side = "above" if delta > 0 else "below"
        return Hint(
            "loss",
            f"the loss is {ratio_text(abs(delta))} {side} the baseline's at all {plural(gap.steps.size, 'step')}:"
            f" log({size.name}), with {size.name} = {size.value}; looks like something is counted {size.value} times"
            " inside a logarithm, such as vocabulary columns in the softmax's denominator",
        )
    moved = float(np.ptp(gap.baseline))
    if (
        gap.steps.size < 3
        or not delta
        or not values_agree(deltas, delta, CONSTANT)
        or moved < 10 * CONSTANT * abs(delta)
    ):
        return None
    return Hint(
        "loss",
        f"the loss is {number(delta)} off by the same at all {plural(gap.steps.size, 'step')}; looks like a term"
        " that only one leg adds to the loss that it logs",
    )


def weighted(facts: Facts) -> Hint | None:
    """The first loss is a little off and all gradients point almost where they should: tokens are weighted
    otherwise, as a mean of ranks' or micro-batches' means does (verl-project/verl#5625,
    huggingface/transformers#34191, NVIDIA/Megatron-LM#7513), or one leg computes in bf16
    (NVIDIA-NeMo/Automodel#3613)."""
    gap = facts.gap("loss")
    if gap is None or not facts.failed("forward") or not facts.passed("initial_state", "same_data"):
        return None
    axes = [size.name for size in facts.sizes if size.name in ("dp", "fsdp", "cp", "micro-batches")]
    found = list(facts.differing.values())
    cosines = np.array([one.cosine for one in found])
    if len(found) < 3 or len(facts.agreeing) > 0.1 * len(found) or gap.relative[0] > _NEAR:
        return None
    distances = [median(one.distance for one in members) for members in groups_in(found).values()]
    if not _ALMOST < float(np.percentile(cosines, 5)) <= float(np.median(cosines)) < 1 - 1e-6:
        return None
    if max(distances) > 2 * min(distances):
        return None
    over = "ranks' or micro-batches'" if axes != ["micro-batches"] else "micro-batches'"
    cause = f"tokens are weighted otherwise, as in a mean of {over} means"
    if "cp" in axes:
        cause += ", or that a few labels are lost where the sequence is split"
    if facts.comparison.profile.epsilon < 1e-4 and max(distances) < _BF16:
        cause = "one leg computes in bf16, as a mixed-precision policy does that applies under one layout alone"
    elif not axes:
        return None
    return Hint(
        "loss",
        f"the first loss is only {number(float(gap.relative[0]))} off, and all gradients point almost where the"
        f" baseline's do (median cosine {float(np.median(cosines)):.4f}, ratio"
        f" {median(o.ratio for o in found):.4f}); looks like {cause}",
    )


def forward(facts: Facts) -> Hint | None:
    """The first loss differs, before any update: what goes wrong in a forward under each axis
    (huggingface/text-generation-inference#1036, NVIDIA/Megatron-LM#5243, #4977, NVIDIA/bionemo-framework#1449,
    NVIDIA-NeMo/Automodel#3613)."""
    gap = facts.gap("loss")
    if gap is None or not facts.failed("forward"):
        return None
    axes = [size.name for size in facts.sizes if size.name in _FORWARD]
    known = facts.passed("initial_state", "same_data")
    off = f"the first loss is {number(float(gap.relative[0]))} off, before any update"
    if not facts.same_start:
        return None
    if not known:
        cosine = median(one.cosine for one in facts.differing.values())
        noise = f", and gradients point elsewhere (median cosine {cosine:.2f})" if cosine < 0.9 else ""
        if gap.relative[0] < _NEAR:
            return Hint(
                "loss",
                f"{off}{noise}, and nothing shows that the legs start from the same weights and train on the same"
                " samples; looks like another start or other data, or a forward that is slightly wrong",
            )
        return None
    causes = [f"under {axis}: {_FORWARD[axis]}" for axis in axes[:2]]
    if not causes:
        return None
    cause = "; or ".join(causes)
    return Hint("loss", f"{off}, with the same weights and samples; looks like what goes wrong {cause}")


def constant_logged(facts: Facts, metric: str) -> str:
    """A sentence where the candidate logs one number at every step and the baseline does not; else empty."""
    gap = facts.gap(metric)
    if gap is None or gap.steps.size < 3 or np.ptp(gap.other) != 0 or np.ptp(gap.baseline) == 0:
        return ""
    value = float(gap.other[0])
    what = {
        -1.0: "the placeholder of a rank that has no loss, such as one that is not on the last pipeline stage",
        0.0: "the value of a rank that has none to log",
    }.get(value, "a value that is not updated")
    if metric == "grad_norm" and value > 0:
        what = "a norm that is taken after clipping"
    return (
        f"the {WORDS[metric]} that {facts.candidate.name} logs is {number(value)} at all"
        f" {plural(gap.steps.size, 'step')}; looks like {what}"
    )


def own_loss(facts: Facts) -> str:
    """What ranks log, where each logs another loss, and whether their mean or sum is the baseline's; else empty."""
    records, gap = facts.candidate.records, facts.gap("loss")
    if records is None or gap is None or len(records.ranks) < 2:
        return ""
    logged = np.array([[rank.losses.get(s) for rank in records.ranks] for s in gap.steps.tolist()], dtype=np.float64)
    known = np.isfinite(logged).all(axis=1)
    if not known.any() or not (np.ptp(logged[known], axis=1) > 1e-5 * np.abs(logged[known]).max(axis=1)).any():
        return ""
    # Later on the legs' weights are no longer the same to the last bit; the first steps must tell.
    first, wanted = logged[known][:3], gap.baseline[known][:3]
    every = {"mean": first.mean(axis=1), "sum": first.sum(axis=1)}
    how = next((how for how, found in every.items() if np.allclose(found, wanted, rtol=1e-4, atol=0)), None)
    told = ", ".join(number(one) for one in first[0, :4].tolist()) + (", …" if first.shape[1] > 4 else "")
    told += f" at step {int(gap.steps[known][0])}"
    return f"{told}, whose {how} is the baseline's" if how else told


def judged(facts: Facts, metric: str) -> Gap | None:
    """The gap of a metric that a check of it found to be beyond what is allowed."""
    checks = ("loss", "forward", "drift", "control") if metric == "loss" else ("grad_norm",)
    return facts.gap(metric) if facts.same_start and facts.failed(*checks) else None
