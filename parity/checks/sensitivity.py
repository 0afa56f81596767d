"""What would this comparison still have caught? From the recorded curves and sketches alone, in closed form.

A change is injected on paper: the candidate's gradients times a constant, or its loss plus a constant, at every step
alike; what training would make of it afterwards is left out. "Caught" means not green, that is beyond what is
allowed, be it a fail or inconclusive; and caught whichever way the change goes, on top of the gap that is there, and
after values were rounded as the log rounds them. Not counted on is what might be seen beside: after the evidence
horizon, by `update` and `reference`, and by `drift` of a single group's gradients.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from parity.checks.bound_warnings import warnings
from parity.checks.comparison import Comparison
from parity.checks.parameters import recorded
from parity.checks.smallest import Seen, by_factor, by_mean, by_offset, by_parameter, limits, not_sketched, shares
from parity.checks.words import number

__all__ = ["Least", "Sensitivity", "describe", "sensitivity", "warnings"]

_LOSS_ONLY = "loss only: no gradient error would have been seen at the first step"
_NOT_EVEN_ZERO = "not even gradients of zero would have been beyond what is allowed"

# Groups named in a line, the least visible first.
_NAMED = 2


@dataclass(frozen=True)
class Least:
    """The smallest change that would have been caught whichever way it goes.

    Attributes:
        size: of the change; 0 where the legs are beyond what is allowed as they are, None where no size is caught.
        check: which check would have caught it.
        step: at which step; None where the check takes all later steps together (`drift`).
        reason: why nothing would have caught it, if nothing would.
    """

    size: float | None = None
    check: str = ""
    step: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Sensitivity:
    """What a comparison would have caught.

    Attributes:
        gradient_factor: e, all gradients times 1 + e or 1 - e.
        group_factors: the same for the gradients of one group of parameters alone, by group, least visible first.
        groups_reason: why there are no groups, if there are none.
        loss_offset: absolute, added to the loss or taken from it.
        loss_relative: the same in units of the baseline's first loss.
    """

    gradient_factor: Least
    group_factors: Mapping[str, Least]
    groups_reason: str
    loss_offset: Least
    loss_relative: float | None


@np.errstate(all="ignore")
def sensitivity(comparison: Comparison) -> Sensitivity:
    """The smallest factors on gradients and the smallest offset of the loss that would not have been green.

    A factor of all gradients scales the gradient norm and every sketch. A factor of one group's scales its own
    sketches, and the norm by the group's part in it. An offset moves the loss of each step, and no gradient.
    """
    norms, sketched = limits(comparison, "grad_norm"), by_parameter(comparison)
    factor = _least(
        [*map(by_factor, norms), sketched, *by_mean(comparison, "grad_norm")], _blind(comparison), _NOT_EVEN_ZERO
    )
    groups = {
        group: _least(
            [sketched.of_group(group), *(by_factor(one, share) for one in norms)],
            "its gradients are in no step that is judged",
            _NOT_EVEN_ZERO,
        )
        for group, share in shares(comparison, norms[0].gap if norms else None).items()
    }
    offset = _least(
        [*map(by_offset, limits(comparison, "loss")), *by_mean(comparison, "loss")],
        _not_judged(comparison, "loss"),
        "no offset would have been beyond what is allowed",
    )
    least_visible = sorted(groups, key=lambda group: -_size(groups[group]))
    return Sensitivity(
        gradient_factor=factor,
        group_factors={group: groups[group] for group in least_visible},
        groups_reason="" if groups else "no leg recorded gradients by parameter",
        loss_offset=offset,
        loss_relative=_of_first(comparison, offset.size),
    )


def describe(found: Sensitivity) -> str:
    """One line for a report."""
    groups = list(found.group_factors.items())
    named = [("all gradients", found.gradient_factor)]
    named += [(_whose(group), one) for group, one in groups if one.size is not None][:_NAMED]
    loss = "" if found.loss_relative is None else f"{number(found.loss_relative)} of the first; "
    told = [f"{what} × 1 ± {number(one.size)} ({_where(one)})" for what, one in named if one.size]
    if found.loss_offset.size:
        told.append(f"the loss ± {number(found.loss_offset.size)} ({loss}{_where(found.loss_offset)})")
    everything = [*named, ("the loss", found.loss_offset)]
    already = [f"{what} ({_where(one)})" for what, one in everything if one.size == 0]
    blind = [("a factor of all gradients", found.gradient_factor), ("an offset of the loss", found.loss_offset)]
    blind += [(f"a factor of {_whose(group)}", one) for group, one in groups]
    missed = [f"{what} ({one.reason})" for what, one in blind if one.size is None]
    if not groups and found.gradient_factor.size is not None:
        missed.append(f"a factor of one group's gradients ({found.groups_reason})")
    parts = [("would have caught: ", told), ("beyond what is allowed as they are: ", already)]
    parts.append(("would not have caught: ", missed))
    return "; ".join(title + ", ".join(items) for title, items in parts if items)


def _size(one: Least) -> float:
    return np.inf if one.size is None else one.size


def _least(seen: Iterable[Seen], blind: str, never: str) -> Least:
    """The worse of the two directions, each where it is seen soonest.

    Args:
        seen: by check; of equals the first is named.
        blind: the reason where no check looked.
        never: the reason where one looked, and no size is beyond what it allows.
    """
    looked = [one for one in seen if one.up.size]
    if not looked:
        return Least(reason=blind)
    directions = []
    for direction in ("up", "down"):
        soonest = [(one, getattr(one, direction)) for one in looked]
        one, sizes = min(soonest, key=lambda pair: float(pair[1].min()))
        at = int(np.argmin(sizes))
        directions.append(Least(float(sizes[at]), one.check, None if one.steps is None else int(one.steps[at])))
    worst = max(directions, key=_size)
    return Least(reason=never) if np.isinf(_size(worst)) else worst


def _blind(comparison: Comparison) -> str:
    """Why nothing was said of gradients at all."""
    legs = (comparison.baseline, comparison.candidate)
    if comparison.metrics() == ("loss",) and not any(map(recorded, legs)):
        return _LOSS_ONLY
    return f"{_not_judged(comparison, 'grad_norm')}, and {not_sketched(comparison)}"


def _not_judged(comparison: Comparison, metric: str) -> str:
    """Why no step of a metric was judged."""
    lacking = [leg.name for leg in (comparison.baseline, comparison.candidate) if leg.curve(metric) is None]
    if lacking:
        return f"neither leg logs {metric}" if len(lacking) > 1 else f"{lacking[0]} does not log {metric}"
    if comparison.shift:
        return "the legs count their steps from different numbers"
    gap = comparison.gap(metric)
    if gap is None:
        return f"the legs have no step of {metric} in common"
    return f"{metric} is finite in both legs at no step" + (" that is judged" if gap.finite.any() else "")


def _of_first(comparison: Comparison, offset: float | None) -> float | None:
    gap = comparison.gap("loss")
    if offset is None or gap is None or not gap.finite.any():
        return None
    first = abs(float(gap.baseline[gap.finite][0]))
    return offset / first if first else None


def _whose(group: str) -> str:
    return "gradients of other parameters" if group == "other" else f"gradients of {group}"


def _where(one: Least) -> str:
    return one.check if one.step is None else f"{one.check}, step {one.step}"
