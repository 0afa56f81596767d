"""The logged gradient norm: which wrong sum it is."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy as np

from parity.checks.comparison import Leg
from parity.checks.groups import group_of
from parity.checks.hints.facts import Facts, Hint, median, values_agree
from parity.checks.hints.losses import CONSTANT, constant_logged, judged
from parity.checks.hints.sizes import match, ratio_text, sizes_of
from parity.checks.parameters import recorded
from parity.checks.words import plural
from parity.layout import AXES
from parity.records.record import LegRecords, RankRecord

__all__ = ["logged_norm", "norm_factor", "norm_ratio"]

_Norm = Callable[[LegRecords, int], float]


def logged_norm(facts: Facts) -> Iterator[Hint]:
    """The logged norm is not that of the gradients, and one of the usual wrong sums gives it.

    A rank's own shard (pytorch/torchtitan#766, pytorch/pytorch#170862, ByteDance-Seed/VeOmni#184), experts of other
    ranks left out (NVIDIA-NeMo/Automodel#3816, hpcaitech/ColossalAI#2192, NVIDIA/Megatron-LM#5916), replicas counted
    on every rank (ROCm/TransformerEngine#715, NVIDIA-NeMo/RL#3788, deepspeedai/DeepSpeed#1252,
    pytorch/torchtitan#2318), summed over micro-batches (NVIDIA-NeMo/RL#1426).
    """
    for leg in (facts.candidate, facts.baseline):
        if facts.failed("norm_consistent") and recorded(leg) and leg.records is not None:
            text = _told(facts, leg, leg.records)
            if text:
                yield Hint("grad_norm", text)
                return


def norm_factor(facts: Facts) -> Hint | None:
    """Without records: the gradient norm is one number times the baseline's and the loss agrees, as with gradients
    that Adam scales back (pytorch/torchtune#2172, inclusionAI/AReaL#1273), or a norm that is
    reported wrong (pytorch/torchtitan#2318, #766)."""
    gap = judged(facts, "grad_norm")
    if gap is None or facts.gradients is not None or (gap.baseline <= 0).any():
        return None
    # Later norms are of weights that a wrong gradient has already moved elsewhere.
    ratios = gap.other / gap.baseline
    every = values_agree(ratios, median(ratios), 10 * CONSTANT)
    ratio = median(ratios) if every else float(ratios[0])
    matched = match(ratio, facts.sizes, CONSTANT, ("dp", "fsdp", "dp × fsdp", "tp", "cp", "micro-batches"))
    if matched is None or not (every or facts.first_loss_agrees):
        return None
    when = f"at all {plural(gap.steps.size, 'step')}" if every else f"at step {int(gap.steps[0])}, before any update"
    what = (
        "a norm of each rank's own shard, or one that counts what several ranks hold once for each"
        if abs(matched.power) == 0.5
        else "gradients that are summed where they should be averaged, or the other way round, or a norm that is"
    )
    return Hint(
        "grad_norm",
        f"the gradient norm is {ratio_text(ratio)} times the baseline's {when}: {matched}; looks like {what}",
    )


def norm_ratio(facts: Facts, leg: Leg) -> float | None:
    """Logged over recomputed norm where it is one number other than 1 at every step; else None."""
    if not recorded(leg) or leg.records is None:
        return None
    ratios = np.array([logged / true for _, logged, true in _pairs(leg.records) if true])
    ratio = median(ratios)
    tolerance = 10 * facts.comparison.profile.norm_rtol
    return ratio if values_agree(ratios, ratio, tolerance) and abs(ratio - 1) > tolerance else None


def _told(facts: Facts, leg: Leg, records: LegRecords) -> str:
    pairs = _pairs(records)
    rtol = facts.comparison.profile.norm_rtol
    wrong = [(step, logged, true) for step, logged, true in pairs if abs(logged - true) > rtol * true]
    if not wrong:
        return ""
    ratios = np.array([logged / true for _, logged, true in wrong if true])
    ratio_told = ratio_text(median(ratios)) if ratios.size else "infinite"
    about = (
        f"the norm that {leg.name} logs is {ratio_told} times that of its gradients ({plural(len(wrong), 'step')})"
    )
    for cause, norm in _hypotheses(records).items():
        if all(abs(norm(records, step) - logged) <= 10 * rtol * logged for step, logged, _ in wrong):
            return f"{about}, and equal to {cause}"
    constant = constant_logged(facts, "grad_norm") if leg is facts.candidate else ""
    if constant:
        return constant
    ratio = norm_ratio(facts, leg)
    matched = None
    if ratio is not None:
        names = ("micro-batches", "dp", "fsdp", "tp", "cp")
        matched = match(ratio, sizes_of(facts.baseline, leg), 10 * rtol + CONSTANT, names)
    if matched is None:
        return ""
    how = "summed over" if matched.power > 0 else "divided by the number of"
    return f"{about}: {matched}; looks like the norm that is logged is {how} {matched.size.name}"


def _pairs(records: LegRecords) -> list[tuple[int, float, float]]:
    """Step, logged norm and norm of all gradients, where both are known."""
    logged = records.ranks[0].grad_norms
    steps = set.intersection(*(set(rank.gradients) for rank in records.ranks)) & logged.keys()
    return [(step, logged[step], _root(records.norms("gradients", step).values())) for step in sorted(steps)]


def _hypotheses(records: LegRecords) -> Mapping[str, _Norm]:
    """Wrong sums by what they would be a sign of, the most particular first."""
    split = {name for name, parts in records.distinct.items() if len(parts) > 1}
    experts = {name for name in records.holders if group_of(name, records.holders.keys()) == "experts"}
    first = records.ranks[0]
    own = "the norm of rank 0's own gradients; looks like a norm over the local shard"
    several = [name for name in records.holders if len(records.holders[name]) > len(records.distinct[name])]
    whole = f" ({plural(len(several), 'parameter')}, such as {several[0]})" if several else ""
    found: dict[str, _Norm] = {}
    if experts & split:
        found[
            "the norm without the experts that other ranks hold; looks like it is not summed over the expert"
            " parallel ranks"
        ] = lambda r, step: _root(
            _local(first, step, {name}) if name in experts else norm
            for name, norm in r.norms("gradients", step).items()
        )
    found[own] = lambda _, step: _local(first, step)
    for axis in AXES:
        ranks = _line(records, axis)
        if 1 < len(ranks) < len(records.ranks):
            word = (
                f"the norm with what several {axis} ranks hold counted on each of them{whole}; looks like replicated"
            )
            found[f"{word} parameters are not left out of the sum"] = _over(ranks)
    if several:
        found[
            f"the norm with what several ranks hold counted on each of them{whole}; looks like replicated parameters"
            " are not left out of the sum"
        ] = _over(records.ranks)
    found["the norm without any experts; looks like their norm is not added"] = lambda r, step: _root(
        norm for name, norm in r.norms("gradients", step).items() if name not in experts
    )
    if not split:
        return found
    found["the sum of the ranks' own norms; looks like norms are added where squares should be"] = lambda r, step: (
        sum(_local(rank, step) for rank in r.ranks)
    )
    found["the mean of the ranks' own norms; looks like norms are averaged where squares should be added"] = (
        lambda r, step: sum(_local(rank, step) for rank in r.ranks) / len(r.ranks)
    )
    return found


def _line(records: LegRecords, axis: str) -> tuple[RankRecord, ...]:
    """Rank 0 and those that differ from it on one axis alone."""
    first = records.ranks[0].coordinates
    return tuple(
        rank
        for rank in records.ranks
        if axis in first and all(rank.coordinates.get(a, 0) == at for a, at in first.items() if a not in (axis, "ep"))
    )


def _over(ranks: tuple[RankRecord, ...]) -> _Norm:
    return lambda _, step: _root(_local(rank, step) for rank in ranks)


def _local(rank: RankRecord, step: int, names: Collection[str] | None = None) -> float:
    """Norm of what one rank holds, of all parameters or of some."""
    norms = rank.gradients[step].norms
    at = [i for name, i in rank.index.items() if names is None or name in names]
    return float(np.sqrt(np.nansum(np.square(norms[at])))) if at else 0.0


def _root(norms: Iterable[float]) -> float:
    return float(np.sqrt(sum(norm**2 for norm in norms)))
