"""Is only what was logged wrong, and what was trained right?"""

import numpy as np

from parity.checks.hints.facts import Facts, median, values_agree
from parity.checks.hints.losses import CONSTANT, WORDS, constant_logged, own_loss
from parity.checks.hints.sizes import match, ratio_text
from parity.checks.parameters import apart, common_steps
from parity.checks.words import number, plural
from parity.records.record import LegRecords

__all__ = ["told"]

# Checks that read nothing but what was logged.
_OF_LOGS = {"loss", "grad_norm", "forward", "drift", "control", "norm_consistent", "trained", "finite"}
# A loss that is off by no more than so many times what the gradients are may be why these are off.
_CLEAR = 10.0


def told(facts: Facts) -> str:
    """A sentence if gradients, updates and weights agree and only a logged metric differs; else empty
    (pytorch/torchtitan#550, huggingface/transformers#13681, ISEEKYAN/Megatron-LM#140, NVIDIA-NeMo/RL#1426)."""
    failed = {name for name in facts.outcomes if facts.failed(name)}
    if facts.records is None or not failed or failed - _OF_LOGS or not facts.passed("gradients", "update"):
        return ""
    metrics = [metric for metric in ("loss", "grad_norm") if _differs(facts, metric)]
    if not metrics or facts.gradients is None or not _beyond(facts) <= set(metrics):
        return ""
    steps = common_steps(facts.comparison, facts.candidate, "gradients")
    hashed = _equal_weights(facts)
    weights = f", and the weights of {plural(hashed, 'parameter')} are equal to the last bit" if hashed else ""
    count = plural(len(facts.gradients.parameters), "parameter")
    names = " and ".join(WORDS[metric] for metric in metrics)
    how = "; ".join(_how(facts, metric) for metric in metrics)
    clipped = "; whether clipping by it trains otherwise, these steps do not tell" if "grad_norm" in metrics else ""
    return (
        f"looks like a reporting bug: gradients and updates of all {count} agree at"
        f" {plural(len(steps), 'sketched step')}{weights}, only the logged {names} differs ({how}){clipped}"
    )


def _beyond(facts: Facts) -> set[str]:
    """The metrics in which any check is beyond what is allowed."""
    found = {"loss"} if facts.failed("loss", "forward") else set()
    found |= {"grad_norm"} if facts.failed("grad_norm", "norm_consistent") else set()
    for check in ("drift", "control"):
        if facts.failed(check):
            found |= {gap.metric for gap in facts.outcomes[check].gaps if (gap.times_allowed or 0) > 1}
    return found


def _differs(facts: Facts, metric: str) -> bool:
    """Whether a metric differs at every step at which the gradients were shown to agree, and by more than they do."""
    gap = facts.comparison.gap(metric)
    if gap is None:
        return False
    bound = facts.comparison.bound(metric)
    allowed = bound.allowed(facts.comparison.updates(gap.steps), gap.scale)
    steps = set(common_steps(facts.comparison, facts.candidate, "gradients"))
    at = np.flatnonzero(np.isin(gap.steps, list(steps)))
    if not at.size:
        return False
    for i in at.tolist():
        if not gap.finite[i]:
            continue
        off = apart(facts.comparison, facts.candidate, "gradients", int(gap.steps[i])).distance
        if gap.absolute[i] <= allowed[i] or gap.relative[i] <= _CLEAR * off:
            return False
    return bool(np.isfinite(gap.baseline[at]).all())


def _how(facts: Facts, metric: str) -> str:
    """In which way a metric differs."""
    constant = constant_logged(facts, metric)
    if constant:
        return f"it is{constant.partition(' is')[2]}".replace("; looks like", ":")
    if metric == "loss" and (own := own_loss(facts)):
        return f"rank 0's own is logged, where ranks have {own}"
    gap = facts.gap(metric)
    if gap is None:
        return "not finite"
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = gap.other / gap.baseline
    ratio = median(ratios)
    if values_agree(ratios, ratio, 10 * CONSTANT):
        ranks = ("dp", "fsdp", "dp × fsdp", "cp", "tp", "pp", "ep")
        matched = match(ratio, facts.sizes, 10 * CONSTANT, ranks)
        if matched is not None and metric == "grad_norm" and abs(matched.power) == 1:
            matched = match(ratio, facts.sizes, 10 * CONSTANT, ("micro-batches",))
        return f"{ratio_text(ratio)} times the baseline's" + (f": {matched}" if matched else "")
    deltas = gap.other - gap.baseline
    if values_agree(deltas, median(deltas), 10 * CONSTANT):
        return f"{number(median(deltas))} more than the baseline's"
    return f"{ratio_text(float(ratios[0]))} times the baseline's at step {int(gap.steps[0])}"


def _equal_weights(facts: Facts) -> int:
    """How many parameters both legs hashed whole after the last step, all of them equal; 0 if any is not."""
    left, right = _final(facts.baseline.records), _final(facts.candidate.records)
    common = left.keys() & right
    return len(common) if all(left[name] == right[name] for name in common) else 0


def _final(records: LegRecords | None) -> dict[str, int]:
    """State hashes of whole parameters after the last step, of those all of whose parts have one."""
    found = {}
    for name, holders in (records.distinct if records is not None else {}).items():
        hashes = [rank.final[rank.index[name]] if rank.final else None for rank, _ in holders]
        if holders and all(one is not None for one in hashes):
            found[name] = sum(one for one in hashes if one is not None) % (1 << 64)
    return found
