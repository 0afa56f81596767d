"""Do both legs start from the same weights, buffers and optimizer settings, whatever the sharding?"""

from collections.abc import Mapping
from dataclasses import replace

from parity.checks.comparison import Comparison, Leg
from parity.checks.outcome import Kind, Outcome, Status
from parity.checks.words import plural, spans
from parity.records.record import Holders, LegRecords

__all__ = ["check"]

_NAMED = 3
_HOW = {"foreach", "fused", "capturable", "differentiable"}
"""Settings of torch's optimizers that choose a kernel for the same update, as frameworks do for sharded tensors."""


def check(comparison: Comparison) -> Outcome:
    """Compare state hashes of whole parameters, which do not depend on how they are cut; no tolerance.

    Within each leg, ranks that hold the same part must hold the same bits, and the parts must cover the whole.
    """
    legs = (comparison.baseline, comparison.candidate)
    recorded = [leg for leg in legs if leg.records is not None and leg.records.has_model]
    required = bool(recorded)

    def outcome(status: Status, reason: str) -> Outcome:
        return Outcome("initial_state", Kind.COMPARABILITY, status, reason, required)

    dtypes = [str(leg.curves.environment.get("dtype")) for leg in legs]
    if None not in (leg.curves.environment.get("dtype") for leg in legs) and dtypes[0] != dtypes[1]:
        return Outcome(
            "initial_state",
            Kind.COMPARABILITY,
            Status.FAIL,
            f"{legs[0].name} ran in {dtypes[0]}, {legs[1].name} in {dtypes[1]}",
        )
    if len(recorded) < 2:
        names = f"only {recorded[0].name}" if recorded else "neither leg"
        return outcome(Status.NOT_RUN, f"{names} recorded its initial state")
    apart = [problem for leg in legs for problem in _within(leg)]
    problems = apart + _between(comparison)
    if apart:
        # Ranks of one leg that start apart are that layout's fault, and no other start.
        return replace(outcome(Status.FAIL, "; ".join(problems)), kind=Kind.PARITY)
    if problems:
        return outcome(Status.FAIL, "; ".join(problems))
    assert comparison.baseline.records is not None
    records = comparison.baseline.records
    return replace(_passed(comparison, records), required=required)


def _passed(comparison: Comparison, records: LegRecords) -> Outcome:
    candidate = comparison.candidate.records
    assert candidate is not None
    pairs = zip(records.ranks, candidate.ranks, strict=False)
    # Layouts of other size seed their ranks otherwise on purpose; without dropout it changes nothing.
    same_size = len(records.ranks) == len(candidate.ranks)
    odd = [a.rank for a, b in pairs if a.rng != b.rng] if same_size else []
    warnings = (f"the random state differs on rank {spans(odd)}",) if odd else ()
    return Outcome(
        "initial_state",
        Kind.COMPARABILITY,
        Status.PASS,
        f"{plural(len(records.holders), 'parameter')} and {plural(len(records.buffer_holders), 'buffer')} equal to"
        " the last bit, optimizer settings equal" + (", random states equal" if same_size and not odd else ""),
        warnings=warnings,
    )


def _within(leg: Leg) -> list[str]:
    assert leg.records is not None
    problems = []
    for kind, all_holders in (("parameter", leg.records.holders), ("buffer", leg.records.buffer_holders)):
        differing = [name for name, holders in all_holders.items() if _replicas_differ(holders)]
        if differing:
            problems.append(f"{leg.name}: ranks start with different copies of {_list(kind, differing)}")
    gaps = [name for name, holders in leg.records.distinct.items() if not _covers(holders)]
    if gaps and len(leg.records.ranks) == leg.records.ranks[0].world_size:
        problems.append(f"{leg.name}: the ranks' parts leave gaps or overlap in {_list('parameter', gaps)}")
    return problems


def _replicas_differ(holders: Holders) -> bool:
    hashes: dict[object, int] = {}
    return any(hashes.setdefault(part.box, part.hash) != part.hash for _, part in holders)


def _covers(distinct: Holders) -> bool:
    """Whether parts that differ add up to the whole; a tensor without elements has none."""
    sizes = [part.size for _, part in distinct]
    whole = distinct[0][1].whole_size if distinct else 0
    return sum(sizes) == whole


def _between(comparison: Comparison) -> list[str]:
    a, b = comparison.baseline, comparison.candidate
    assert a.records is not None
    assert b.records is not None
    problems = []
    for kind, left, right in (
        ("parameter", a.records.holders, b.records.holders),
        ("buffer", a.records.buffer_holders, b.records.buffer_holders),
    ):
        for leg, only in ((a, left.keys() - right), (b, right.keys() - left)):
            if only:
                problems.append(f"only {leg.name} has {_list(kind, sorted(only))}")
        common = [name for name in left if name in right]
        dtypes = [name for name in common if _dtype(left[name]) != _dtype(right[name])]
        shapes = [name for name in common if _shape(left[name]) != _shape(right[name])]
        if shapes:
            problems.append(f"other shape of {_list(kind, shapes)}")
        if dtypes:
            first = dtypes[0]
            problems.append(
                f"other dtype of {_list(kind, dtypes)}: {_dtype(left[first])} against {_dtype(right[first])}"
            )
        values = [
            name
            for name in common
            if name not in dtypes and name not in shapes and _hash(left[name]) != _hash(right[name])
        ]
        if values:
            problems.append(f"other initial values of {_list(kind, values)}")
    return problems + _optimizers(a.records, b.records)


def _hash(holders: Holders) -> int:
    return sum({part.box: part.hash for _, part in holders}.values()) % (1 << 64)


def _dtype(holders: Holders) -> str:
    return holders[0][1].dtype if holders else ""


def _shape(holders: Holders) -> tuple[int, ...]:
    return holders[0][1].shape if holders else ()


def _list(kind: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{plural(len(names), kind)} ({', '.join(names[:_NAMED])}{more})"


def _optimizers(a: LegRecords, b: LegRecords) -> list[str]:
    """Settings that differ for a parameter that both legs train, each setting once."""
    left, right = _settings(a), _settings(b)
    problems: dict[str, str] = {}
    for name in left.keys() & right:
        for key in left[name].keys() | right[name].keys():
            mine, theirs = left[name].get(key), right[name].get(key)
            if mine != theirs:
                problems.setdefault(key, f"other optimizer setting {key}: {mine} against {theirs} ({name})")
    return [problems[key] for key in sorted(problems)]


def _settings(records: LegRecords) -> dict[str, Mapping[str, object]]:
    return {
        name: {
            **{key: value for key, value in group.settings.items() if key not in _HOW},
            "steps made before": group.state_step,
        }
        for rank in records.ranks
        for group in rank.optimizer
        for name in group.parameters
    }
