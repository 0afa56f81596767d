"""Gradients that point where the baseline's do and are a number times as long."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import pairwise

import numpy as np

from parity.checks.hints.facts import Facts, Hint, groups_in, median, values_agree
from parity.checks.hints.sizes import RANKS, Match, match, ratio_text
from parity.checks.hints.whose import Whose, whose
from parity.checks.parameters import Apart
from parity.checks.words import plural

__all__ = ["constant", "scaled"]

# A count of tokens or samples has no name among the sizes; a smaller whole number is no evidence of a count.
_LEAST_COUNT = 8


def scaled(facts: Facts) -> Iterator[Hint]:
    """One ratio in everything that differs, in each pipeline stage, or in a group of parameters.

    Experts times ep (deepspeedai/DeepSpeed#5259, pytorch/pytorch#160285, ByteDance-Seed/VeOmni#185) or tp
    (Automodel's `test_experts_ep_tp_grad_parity`); all times a size (pytorch/torchtune#2172, NVIDIA/Megatron-LM#673,
    #6773), over the micro-batches (inclusionAI/AReaL#1273), times the tokens (pytorch/torchtitan#2972); 1/GAS again
    at every stage (deepspeedai/DeepSpeed#8154).
    """
    found = {name: one for name, one in facts.differing.items() if 0 < one.ratio < np.inf}
    if not found:
        return
    stages = _stages(facts)
    if stages is not None:
        yield stages
        return
    if constant(facts, found.values()) and _off(facts, found.values()):
        yield _one(facts, found)
        return
    for group, members in groups_in(facts.differing.values()).items():
        of_group = {one.name: one for one in members}
        others = any(one.group == group for one in facts.agreeing.values())
        if not others and constant(facts, members) and _match(facts, median(o.ratio for o in members), of_group):
            yield _one(facts, of_group)


def _off(facts: Facts, found: Collection[Apart]) -> bool:
    """Whether the ratio is none that rounding might leave."""
    return abs(median(one.ratio for one in found) - 1) > facts.tolerance


def constant(facts: Facts, found: Collection[Apart]) -> bool:
    """Whether all gradients are one number times the baseline's, to what rounding leaves."""
    ratios = np.array([one.ratio for one in found])
    straight = np.sqrt(2 * np.maximum(0.0, 1 - np.array([one.cosine for one in found])))
    return values_agree(ratios, median(ratios), facts.tolerance) and bool((straight <= facts.tolerance).all())


def _match(facts: Facts, ratio: float, names: Collection[str]) -> Match | None:
    return match(ratio, facts.sizes, facts.tolerance, whose(facts, names).prefer())


def _one(facts: Facts, found: dict[str, Apart]) -> Hint:
    ratio = median(one.ratio for one in found.values())
    who = whose(facts, found)
    matched = _match(facts, ratio, found)
    text = f"{who.told()} are {ratio_text(ratio)} times the baseline's in {who.count}"
    if matched is not None:
        text += f": {matched}; looks like {_cause(matched, who)}"
    elif _counts(ratio):
        what = "missing" if ratio > 1 else "made once too often"
        told = f"{ratio:.0f}" if ratio > 1 else f"1/{1 / ratio:.0f}"
        text += f": {told}; looks like a division by a count, such as that of tokens, is {what}"
    else:
        text += ", with the same direction; looks like one factor that only one leg applies"
    return Hint("gradients", text, frozenset(found))


def _cause(matched: Match, who: Whose) -> str:
    name, power = matched.size.name, matched.power
    ranks = RANKS[name]
    if abs(power) != 1:
        return f"they are scaled by {matched.formula} somewhere"
    if name == "micro-batches":
        return (
            "they are summed over the micro-batches where they should be averaged"
            if power > 0
            else "they are divided by the number of micro-batches once too often"
        )
    if name == "tp" and power > 0:
        return f"what every one of {ranks} has whole is added up over them"
    if name == "pp":
        return "a scaling is repeated at every pipeline stage"
    if power > 0:
        return f"they are summed over {ranks} where they should be averaged"
    they = "they, or the auxiliary loss," if who.group == "router" else "they"
    return f"{they} are divided by the number of {ranks.removeprefix('the ')} once too often"


def _counts(ratio: float) -> bool:
    number = max(ratio, 1 / ratio)
    return number >= _LEAST_COUNT and abs(number - round(number)) <= 1e-5 * number + 1e-3


def _stages(facts: Facts) -> Hint | None:
    """One ratio in each pipeline stage, and not the same in all."""
    by_stage: dict[int, list[Apart]] = defaultdict(list)
    for name, stage in facts.stage_of.items():
        one = facts.differing.get(name) or facts.agreeing.get(name)
        if one is not None:
            by_stage[stage].append(one)
    if len(by_stage) < 2 or not all(constant(facts, members) for members in by_stage.values()):
        return None
    ratios = {stage: median(one.ratio for one in by_stage[stage]) for stage in sorted(by_stage)}
    told = list(ratios.values())
    if min(told) <= 0 or max(told) / min(told) - 1 <= facts.tolerance:
        return None
    steps = np.array([a / b for a, b in pairwise(told)])
    per_stage = median(steps) if values_agree(steps, median(steps), facts.tolerance) else float("nan")
    matched = match(per_stage, facts.sizes, facts.tolerance, ("micro-batches", "dp", "pp"))
    each = ", ".join(f"{ratio_text(ratio)} on stage {stage}" for stage, ratio in ratios.items())
    text = f"gradients are a constant times the baseline's on each pipeline stage ({each}; {_counted(by_stage)})"
    if matched is not None:
        text += f", from stage to stage {matched}; looks like a scaling that is repeated at every pipeline stage"
    else:
        text += "; looks like a scaling that not all stages apply"
    return Hint("gradients", text, frozenset(facts.differing))


def _counted(by_stage: dict[int, list[Apart]]) -> str:
    return plural(sum(map(len, by_stage.values())), "parameter")
