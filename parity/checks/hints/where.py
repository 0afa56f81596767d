"""Gradients that are wrong in one place, or of which a part is missing."""

import re
from collections.abc import Iterator

import numpy as np

from parity.checks.hints.facts import Facts, Hint, groups_in, median
from parity.checks.hints.sizes import match
from parity.checks.hints.whose import is_bias, whose
from parity.checks.words import number, plural

__all__ = ["furthest_group", "no_gradient", "one_group", "part_of_the_batch", "rounded", "upstream"]

# A group is furthest out where its median distance is so many times that of every other group.
_STANDS_OUT = 4.0
# What is left of a gradient that lacks some of its addends varies from parameter to parameter.
_ABOUT = 0.15

# Gradients rounded to bf16 once are 1.2e-3 to 2.1e-3 apart per parameter, and rounded and added up over two ranks
# 2.1e-3 to 3.4e-3, as measured in the embedded trainer; the rounding of a normal float is at most 2^-9 of it.
_BF16 = (8e-4, 6e-3)

_LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)\.(\d+)\.")

_ONLY = {
    "router": "the router's gradient, which is not reduced over {ranks}, or the auxiliary loss, which is scaled"
    " otherwise",
    "experts": "tokens that reach other experts or are dropped, or expert gradients reduced over the wrong ranks",
    "shared experts": "shared experts whose gradients are reduced over the wrong ranks",
    "embeddings": "the embedding or the output head: its tied copies' gradients are not added up, or its vocabulary"
    " is cut wrongly",
    "attention": "attention: heads that are cut wrongly, or keys and values that several ranks share and whose"
    " gradients are not added up",
    "norms": "norms' gradients that are not added up over {ranks}, each of which saw a part of the activations",
    "mlp": "the MLP's cut, or a collective around it",
    "connections": "the residual streams, as they are handed on between layers or stages",
    "biases": "biases that each rank adds, or whose gradients are not added up over {ranks}",
}

# Where what lies before a group differs too, its gradients are not merely left unreduced.
_FURTHEST = {
    "router": "an auxiliary loss that is scaled otherwise, as by the number of micro-batches or ranks, or added twice"
}


def no_gradient(facts: Facts) -> Iterator[Hint]:
    """Parameters that have a gradient in one leg alone: frozen, unused, or dropped before they are
    read (NVIDIA-NeMo/Automodel#3530 sets `param.grad` to None)."""
    at = facts.gradients
    if at is None:
        return
    zero = {n for n, one in at.parameters.items() if one.ratio == 0 and one.norm >= one.scale}
    appears = {n for n, one in at.parameters.items() if np.isinf(one.ratio)}
    legs = (facts.candidate.name, facts.baseline.name)
    without, only = zero | set(at.missing), appears | set(at.extra)
    for names, (lacks, has) in ((without, legs), (only, legs[::-1])):
        if names and facts.failed("gradients"):
            who = whose(facts, names)
            what = "are zero" if names & (zero | appears) else "do not exist"
            yield Hint(
                "gradients",
                f"{who.told()} {what} in {lacks} and not in {has} ({who.count}: {who.some}); looks like these are"
                " frozen there, or no path leads from them to the loss",
                frozenset(names),
            )


def rounded(facts: Facts) -> Hint | None:
    """Gradients that are apart by what rounding to bf16 leaves, everywhere alike: they are accumulated or reduced in
    it (ISEEKYAN/Megatron-LM#149, NVIDIA/Megatron-LM#3067)."""
    found = list(facts.differing.values())
    if not found or not facts.first_loss_agrees or facts.comparison.profile.epsilon > 1e-4:
        return None
    distances = np.array([one.distance for one in found])
    low, high = np.percentile(distances, [5, 95]).tolist()
    if not _BF16[0] <= low <= high <= _BF16[1] or high > 4 * low or any(abs(o.ratio - 1) > 2e-3 for o in found):
        return None
    who = whose(facts, facts.differing)
    return Hint(
        "gradients",
        f"the first loss agrees, and {who.told()} are {number(median(distances))} apart in the median, everywhere"
        f" alike ({number(low)} to {number(high)}, ratio {median(o.ratio for o in found):.4f}, {who.count}); looks"
        " like they are rounded to bf16, such as in a reduction",
        frozenset(facts.differing),
    )


def one_group(facts: Facts) -> Hint | None:
    """Only one group of parameters differs, by no constant: routers (huggingface/transformers#48687,
    NVIDIA/Megatron-LM#3769, #5047, NVIDIA-NeMo/Automodel#3359), tied embeddings (NVIDIA/Megatron-LM#844, #656),
    attention (NVIDIA/TransformerEngine#1557, deepspeedai/DeepSpeed#8316), norms (EleutherAI/gpt-neox#1257)."""
    if not facts.differing or not facts.agreeing:
        return None
    groups = groups_in(facts.differing.values())
    group = "biases" if len(groups) > 1 and all(map(is_bias, facts.differing)) else next(iter(groups))
    if (len(groups) > 1 and group != "biases") or group not in _ONLY:
        return None
    who = whose(facts, facts.differing)
    found = facts.differing.values()
    return Hint(
        "gradients",
        f"only {who.told()} differ ({who.count}; median ratio {number(median(o.ratio for o in found))}, cosine"
        f" {median(o.cosine for o in found):.4f}), and {plural(len(facts.agreeing), 'other parameter')} agree; looks"
        f" like {_ONLY[group].format(ranks=_ranks(facts, group))}",
        frozenset(facts.differing),
    )


def furthest_group(facts: Facts) -> Hint | None:
    """One group is several times further out than all others, which what it computes or hands back explains: an
    auxiliary loss that only the router's weights and what lies before them feel (NVIDIA-NeMo/Automodel#3359), heads
    that are cut through (deepspeedai/DeepSpeed#8316)."""
    by_group = groups_in([*facts.differing.values(), *facts.agreeing.values()])
    if len(groups_in(facts.differing.values())) < 2:
        return None
    distances = {group: median(one.distance for one in members) for group, members in by_group.items()}
    (first, most), (second, next_most), *_ = sorted(distances.items(), key=lambda item: -item[1])
    if most < _STANDS_OUT * next_most or first not in _ONLY:
        return None
    names = [one.name for one in by_group[first] if one.name in facts.differing]
    return Hint(
        "gradients",
        f"{whose(facts, names).told()} are furthest out (median relative distance {number(most)}, at most"
        f" {number(next_most)} in any other group, {second}); looks like"
        f" {_FURTHEST.get(first, _ONLY[first]).format(ranks=_ranks(facts, first))}",
        frozenset(facts.differing),
    )


def upstream(facts: Facts) -> Hint | None:
    """All layers up to one differ and all later ones agree: a wrong gradient is handed back there
    (NVIDIA/TransformerEngine#1557, a backward of context parallel attention)."""
    if not facts.first_loss_agrees or not facts.differing or not facts.agreeing:
        return None
    wrong = {layer for n in facts.differing if (layer := _layer(n)) is not None}
    right = {layer for n in facts.agreeing if (layer := _layer(n)) is not None}
    if not wrong or not right or max(wrong) > min(right):
        return None
    last, shared = max(wrong), max(wrong) == min(right)
    where = f"in layer {last}" if shared else f"between layers {last} and {min(right)}"
    who = whose(facts, facts.differing)
    return Hint(
        "gradients",
        f"the first loss agrees, gradients differ up to layer {last} ({who.count}) and agree in all later layers;"
        f" looks like a wrong gradient is handed back {where}",
        frozenset(facts.differing),
    )


def part_of_the_batch(facts: Facts) -> Hint | None:
    """The first loss agrees, and of every gradient the same part is there, in another direction: one micro-batch's or
    some ranks' share alone (NVIDIA-NeMo/Automodel#3530, modelscope/FunASR#3472).

    If g is the mean of n addends that are like each other, what one of them has of g, ratio times cosine, is 1/n on
    average over parameters.
    """
    found = [one for one in facts.differing.values() if 0 < one.ratio < np.inf]
    if not facts.first_loss_agrees or len(found) < 3:
        return None
    stages = {stage for n in facts.differing if (stage := facts.stage_of.get(n)) is not None}
    elsewhere = [n for n in facts.agreeing if facts.stage_of.get(n) in stages or not stages]
    parts = np.array([one.ratio * one.cosine for one in found])
    part, cosine = float(np.median(parts)), median(one.cosine for one in found)
    if len(elsewhere) > 0.1 * len(found) or not 0.05 < part < 0.95 or cosine > 0.999:
        return None
    if float(np.median(np.abs(parts - part))) > _ABOUT:
        return None
    matched = match(part, [s for s in facts.sizes if s.name not in ("tp", "pp", "ep")], _ABOUT, ("micro-batches",))
    about = f", about {matched}" if matched is not None and matched.power == -1 else ""
    on = f" of stage {', '.join(map(str, sorted(stages)))}" if stages and facts.agreeing else ""
    return Hint(
        "gradients",
        f"the first loss agrees, yet the gradients{on} hold only {number(part)} of the baseline's (median of ratio"
        f" times cosine{about}; median cosine {cosine:.3f}, {whose(facts, facts.differing).count}); looks like only"
        " a part of the batch reaches them, such as one micro-batch's or one rank's samples",
        frozenset(facts.differing),
    )


def _layer(name: str) -> int | None:
    found = _LAYER.search(name)
    return int(found[1]) if found else None


def _ranks(facts: Facts, group: str) -> str:
    axes = {"router": ("ep", "dp", "fsdp"), "norms": ("tp", "cp")}.get(group, ("tp", "cp", "ep", "dp"))
    axis = next((axis for axis in axes if facts.size(axis) > 1), "")
    return f"the {axis} ranks" if axis else "the ranks"
