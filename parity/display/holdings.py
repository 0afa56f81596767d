"""What each rank of a leg holds, as it recorded: layers, experts, and parts of parameters. Pure."""

from collections import defaultdict

from parity.checks.groups import GROUPS, group_of
from parity.layout import axis_of
from parity.records.record import LegRecords, RankRecord
from parity.result.drawn import ExpertsResult, PartResult, RankResult, ShardedResult

__all__ = ["holdings", "sharded"]

# Enough to see the pattern of any layout that is tested on a machine or two.
_MOST_RANKS = 64
_MOST_SETS = 8


def holdings(records: LegRecords | None) -> list[RankResult]:
    """Every rank's share of the model; empty where no model was recorded."""
    if records is None or not records.has_model:
        return []
    return [
        RankResult(
            rank=rank.rank,
            coordinates=dict(rank.coordinates),
            elements=sum(part.size for part in rank.parameters),
            layers=None if rank.layers is None else sorted(rank.layers),
            experts=_experts(rank),
        )
        for rank in records.ranks[:_MOST_RANKS]
    ]


def _experts(rank: RankRecord) -> list[ExpertsResult]:
    """The rank's experts; modules of which it holds the same ones are told together."""
    modules: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for module, experts in (rank.experts or {}).items():
        modules[tuple(sorted(experts))].append(module)
    return [
        ExpertsResult(modules=len(names), first=names[0], experts=list(experts))
        for experts, names in list(modules.items())[:_MOST_SETS]
    ]


def sharded(records: LegRecords | None) -> list[ShardedResult]:
    """Of each group of parameters the first that ranks hold different parts of."""
    if records is None or not records.has_model:
        return []
    ranks = records.ranks[:_MOST_RANKS]
    names = {name for rank in records.ranks for name in rank.index}
    found: dict[str, ShardedResult] = {}
    for name in dict.fromkeys(name for rank in ranks for name in rank.index):
        group = group_of(name, names)
        if group not in found and (one := _sharded(name, group, ranks)) is not None:
            found[group] = one
    return sorted(found.values(), key=lambda one: GROUPS.index(one.group))


def _sharded(name: str, group: str, ranks: tuple[RankRecord, ...]) -> ShardedResult | None:
    """How a parameter is cut; None if it is not, or if its parts differ in several dimensions."""
    holders = [(rank, rank.parameters[rank.index[name]]) for rank in ranks if name in rank.index]
    shape = holders[0][1].shape
    cut = [d for d in range(len(shape)) if len({(part.start[d], part.stop[d]) for _, part in holders}) > 1]
    if len(cut) != 1:
        return None
    (dimension,) = cut
    axes = dict.fromkeys(
        axis_of(axis) or axis for _, part in holders for axis in part.split.get(dimension, "").split("+") if axis
    )
    return ShardedResult(
        name=name,
        group=group,
        axis=" and ".join(axes),
        dimension=dimension,
        size=shape[dimension],
        head_size=_head_size(name, shape, dimension, holders[0][0]),
        parts=[PartResult(rank=rank.rank, start=part.start[dimension], stop=part.stop[dimension])
               for rank, part in holders],
    )  # fmt: skip


def _head_size(name: str, shape: tuple[int, ...], dimension: int, rank: RankRecord) -> int | None:
    """Size of a head of a query projection, by a query norm beside it that is applied head by head; else None.

    The norm of Qwen3 and its kin has the size of a head; OLMo 2's is as wide as the projection, and tells nothing.
    """
    module, _, _ = name.rpartition(".")
    for query in ("q_proj", "wq", "q"):
        before, found, after = module.rpartition(query)
        if found and not after and (not before or before.endswith(".")) and dimension == 0:
            at = rank.index.get(f"{before}q_norm.weight")
            whole = rank.parameters[at].shape if at is not None else ()
            if len(whole) == 1 and whole[0] < shape[0] and shape[0] % whole[0] == 0:
                return whole[0]
    return None
