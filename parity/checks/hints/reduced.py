"""Gradients of what several ranks hold, which a collective should have added up."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from parity.checks.hints.facts import Facts, Hint, line
from parity.checks.hints.sizes import RANKS
from parity.checks.hints.whose import PREFERRED, whose
from parity.checks.parameters import Apart
from parity.layout import AXES
from parity.records.record import Holders, LegRecords, RankRecord

__all__ = ["parted", "replicated_only", "unreduced"]

_ORDER = ("tp", "cp", "ep", "dp", "fsdp", "pp")


def unreduced(facts: Facts) -> Iterator[Hint]:
    """Ranks' gradients of one parameter that add up to the baseline's, or average to it, and yet were left apart.

    Norms under sequence parallelism (EleutherAI/gpt-neox#1257, NVIDIA/Megatron-LM#1446, NVIDIA-NeMo/Speech#7184),
    shared keys and values (pytorch/torchtitan#1373, bigcode-project/Megatron-LM#35), routers
    (huggingface/transformers#48205), tied embeddings (NVIDIA/Megatron-LM#844, #1012, #6500), `no_sync` around every
    backward (karpathy/build-nanogpt#30).
    """
    if facts.records is None or facts.gradient_step is None:
        return
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    left: dict[str, list[str]] = defaultdict(list)
    for name, one in facts.differing.items():
        told = _sums_to(facts, facts.records, facts.gradient_step, one)
        if told is not None:
            found[told].append(name)
        elif facts.replicated(name):
            axis = _differing_axis(facts.records, facts.gradient_step, name, facts.comparison.profile.norm_rtol)
            if axis:
                left[axis].append(name)
    for (axis, how), names in sorted(found.items(), key=lambda item: -len(item[1])):
        yield Hint("gradients", _sentence(facts, axis, how, names), frozenset(names))
    for axis, names in sorted(left.items(), key=lambda item: -len(item[1])):
        # What follows from a wrong forward differs too, and explains nothing else.
        explained = facts.differing if facts.failed("forward") else names
        yield Hint("gradients", _partly(facts, axis, names), frozenset(explained))


def replicated_only(facts: Facts) -> Hint | None:
    """Only parameters that ranks hold whole differ, and those that an axis splits agree (NVIDIA/Megatron-LM#7452
    item 11, NVIDIA/TransformerEngine#435, huggingface/transformers#48687): each rank has the same wrong part of a
    sum."""
    names = [name for name in facts.differing if facts.replicated(name) and not facts.is_split(name)]
    split = [name for name in facts.agreeing if facts.is_split(name)]
    if not names or len(names) < len(facts.differing) or not split or not facts.first_loss_agrees:
        return None
    who = whose(facts, names)
    axis = next((a for a in (*PREFERRED.get(who.group, ()), *_ORDER) if facts.size(a) > 1), "")
    over = f" over {axis}" if axis else ""
    return Hint(
        "gradients",
        f"only parameters that ranks hold whole have other gradients ({who.count}: {who.group or who.some}), and the"
        f" {len(split)} that are split agree; looks like a missing gradient all-reduce{over}",
        frozenset(names),
    )


def parted(facts: Facts) -> Hint | None:
    """Replicas whose weights part though their gradients agree: ranks update them differently.

    Ranks that clip by norms of their own (NVIDIA-NeMo/Automodel#3816, pytorch/pytorch#170862), another optimizer on
    one of two tied copies (NVIDIA/Megatron-LM#4641), nondeterminism (pytorch/pytorch#160169).
    """
    records = facts.candidate.records
    if records is None or not records.has_model or not facts.failed("replicas") or facts.failed("initial_state"):
        return None
    step, names, axes = _first_parting(records)
    if step is None:
        return None
    apart = [n for n in names if _differing_axis(records, step, n, facts.comparison.profile.norm_rtol)]
    who = whose(facts, names)
    axis = next((a for a in _ORDER if a in axes), "")
    where = f" on {RANKS[axis]}" if axis else " on several ranks"
    told = f"{who.told('weights')}{where} are no longer equal after step {step} ({who.count})"
    if apart:
        text = f"{told}, nor are their gradients; looks like a gradient all-reduce is missing"
        return Hint("gradients", text, frozenset(apart))
    if _norms_differ(records, facts.comparison.profile.norm_rtol):
        cause = "each rank clips by a gradient norm of its own"
    elif axis == "pp":
        cause = "the two tied copies are in other optimizer groups, or only one of them is updated"
    else:
        cause = "ranks update the same parameter by other optimizer states or settings"
    return Hint("replicas", f"{told} though their gradients agree; looks like {cause}")


def _sums_to(facts: Facts, records: LegRecords, step: int, one: Apart) -> tuple[str, str] | None:
    """The axis over whose ranks the gradients add up or average to the baseline's, and which of the two."""
    if facts.baseline.records is None:
        return None
    name, near = one.name, facts.tolerance * one.scale
    wanted = facts.baseline.records.sketches("gradients", step).get(name)
    boxes = _by_box(records.holders[name])
    if wanted is None or not any(len(holders) > 1 for holders in boxes):
        return None
    for axis in (*PREFERRED.get(one.group, ()), *_ORDER, "every"):
        lines = [line(holders, axis) for holders in boxes]
        if any(len(ranks) < 2 for ranks in lines):
            continue
        taken = [_sketches(ranks, step, name) for ranks in lines]
        if any(one is None for one in taken):
            continue
        stacks = [one for one in taken if one is not None]
        spread = sum(float(np.linalg.norm(stack - stack.mean(0))) for stack in stacks)
        if spread <= near:
            continue
        for how, sums in (("sum", [s.sum(0) for s in stacks]), ("mean", [s.mean(0) for s in stacks])):
            if float(np.linalg.norm(np.sum(sums, axis=0) - wanted)) <= near:
                return axis, how
    return None


def _sketches(ranks: Iterable[RankRecord], step: int, name: str) -> NDArray[np.float64] | None:
    found = []
    for rank in ranks:
        taken = rank.gradients.get(step)
        if taken is None or taken.sketch is None or name not in rank.index:
            return None
        found.append(np.nan_to_num(taken.sketch[rank.index[name]]))
    return np.array(found)


def _sentence(facts: Facts, axis: str, how: str, names: list[str]) -> str:
    who = whose(facts, names)
    ranks = "the ranks that hold them" if axis == "every" else RANKS[axis]
    over = "" if axis == "every" else f" over {axis}"
    verb = "add up to" if how == "sum" else "average to"
    if axis == "pp" and who.group in ("embeddings", ""):
        cause = "the all-reduce of the tied embedding between the first and the last stage is missing"
    elif who.group == "all":
        cause = f"gradients are never reduced{over}"
    else:
        cause = f"the gradient all-reduce{over} is missing for them"
    return f"{who.told()} are not the same on {ranks} and {verb} the baseline's ({who.count}); looks like {cause}"


def _partly(facts: Facts, axis: str, names: list[str]) -> str:
    who = whose(facts, names)
    ranks = RANKS.get(axis, "the ranks that hold them")
    if facts.failed("forward"):
        return (
            f"{who.told()} are not the same on {ranks} ({who.count}), and the first loss differs; looks like these"
            " ranks compute with other activations, as after an output that is not all-reduced"
        )
    return (
        f"{who.told()} are not the same on {ranks}, nor do they add up to the baseline's ({who.count}); looks like a"
        " part of them, such as one micro-batch's, is left out of the all-reduce"
    )


def _by_box(holders: Holders) -> list[Holders]:
    found: dict[object, list[tuple[RankRecord, object]]] = defaultdict(list)
    for rank, part in holders:
        found[part.box].append((rank, part))
    return list(found.values())  # type: ignore[arg-type]


def _differing_axis(records: LegRecords, step: int, name: str, rtol: float) -> str:
    """An axis along which ranks that hold the same part have gradients of other size; `every` if no axis tells."""
    for holders in _by_box(records.holders.get(name, ())):
        norms = {
            rank.rank: float(rank.gradients[step].norms[rank.index[name]])
            for rank, _ in holders
            if step in rank.gradients
        }
        if len(norms) < 2 or np.ptp(list(norms.values())) <= rtol * max(norms.values()):
            continue
        for axis in _ORDER:
            of_line = [norms[rank.rank] for rank in line(holders, axis) if rank.rank in norms]
            if len(of_line) > 1 and np.ptp(of_line) > rtol * max(of_line):
                return axis
        return "every"
    return ""


def _first_parting(records: LegRecords) -> tuple[int | None, list[str], set[str]]:
    """The first step after which replicas differ, whose, and the axes along which their ranks lie."""
    found: dict[int, list[str]] = defaultdict(list)
    axes: set[str] = set()
    for name, every in records.holders.items():
        for holders in _by_box(every):
            ranks = [rank for rank, _ in holders]
            for step in set.intersection(*(set(rank.updates) for rank in ranks)):
                taken = [rank.updates[step].hashes for rank in ranks]
                hashes = [one[r.index[name]] if one else None for one, r in zip(taken, ranks, strict=True)]
                if None in hashes or len(set(hashes)) == 1:
                    continue
                found[step].append(name)
                places = [{a: r.coordinates.get(a) for a in AXES} for r in ranks]
                axes |= {a for a in AXES if len({place[a] for place in places}) > 1}
    if not found:
        return None, [], set()
    step = min(found)
    return step, list(dict.fromkeys(found[step])), axes


def _norms_differ(records: LegRecords, rtol: float) -> bool:
    first, *others = records.ranks
    return any(
        abs(rank.grad_norms[step] - norm) > rtol * abs(norm)
        for rank in others
        for step, norm in first.grad_norms.items()
        if step in rank.grad_norms
    )
