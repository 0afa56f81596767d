"""Was the layout that was asked for really applied? A split that never happened gives a perfect curve."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from parity.checks.comparison import Comparison, Leg
from parity.checks.groups import group_of
from parity.checks.outcome import Kind, Outcome, Status
from parity.checks.words import plural, spans
from parity.layout import AXES, Layout, axis_of
from parity.records.record import LegRecords, RankRecord

__all__ = ["check"]

# What was shown, what is wrong, and what nothing shows.
_Answer = tuple[list[str], list[str], list[str]]
_AxisCheck = Callable[[LegRecords, int], _Answer]


def check(comparison: Comparison) -> Outcome:
    """Hold each leg's layout against what its ranks recorded or, failing that, what its logs say."""
    asked = [leg for leg in comparison.legs() if leg.layout is not None]
    required = _claims_differ(asked)
    problems: list[str] = []
    proven: list[str] = []
    unproven: list[str] = []
    for leg in asked:
        found = _leg(leg)
        problems += found.wrong
        unproven += found.unknown
        proven += [f"{leg.name} {found.source}: {'; '.join(found.shown)}"] if found.shown else []
    problems += _traits(comparison)
    if problems:
        return Outcome("layout", Kind.PARITY, Status.FAIL, "; ".join(problems), True)
    if not asked:
        return Outcome("layout", Kind.PARITY, Status.NOT_RUN, "nobody said which layouts these are", required)
    if unproven:
        reason = "; ".join(unproven)
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


@dataclass
class _Found:
    """What is known of a leg's layout.

    Attributes:
        source: where it is known from.
        shown: what was shown, in words.
        wrong: what contradicts the layout.
        unknown: what was asked for and nothing shows.
    """

    source: str = ""
    shown: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def _leg(leg: Leg) -> _Found:
    """What is known of one leg's layout: by its records or, failing them, by its logs."""
    assert leg.layout is not None
    found = _Found()
    if leg.evidence is not None:
        found.wrong += [f"{leg.name}: its log never says {pattern!r}" for pattern in leg.evidence.missing]
        found.wrong += [
            f"{leg.name}: its log says {line!r}, which {pattern!r} forbids"
            for pattern, line in leg.evidence.forbidden
        ]
    worlds = {rank.world_size for rank in leg.records.ranks} if leg.records else set()
    started = leg.curves.start.get("world_size")
    worlds |= {started} if isinstance(started, int) else set()
    if worlds - {leg.layout.world_size}:
        ran = " and ".join(map(str, sorted(worlds)))
        found.wrong.append(
            f"{leg.name}: {plural(leg.layout.world_size, 'rank')} asked for ({leg.layout}), {ran} recorded"
        )
        return found
    if leg.records is not None and leg.records.has_model and len(leg.records.ranks) == leg.layout.world_size:
        found.source = "by its records"
        _from_records(leg.name, leg.records, leg.layout, found)
        if found.unknown and leg.evidence is not None and leg.evidence.found and not leg.evidence.missing:
            # What records do not show, the log does.
            found.unknown = []
            found.shown += [f"its log says {line!r}" for _, line in leg.evidence.found]
    elif leg.evidence is not None and (leg.evidence.found or leg.evidence.missing):
        found.source, found.shown = "by its log", [line for _, line in leg.evidence.found]
    elif leg.layout.world_size > 1:
        found.unknown.append(
            f"nothing shows that {leg.name} ran under the layout asked for: record the model"
            " (recorder.start(model, optimizer)) or give `evidence` patterns"
        )
    return found


def _from_records(name: str, records: LegRecords, layout: Layout, found: _Found) -> None:
    for axis, size in layout.sizes().items():
        if size == 1:
            continue
        words, wrong, unknown = _AXES[axis](records, size)
        found.shown += words
        found.wrong += [f"{name}: {problem}" for problem in wrong]
        found.unknown += [f"{name}: {missing}" for missing in unknown]
    if layout.world_size == 1:
        found.shown.append("one rank")


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


def _cuts(ranks: list[RankRecord], axis: str, size: int, only: Callable[[str], bool]) -> list[str]:
    """Parameters that the ranks of a line hold in as many parts, unless another axis is known to cut them."""
    boxes = defaultdict(set)
    axes: dict[str, set[str]] = defaultdict(set)
    for rank in ranks:
        for part in rank.parameters:
            boxes[part.name].add(part.box)
            axes[part.name] |= {axis_of(name) for joined in part.split.values() for name in joined.split("+")}
    return [
        name
        for name, found in boxes.items()
        if len(found) == size and only(name) and (axis in axes[name] or not axes[name] - {""})
    ]


def _cut(axis: str, word: str) -> _AxisCheck:
    """The check of an axis that cuts parameters into as many parts as it has ranks."""

    def checked(records: LegRecords, size: int) -> _Answer:
        names: set[str] = set()
        example = ""
        for ranks in _lines(records, axis):
            cut = _cuts(ranks, axis, size, lambda _: True)
            if not cut:
                wrong = f"no parameter is cut into {size} parts by {axis}: {word} was not applied"
                return [], [f"asked for {axis}={size}, but {wrong}"], []
            names |= set(cut)
            example = example or f"{cut[0]} as {_extents(ranks, cut[0])}"
        return [f"{axis}={size} cuts {plural(len(names), 'parameter')} ({example})"], [], []

    return checked


def _extents(ranks: list[RankRecord], name: str) -> str:
    """The sizes of a parameter's parts along the dimension that is cut, such as 96/96/64."""
    parts = [rank.parameters[rank.index[name]] for rank in ranks if name in rank.index]
    varying = [d for d in range(len(parts[0].shape)) if len({(p.start[d], p.stop[d]) for p in parts}) > 1]
    if not varying:
        return "?"
    return "/".join(str(part.stop[varying[0]] - part.start[varying[0]]) for part in parts)


def _pipeline(records: LegRecords, size: int) -> _Answer:
    """Each stage owns some layers, no layer is owned twice, and together they are all."""
    stages: list[set[int]] = []
    for ranks in _lines(records, "pp"):
        names = [set(rank.index) for rank in ranks]
        if len(names) != size or any(one == other for i, one in enumerate(names) for other in names[:i]):
            wrong = f"asked for pp={size}, but every rank holds every layer: pipeline parallelism was not applied"
            return [], [wrong], []
        if any(rank.layers is None for rank in ranks):
            continue
        owned = [set(rank.layers or ()) for rank in ranks]
        if any(not one for one in owned):
            return [], [f"asked for pp={size}, but a stage owns no layer"], []
        twice = [layer for i, one in enumerate(owned) for other in owned[i + 1 :] for layer in one & other]
        if twice:
            return [], [f"asked for pp={size}, but several stages own layer {spans(sorted(set(twice)))}"], []
        together = set.union(*owned)
        missing = set(range(max(together) + 1)) - together
        if missing:
            return [], [f"asked for pp={size}, but no stage owns layer {spans(sorted(missing))}"], []
        stages = stages or owned
    if not stages:
        return [f"pp={size}: every stage holds other parameters; which layers it owns was not recorded"], [], []
    return (
        [f"pp={size} spreads the layers over the stages (layers {' | '.join(spans(sorted(s)) for s in stages)})"],
        [],
        [],
    )


def _experts(records: LegRecords, size: int) -> _Answer:
    """Ranks own different experts, and each expert module is spread over as many owners as asked for."""
    holders = [rank for rank in records.ranks if any(group_of(part.name) == "experts" for part in rank.parameters)]
    if not holders and not any(rank.experts for rank in records.ranks):
        return [], [], [f"asked for ep={size}, but no rank recorded any expert"]
    if not all(rank.experts for rank in holders):
        # Without ownership a cut counts only if it is said to be ep's: other axes cut experts too.
        by_ep = {
            part.name for rank in holders for part in rank.parameters if "ep" in map(axis_of, part.split.values())
        }
        cut = [_cuts(ranks, "ep", size, lambda name: name in by_ep) for ranks in _lines(records, "ep")]
        if cut and all(cut):
            return [f"ep={size} cuts {plural(len(set().union(*cut)), 'parameter')} of experts ({cut[0][0]})"], [], []
        return [], [], [f"ep={size} is not shown: give recorder.start the experts that each rank owns (experts=...)"]
    owners: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for rank in holders:
        for module, ids in (rank.experts or {}).items():
            owners[module].add(tuple(sorted(ids)))
    whole = [module for module, sets in owners.items() if len(sets) == 1]
    if whole:
        count = len(next(iter(owners[whole[0]])))
        more = f" and {len(whole) - 1} more" if len(whole) > 1 else ""
        wrong = f"every rank holds all {count} experts of {whole[0]}{more}: expert parallelism was not applied"
        return [], [f"asked for ep={size}, but {wrong}"], []
    for module, sets in owners.items():
        if len(sets) != size or len(set().union(*sets)) != sum(map(len, sets)):
            wrong = f"the experts of {module} are not spread over {size} owners once each"
            return [], [f"asked for ep={size}, but {wrong}"], []
    example = " | ".join(spans(ids) for ids in sorted(next(iter(owners.values()))))
    return [f"ep={size} spreads the experts of {plural(len(owners), 'module')} ({example})"], [], []


def _places(axis: str, word: str) -> _AxisCheck:
    """The check of an axis that cuts no parameter: only the ranks' recorded places and batches tell."""

    def checked(records: LegRecords, size: int) -> _Answer:
        places = {rank.coordinates.get(axis) for rank in records.ranks}
        if places == {None}:
            return (
                [],
                [],
                [f"{axis}={size} is not shown: give recorder.start its place, coordinates={{{axis!r}: ...}}"],
            )
        if len(places) != size or None in places:
            wrong = (
                f"asked for {axis}={size}, but the ranks record {len(places - {None})} places: {word} was not applied"
            )
            return [], [wrong], []
        return [f"{axis}={size} by the ranks' recorded places"], [], []

    return checked


_AXES: dict[str, _AxisCheck] = {
    "dp": _places("dp", "data parallelism"),
    "fsdp": _cut("fsdp", "parameter sharding"),
    "tp": _cut("tp", "tensor parallelism"),
    "pp": _pipeline,
    "ep": _experts,
    "cp": _places("cp", "context parallelism"),
}
