"""Runs that cannot agree or mean nothing: another start, other samples, no training, NaN."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from parity.checks.comparison import Leg
from parity.checks.hints.facts import Facts, Hint, line
from parity.checks.hints.sizes import RANKS
from parity.checks.parameters import recorded
from parity.checks.words import number, plural
from parity.records.record import LegRecords

__all__ = ["not_applied", "not_finite", "not_training", "other_samples", "other_start"]

_MODULUS = 1 << 64


def other_start(facts: Facts) -> Hint | None:
    """Whose first weights differ: copies on some ranks (pytorch/torchtitan#166, allenai/OLMo-core#319), or what an
    axis cuts alone (modelscope/ms-swift#7944, Modalities/modalities#426)."""
    baseline, candidate = facts.baseline.records, facts.candidate.records
    if not facts.failed("initial_state") or baseline is None or candidate is None:
        return None
    if not (recorded(facts.baseline) and recorded(facts.candidate)):
        return None
    if facts.baseline.curves.environment.get("dtype") != facts.candidate.curves.environment.get("dtype"):
        return None  # the check says so, and values of two dtypes have other bits
    copies = _copies_apart(candidate)
    if copies:
        axis, names = max(copies.items(), key=lambda item: len(item[1]))
        ranks = RANKS.get(axis, "some ranks")
        return Hint(
            "start",
            f"{ranks} start from other copies of {len(names)} of {plural(len(candidate.holders), 'parameter')};"
            " looks like each draws its weights from a seed of its own, or weights are not broadcast",
        )
    common = [name for name in baseline.distinct if name in candidate.distinct]
    other = [name for name in common if baseline.state_hash(name) != candidate.state_hash(name)]
    split = [name for name in common if len(candidate.distinct[name]) > 1]
    if not other:
        return None
    counts = f"{len(other)} of {plural(len(common), 'parameter')}"
    if len(other) < len(common) and set(other) <= set(split):
        axis = next((a for a in ("tp", "fsdp", "ep") if facts.size(a) > 1), "")
        return Hint(
            "start",
            f"only parameters that ranks split start with other values ({counts}), and those that ranks hold whole"
            f" are the same; looks like {RANKS.get(axis, 'the ranks')} fill their shards from one seed, or each from"
            " its own",
        )
    if len(other) * 2 > len(common):
        return Hint("start", f"{counts} start with other values; looks like another seed or another checkpoint")
    return None


def other_samples(facts: Facts) -> Hint | None:
    """The candidate, or some of its ranks, have the samples of another step (NVIDIA-NeMo/Megatron-Bridge#5944), all
    ranks have the same (huggingface/accelerate#3092), or none has the baseline's."""
    baseline, candidate = facts.baseline.records, facts.candidate.records
    if not facts.failed("same_data") or baseline is None or candidate is None:
        return None
    if any(word in facts.reason("same_data") for word in ("other global batch", "other number of micro-batches")):
        return None  # another setting, and no other sampler
    wanted, mine = _batches(baseline), _batches(candidate)
    ranks = sorted({place for of_step in mine.values() for place in of_step})
    steps = sorted(wanted.keys() & mine.keys())
    if len(ranks) > 1 and steps and all(len(set(mine[step].values())) == 1 for step in steps):
        return Hint(
            "start",
            f"all {len(ranks)} data parallel ranks train on the same samples at {plural(len(steps), 'step')}; looks"
            " like a sampler that does not know its rank",
        )
    for shift in (1, -1):
        for late in [ranks, ranks[1:], *([rank] for rank in ranks)]:
            if not late:
                continue
            # A rank that is a step ahead had one step earlier what it should have now.
            both = [s for s in wanted if s in mine and s - shift in mine and s > min(wanted)]
            sums = {s: _sum(mine[s - shift if rank in late else s].get(rank, 0) for rank in ranks) for s in both}
            if both and all(sums[s] == _sum(wanted[s].values()) for s in both):
                who = "all ranks" if len(late) == len(ranks) else f"{len(late)} of {len(ranks)} data parallel ranks"
                way = "ahead of" if shift > 0 else "behind"
                return Hint(
                    "start",
                    f"{who} train on samples a step {way} the baseline's at {plural(len(both), 'step')}; looks like"
                    " one batch too many or too few is drawn before the first step",
                )
    wrong = [step for step in steps if _sum(mine[step].values()) != _sum(wanted[step].values())]
    if len(wrong) < 2 or len(wrong) < len(steps):
        return None
    seeds = "a seed of its own on each rank, or another order" if len(ranks) > 1 else "another seed or order"
    return Hint("start", f"samples are others at all {plural(len(steps), 'step')}; looks like {seeds} in the sampler")


def not_training(facts: Facts) -> Hint | None:
    """No weight moves in a leg though gradients are there: a learning rate of 0, or an optimizer that is not called
    (NVIDIA-NeMo/Automodel#3701)."""
    still = []
    for leg in (facts.baseline, facts.candidate):
        records = leg.records
        if records is None or not records.has_model:
            continue
        steps = records.sketched_steps("updates")
        norms = [norm for step in steps for norm in records.norms("updates", step).values()]
        if norms and not any(norms):
            still.append(leg.name)
    if not still:
        return None
    return Hint(
        "start",
        f"no weight of {' or of '.join(still)} moves at any sketched step; looks like a learning rate of 0, or an"
        " optimizer that is never called or holds other parameters",
    )


def not_applied(facts: Facts) -> Hint | None:
    """Curves that are equal to the last bit though sums are taken in another order (NVIDIA-NeMo/Automodel#2244,
    #2983). Pipeline stages and experts may leave every sum as it was."""
    gap = facts.gap("loss")
    axes = [axis for axis in ("tp", "cp") if facts.size(axis) > 1]
    if facts.passed("layout") or gap is None or gap.steps.size < 2 or not axes:
        return None
    if not np.array_equal(gap.baseline, gap.other) or (gap.resolution > 1e-9 * gap.scale).any():
        return None
    if facts.baseline.layout == facts.candidate.layout:
        return None
    sizes = ", ".join(f"{axis} = {facts.size(axis)}" for axis in axes)
    return Hint(
        "start",
        f"both losses are equal to the last bit at all {plural(gap.steps.size, 'step')}, as sums split by {sizes}"
        " hardly are; looks like the layout is not applied",
    )


def not_finite(facts: Facts) -> Iterator[Hint]:
    """NaN or infinity: from which step, in which leg, and whether loss or gradient came first
    (bigscience-workshop/Megatron-DeepSpeed#396, huggingface/transformers#48205, pytorch/pytorch#106395)."""
    starts = {leg.name: _first_bad(leg) for leg in (facts.baseline, facts.candidate)}
    bad = {name: found for name, found in starts.items() if found}
    if not bad:
        return
    name, (step, metrics, before) = min(bad.items(), key=lambda item: item[1][0])
    from_step = f"step {step} on, first in {' and '.join(metrics)}"
    if len(bad) == 2 and len({found[0] for found in bad.values()}) == 1:
        yield Hint(
            "finite",
            f"both legs are NaN or infinite from {from_step}; looks like the training itself, not the layout",
        )
        return
    where = "backward" if metrics == ["grad_norm"] else "forward, or the update before it"
    other = next(leg.name for leg in (facts.baseline, facts.candidate) if leg.name != name)
    later = f"; {other} follows at step {bad[other][0]}" if other in bad else f", and those of {other} never are"
    yield Hint(
        "finite",
        f"values of {name} are NaN or infinite from {from_step}{before}{later}; looks like an overflow or a division"
        f" by zero in the {where}",
    )


def _copies_apart(records: LegRecords) -> dict[str, list[str]]:
    """Parameters of whose parts ranks start with other copies, by the axis along which these ranks lie."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, holders in records.holders.items():
        for axis in ("dp", "fsdp", "tp", "cp", "ep", "pp", "every"):
            here = {rank.rank for rank in line([h for h in holders if h[1].box == holders[0][1].box], axis)}
            hashes = {part.hash for rank, part in holders if rank.rank in here and part.box == holders[0][1].box}
            if len(hashes) > 1:
                found[axis].append(name)
                break
    return found


def _batches(records: LegRecords) -> dict[int, dict[tuple[int, ...], int]]:
    """By step and place on the axes that deal samples out, the hash of the samples."""
    found: dict[int, dict[tuple[int, ...], int]] = defaultdict(dict)
    for rank in records.ranks:
        place = tuple(rank.coordinates.get(axis, 0) for axis in ("dp", "fsdp"))
        for step, batch in rank.batches.items():
            found[step].setdefault(place, batch.hash)
    return found


def _sum(hashes: Iterable[int]) -> int:
    return sum(hashes) % _MODULUS


def _first_bad(leg: Leg) -> tuple[int, list[str], str] | None:
    """The first step that is not finite, in which metrics, and how the gradient norm stood before."""
    first: dict[str, int] = {}
    for metric in ("loss", "grad_norm"):
        curve = leg.curve(metric)
        bad: NDArray[np.int64] = np.array([], np.int64) if curve is None else curve.steps[~np.isfinite(curve.values)]
        if bad.size:
            first[metric] = int(bad[0])
    if not first:
        return None
    step = min(first.values())
    norm = leg.curve("grad_norm")
    before = ""
    if norm is not None and (at := np.flatnonzero(norm.steps < step)).size:
        before = f" (gradient norm {number(float(norm.values[at[-1]]))} at step {int(norm.steps[at[-1]])})"
    return step, [metric for metric, one in first.items() if one == step], before
