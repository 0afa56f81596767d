"""The first optimizer steps, where gradients agree and what they change does not."""

import json
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from parity.checks.hints.facts import Facts, Hint, groups_in, median
from parity.checks.hints.norms import norm_ratio
from parity.checks.hints.sizes import match, ratio_text
from parity.checks.hints.whose import whose
from parity.checks.parameters import Apart, apart, common_steps
from parity.checks.words import number, plural
from parity.records.record import LegRecords

__all__ = ["decayed", "elsewhere", "not_updated", "one_group_moves", "scaled_update"]

# Adam turns gradients that are rounding into updates that are too, so a ratio holds for most parameters only.
_MOST = 0.9
_NEAR = 1e-2
# Beyond so many steps made before, Adam's correction tells one number of steps from the next no more.
_STEPS_BEFORE = 9


def not_updated(facts: Facts) -> Iterator[Hint]:
    """A group of parameters that one leg's optimizer leaves as they are (NVIDIA/Megatron-LM#6048, #4641)."""
    at = facts.updates
    if at is None or facts.differing or not facts.failed("update", "loss", "drift", "grad_norm", "gradients"):
        return
    still = {n for n, one in at.parameters.items() if one.ratio == 0} | set(at.missing)
    moving = {n for n, one in at.parameters.items() if np.isinf(one.ratio)} | set(at.extra)
    legs = (facts.candidate.name, facts.baseline.name)
    for names, (lacks, has) in ((still, legs), (moving, legs[::-1])):
        if names:
            who = whose(facts, names)
            yield Hint(
                "updates",
                f"gradients agree, and {who.told('weights')} are not updated in {lacks} and are in {has}"
                f" ({who.count}: {who.some}); looks like a parameter group that the optimizer skips, or never got",
                frozenset(names),
            )


def scaled_update(facts: Facts) -> Hint | None:
    """Every first update is one number times the baseline's: Adam with steps already made (NVIDIA/Megatron-LM#5974,
    #5976, NVIDIA-NeMo/Automodel#3191), clipping by a wrong norm, another learning rate."""
    found = {n: one for n, one in facts.moved_otherwise.items() if 0 < one.ratio < np.inf}
    if facts.differing or not found or facts.update_step != facts.comparison.first_step:
        return None
    ratios = _ratios(facts, found)
    ratio = median(ratios.values())
    alike = [n for n, r in ratios.items() if abs(r / ratio - 1) <= _NEAR and found[n].cosine > 1 - _NEAR]
    if len(alike) < _MOST * len(found) or abs(ratio - 1) <= 2 * _NEAR:
        return None
    who = whose(facts, found)
    text = f"gradients agree, and the first updates are {ratio_text(ratio)} times the baseline's ({who.count})"
    before = _steps_before(facts.candidate.records, ratio)
    wrong = norm_ratio(facts, facts.candidate) if facts.failed("norm_consistent") else None
    matched = match(ratio, facts.sizes, _NEAR)
    if before:
        text += (
            f", as Adam's bias correction gives after {plural(before, 'step')} already made; looks like the"
            " optimizer's step count is advanced before the first update"
        )
    elif wrong is not None and abs(wrong * ratio - 1) <= _NEAR:
        text += f", and the logged norm is {ratio_text(wrong)} times theirs; looks like clipping by a wrong norm"
    elif matched is not None:
        text += f": {matched}; looks like a learning rate or a clipping factor that is scaled by it"
    else:
        text += "; looks like another learning rate, clipping factor or step count of the optimizer"
    return Hint("updates", text, frozenset(found))


def decayed(facts: Facts) -> Hint | None:
    """Updates that are off by the same vector at two steps, in the parameters that decay: rounding would point
    elsewhere at each step, and weights hardly move from one to the next (dylanyunlon/Neuron_SP#13)."""
    records, steps = facts.records, common_steps(facts.comparison, facts.candidate, "updates")
    failed = facts.failed("update", "loss", "drift", "grad_norm", "control", "gradients")
    if records is None or facts.baseline.records is None or len(steps) < 2 or facts.differing or not failed:
        return None
    off = [_difference(facts, records, step) for step in steps[:2]]
    decays = _decay(records)
    first = apart(facts.comparison, facts.candidate, "updates", steps[0]).parameters
    same: list[tuple[str, float, float]] = []
    other: list[tuple[str, float, float]] = []
    for name, one in first.items():
        if name not in off[0] or name not in off[1]:
            continue
        cosine = _cosine(off[0][name], off[1][name])
        (same if decays.get(name, 0.0) and cosine > 0.9 else other).append((name, one.distance, cosine))
    decaying = [name for name in first if decays.get(name, 0.0)]
    if len(same) < _MOST * len(decaying) or len(same) < 2:
        return None
    near = max((distance for name, distance, _ in other if not decays.get(name, 0.0)), default=0.0)
    distance = median(d for _, d, _ in same)
    if distance <= 4 * near or distance <= 1e-6:
        return None
    return Hint(
        "updates",
        f"gradients agree, and updates are off by the same vector at steps {steps[0]} and {steps[1]} (median cosine"
        f" {median(c for _, _, c in same):.3f}, {number(distance)} relative) in {len(same)} of {len(decaying)}"
        " parameters with weight decay and in none without; looks like weight decay applied twice or not at all",
        frozenset(name for name, _, _ in same),
    )


def one_group_moves(facts: Facts) -> Hint | None:
    """Gradients agree, and only some parameters' first updates do not: another optimizer for a group
    (NVIDIA/Megatron-LM#4641)."""
    if facts.differing or not facts.moved_otherwise or facts.updates is None:
        return None
    names = facts.moved_otherwise
    who = whose(facts, names)
    found = list(names.values())
    if len(names) == len(facts.updates.parameters):
        where = "all parameters'"
    elif len(groups_in(found)) == 1 or who.owner:
        where = f"only {who.owner or who.group}"
    else:
        where = f"{who.count}'"
    return Hint(
        "updates",
        f"gradients and the first loss agree, and {where} first updates do not ({who.count}; median ratio"
        f" {number(median(o.ratio for o in found))}, cosine {median(o.cosine for o in found):.4f}); looks like an"
        " optimizer setting or state: step count, weight decay, learning rate or moments of these",
        frozenset(names),
    )


def elsewhere(facts: Facts) -> Hint | None:
    """Loss, gradients and updates of the first step agree, and what follows does not: state that is no parameter,
    such as a routing bias that is moved by one rank's load (NVIDIA/TransformerEngine#3471), or random numbers."""
    steps = common_steps(facts.comparison, facts.candidate, "gradients") if facts.records is not None else []
    first = facts.comparison.first_step
    if facts.differing or facts.moved_otherwise or not facts.first_loss_agrees or not steps or steps[0] != first:
        return None
    if facts.update_step != first or not facts.passed("initial_state"):
        return None
    if facts.passed("gradients") and not facts.failed("loss", "grad_norm", "drift", "control", "replicas"):
        return None  # gradients of a model that rounding throws about are far apart later, and within its noise
    text = "the first loss, gradients and updates agree"
    wrong: list[Apart] = []
    for step in steps[1:]:
        later = apart(facts.comparison, facts.candidate, "gradients", step).parameters.values()
        wrong = [o for o in later if o.distance > facts.comparison.profile.gradient.later and o.norm >= o.scale]
        if wrong:
            groups = ", ".join(list(groups_in(wrong))[:3])
            text += f", and at step {step} gradients of {plural(len(wrong), 'parameter')} do not ({groups})"
            break
    if not wrong:
        norms = facts.gap("grad_norm")
        logged = norms is not None and norms.relative[0] > facts.comparison.bound("grad_norm").first_rtol
        if not facts.failed("loss", "drift", "control") or facts.failed("norm_consistent") or logged:
            return None
        text += f", as do the gradients of all {plural(len(steps), 'sketched step')}, and the curves part later"
    buffers = list(facts.records.buffer_holders) if facts.records is not None else []
    moved = [name for name in buffers if "bias" in name or "load" in name] or buffers
    what = f", such as {moved[0]}" if moved else ", such as a routing bias, or random numbers"
    rounding = "" if wrong else "rounding that training amplifies, or "
    return Hint("updates", f"{text}; looks like {rounding}state that is no parameter{what}, and is updated otherwise")


def _ratios(facts: Facts, names: Mapping[str, Apart]) -> dict[str, float]:
    """Candidate over baseline by the lengths of the whole sketches: updates' norms may be estimates part by part."""
    assert facts.records is not None
    assert facts.baseline.records is not None
    assert facts.update_step is not None
    mine = facts.records.sketches("updates", facts.update_step)
    theirs = facts.baseline.records.sketches("updates", facts.update_step)
    lengths = {n: float(np.linalg.norm(theirs[n])) for n in names}
    return {n: float(np.linalg.norm(mine[n])) / size for n, size in lengths.items() if size}


def _difference(facts: Facts, records: LegRecords, step: int) -> dict[str, NDArray[np.float64]]:
    assert facts.baseline.records is not None
    theirs = facts.baseline.records.sketches("updates", step)
    return {n: mine - theirs[n] for n, mine in records.sketches("updates", step).items() if n in theirs}


def _cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.dot(a, b)) / size if size else 0.0


def _settings(records: LegRecords | None) -> Iterator[tuple[tuple[str, ...], Mapping[str, object]]]:
    for rank in records.ranks if records is not None else ():
        for group in rank.optimizer:
            yield group.parameters, group.settings


def _decay(records: LegRecords) -> dict[str, float]:
    """Weight decay by parameter, as the optimizer's settings say."""
    found: dict[str, float] = {}
    for names, settings in _settings(records):
        decay = settings.get("weight_decay")
        if isinstance(decay, (int, float)):
            found |= dict.fromkeys(names, float(decay))
    return found


def _steps_before(records: LegRecords | None, ratio: float) -> int:
    """How many steps Adam would have made before, for its first update to be so small; 0 if none fits.

    The first update with zero moments at step count t is sqrt(1 - b2^t) / (1 - b1^t) times (1 - b1) / sqrt(1 - b2) of
    that at t = 1 (Kingma and Ba 2015, algorithm 1).
    """
    first, second = 0.9, 0.999
    for _, settings in _settings(records):
        if "adam" not in str(settings.get("class", "")).lower():
            return 0
        betas = settings.get("betas")
        if isinstance(betas, str):
            try:
                first, second = (float(beta) for beta in json.loads(betas)[:2])
            except (ValueError, TypeError):
                return 0
        break
    if not (0 < first < 1 and 0 < second < 1):
        return 0
    for before in range(1, _STEPS_BEFORE + 1):
        t = before + 1
        expected = np.sqrt((1 - second**t) / (1 - second)) * (1 - first) / (1 - first**t)
        if abs(ratio / expected - 1) <= _NEAR:
            return before
    return 0
