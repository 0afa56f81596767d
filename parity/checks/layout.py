"""Was the layout that was asked for really applied? A split that never happened gives a perfect curve."""

from collections import defaultdict
from collections.abc import Callable, Iterator

from parity.checks.comparison import Comparison, Leg
from parity.checks.outcome import Kind, Outcome, Status
from parity.checks.words import plural, spans
from parity.layout import AXES, Layout
from parity.records.record import LegRecords, RankRecord

__all__ = ["check"]


def check(comparison: Comparison) -> Outcome:
    """Hold each leg's layout against what its ranks recorded or, failing that, what its logs say."""
    asked = [leg for leg in comparison.legs() if leg.layout is not None]
    required = _claims_differ(asked)
    problems, proven, unproven = [], [], []
    for leg in asked:
        wrong, source = _leg(leg)
        problems += wrong
        if source:
            proven.append(f"{leg.name} {source}")
        elif leg.layout is not None and leg.layout.world_size > 1:
            unproven.append(leg.name)
    problems += _traits(comparison)
    if problems:
        return Outcome("layout", Kind.PARITY, Status.FAIL, "; ".join(problems), True)
    if not asked:
        return Outcome("layout", Kind.PARITY, Status.NOT_RUN, "nobody said which layouts these are", required)
    if unproven:
        reason = (
            f"nothing shows that {' and '.join(unproven)} ran under the layout asked for: record the model"
            " (recorder.start(model, optimizer)) or give `evidence` patterns"
        )
        if comparison.layout_unproven:
            return Outcome(
                "layout", Kind.PARITY, Status.NOT_RUN, f"{reason}; the suite says `layout: unproven`", False
            )
        return Outcome("layout", Kind.PARITY, Status.NOT_RUN, reason, required)
    return Outcome("layout", Kind.PARITY, Status.PASS, "; ".join(proven) or "every leg has one rank", required)


def _traits(comparison: Comparison) -> list[str]:
    """Modules that compute by another rule than in the baseline, such as a layer that fell back to another router."""
    baseline, problems = comparison.baseline, []
    expected = {
        name: text
        for rank in (baseline.records.ranks if baseline.records else ())
        for name, text in rank.traits.items()
    }
    for leg in comparison.legs():
        for rank in leg.records.ranks if leg.records else ():
            odd = [name for name, text in rank.traits.items() if expected.get(name, text) != text]
            if odd:
                more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
                problems.append(
                    f"{leg.name}: {odd[0]} has {rank.traits[odd[0]]} on rank {rank.rank}, where {baseline.name} has"
                    f" {expected[odd[0]]}{more}"
                )
                break
    return problems


def _claims_differ(legs: list[Leg]) -> bool:
    return len({leg.layout for leg in legs}) > 1 or any(leg.layout and leg.layout.world_size > 1 for leg in legs)


def _leg(leg: Leg) -> tuple[list[str], str]:
    """What contradicts the leg's layout, and by what it was shown; the latter empty if by nothing."""
    assert leg.layout is not None
    problems = [
        f"{leg.name}: its log never says {pattern!r}" for pattern in (leg.evidence.missing if leg.evidence else ())
    ]
    problems += [
        f"{leg.name}: its log says {line!r}, which {pattern!r} forbids"
        for pattern, line in (leg.evidence.forbidden if leg.evidence else ())
    ]
    world = leg.curves.start.get("world_size")
    if isinstance(world, int) and world != leg.layout.world_size:
        problems.append(
            f"{leg.name}: {plural(leg.layout.world_size, 'rank')} asked for ({leg.layout}), {world} recorded"
        )
        return problems, ""
    if leg.records is not None and leg.records.has_model:
        words, wrong = _from_records(leg.records, leg.layout)
        problems += [f"{leg.name}: {problem}" for problem in wrong]
        return problems, f"by its records: {words}"
    if leg.evidence is not None and (leg.evidence.found or leg.evidence.missing):
        return problems, f"by its log: {'; '.join(line for _, line in leg.evidence.found)}"
    return problems, ""


def _from_records(records: LegRecords, layout: Layout) -> tuple[str, list[str]]:
    """What the records show, in words, and what contradicts the layout."""
    world = {rank.world_size for rank in records.ranks}
    if world != {layout.world_size} or len(records.ranks) != layout.world_size:
        ran = f"{len(records.ranks)} of {max(world)}" if len(records.ranks) != max(world) else str(len(records.ranks))
        return "", [f"{plural(layout.world_size, 'rank')} asked for ({layout}), {ran} recorded"]
    shown, problems = [], []
    for axis, size in layout.sizes().items():
        if size == 1:
            continue
        words, wrong = _AXES[axis](records, size)
        shown += words
        problems += wrong
    if layout.world_size == 1:
        shown.append("one rank")
    return ", ".join(shown), problems


def _lines(records: LegRecords, axis: str) -> Iterator[list[RankRecord]]:
    """Ranks that differ in their place on one axis only, in its order; all ranks where places were not recorded."""
    if not all(rank.coordinates for rank in records.ranks):
        yield list(records.ranks)
        return
    # Expert parallelism reuses the ranks of dp, fsdp and cp, so places on these and on ep go together.
    shared = {"ep": ("dp", "fsdp", "cp"), "dp": ("ep",), "fsdp": ("ep",), "cp": ("ep",)}.get(axis, ())
    by_rest = defaultdict(list)
    for rank in records.ranks:
        rest = tuple(rank.coordinates.get(other, 0) for other in AXES if other != axis and other not in shared)
        by_rest[rest].append(rank)
    for ranks in by_rest.values():
        yield sorted(ranks, key=lambda rank: rank.coordinates.get(axis, 0))


def _cut(axis: str, word: str) -> Callable[[LegRecords, int], tuple[list[str], list[str]]]:
    """The check of an axis that cuts parameters into as many parts as it has ranks."""

    def checked(records: LegRecords, size: int) -> tuple[list[str], list[str]]:
        names: set[str] = set()
        example = ""
        for ranks in _lines(records, axis):
            boxes = defaultdict(set)
            for rank in ranks:
                for part in rank.parameters:
                    boxes[part.name].add(part.box)
            cut = [name for name, found in boxes.items() if len(found) == size]
            if not cut:
                return [], [
                    f"asked for {axis}={size}, but no parameter is cut into {size} parts: {word} was not applied"
                ]
            names |= set(cut)
            example = example or f"{cut[0]} as {_extents(ranks, cut[0])}"
        return [f"{axis}={size} cuts {plural(len(names), 'parameter')} ({example})"], []

    return checked


def _extents(ranks: list[RankRecord], name: str) -> str:
    """The sizes of a parameter's parts along the dimension that is cut, such as 96/96/64."""
    parts = [rank.parameters[rank.index[name]] for rank in ranks if name in rank.index]
    varying = [d for d in range(len(parts[0].shape)) if len({(p.start[d], p.stop[d]) for p in parts}) > 1]
    if not varying:
        return "?"
    return "/".join(str(part.stop[varying[0]] - part.start[varying[0]]) for part in parts)


def _pipeline(records: LegRecords, size: int) -> tuple[list[str], list[str]]:
    """Each stage owns some layers, no layer is owned twice, and together they are all."""
    stages: list[set[int]] = []
    everywhere: set[str] = set()
    for ranks in _lines(records, "pp"):
        names = [set(rank.index) for rank in ranks]
        everywhere |= set.intersection(*names) if all(names) else set()
        if len(names) > 1 and all(one == names[0] for one in names):
            return [], [
                f"asked for pp={size}, but every rank holds every layer: pipeline parallelism was not applied"
            ]
        if all(rank.layers is not None for rank in ranks):
            owned = [set(rank.layers or ()) for rank in ranks]
            if any(not one for one in owned):
                return [], [f"asked for pp={size}, but a stage owns no layer"]
            twice = [layer for i, one in enumerate(owned) for other in owned[i + 1 :] for layer in one & other]
            if twice:
                return [], [f"asked for pp={size}, but several stages own layer {spans(sorted(set(twice)))}"]
            together = set.union(*owned)
            missing = set(range(max(together) + 1)) - together
            if missing:
                return [], [f"asked for pp={size}, but no stage owns layer {spans(sorted(missing))}"]
            stages = stages or owned
    told = f" (layers {' | '.join(spans(sorted(one)) for one in stages)})" if stages else ""
    return [f"pp={size} spreads the layers over the stages{told}"], []


def _experts(records: LegRecords, size: int) -> tuple[list[str], list[str]]:
    """Ranks own different experts, each expert module is spread over as many owners as asked for."""
    if not all(rank.experts for rank in records.ranks):
        words, wrong = _cut("ep", "expert parallelism")(records, size)
        named = [rank for rank in records.ranks for part in rank.parameters if "expert" in part.name]
        return (words, wrong) if named else ([], [f"asked for ep={size}, but no rank recorded any expert"])
    owners: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for rank in records.ranks:
        for module, ids in (rank.experts or {}).items():
            owners[module].add(tuple(sorted(ids)))
    whole = [module for module, sets in owners.items() if len(sets) == 1]
    if whole:
        count = len(next(iter(owners[whole[0]])))
        return [], [
            f"asked for ep={size}, but every rank holds all {count} experts of {whole[0]}"
            + (f" and {len(whole) - 1} more" if len(whole) > 1 else "")
            + ": expert parallelism was not applied"
        ]
    wrong = [
        module
        for module, sets in owners.items()
        if len(sets) != size or len(set().union(*sets)) != sum(map(len, sets))
    ]
    if wrong:
        return [], [f"asked for ep={size}, but the experts of {wrong[0]} are not spread over {size} owners once each"]
    example = " | ".join(spans(ids) for ids in sorted(next(iter(owners.values()))))
    return [f"ep={size} spreads the experts of {plural(len(owners), 'module')} ({example})"], []


def _places(axis: str, word: str) -> Callable[[LegRecords, int], tuple[list[str], list[str]]]:
    """The check of an axis that cuts no parameter: only the ranks' recorded places and batches tell."""

    def checked(records: LegRecords, size: int) -> tuple[list[str], list[str]]:
        places = {rank.coordinates.get(axis) for rank in records.ranks}
        if len(places) != size or None in places:
            return [], [
                f"asked for {axis}={size}, but the ranks record {len(places - {None})} places: {word} was not applied"
            ]
        return [f"{axis}={size} by the ranks' recorded places"], []

    return checked


_AXES: dict[str, Callable[[LegRecords, int], tuple[list[str], list[str]]]] = {
    "dp": _places("dp", "data parallelism"),
    "fsdp": _cut("fsdp", "parameter sharding"),
    "tp": _cut("tp", "tensor parallelism"),
    "pp": _pipeline,
    "ep": _experts,
    "cp": _places("cp", "context parallelism"),
}
