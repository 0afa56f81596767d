"""Parameters by name: how far apart they are step by step, who holds which part, and what they began with."""

import difflib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from rich.console import RenderableType
from rich.text import Text

from parity.checks.words import plural, spans
from parity.errors import UsageError
from parity.plain import plain
from parity.records.record import LegRecords, Part
from parity.report.columns import Columns
from parity.result import LegResult
from parity.show.apart import KINDS, Apart, furthest_first, pairs, parameter_table, parameters_at, sketched_steps
from parity.show.opened import Opened

__all__ = ["find_parameters", "parameter_answer"]

# Of more parameters than these, a line each says where to look.
_IN_FULL = 3
_MOST = 30
_STEPS = 20


def find_parameters(opened: Opened, pattern: str) -> list[str]:
    """Names that a shell's pattern matches, whole; in the model's order.

    Raises:
        UsageError: there are none.
    """
    names = _names(opened)
    if not names:
        raise UsageError("--parameter: no leg recorded any; recorder.start(model, optimizer) does")
    found = [name for name in names if fnmatchcase(name, pattern)]
    if found:
        return found
    plainly = pattern.strip("*?")
    near = [name for name in names if plainly and plainly in name][:3]
    near = near or difflib.get_close_matches(pattern, names, n=3, cutoff=0.0)
    hint = " (a pattern matches whole names: try one with * at its ends)" if plainly and plainly in near[0] else ""
    raise UsageError(f"--parameter {plain(pattern)}: no parameter of this name{hint}; near it are {_listed(near)}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(plain(name) for name in names)


def _names(opened: Opened) -> list[str]:
    names: dict[str, None] = {}
    for leg in opened.legs.values():
        names.update(dict.fromkeys(leg.records.holders if leg.records else ()))
    for told in () if opened.legs else opened.result.comparisons:
        names.update(dict.fromkeys(told.gradients.names if told.gradients else ()))
    return list(names)


def parameter_answer(opened: Opened, names: Sequence[str], leg: LegResult | None) -> Iterator[RenderableType]:
    """What is known of parameters.

    Args:
        opened: the run.
        names: theirs.
        leg: this one alone, against the baseline.
    """
    if len(names) > _IN_FULL:
        yield from _summary(opened, names, leg)
        return
    for name in names:
        yield Text(plain(name), style="bold")
        yield from _holders(opened, name, leg)
        yield from _steps(opened, name, leg)
        yield Text("")
    if not opened.legs:
        yield Text("only a result is here: who holds what, ratios and cosines are in the run directory", style="dim")


def _summary(opened: Opened, names: Sequence[str], leg: LegResult | None) -> Iterator[RenderableType]:
    """Of many: how far each is out where it is furthest."""
    wanted = {*names}
    yield Text(f"{plural(len(names), 'parameter')}; a narrower pattern shows who holds each, and every step")
    for pair in pairs(opened, leg):
        for kind in KINDS:
            steps = sketched_steps(pair, kind)
            found = (one for step in steps for one in parameters_at(pair, kind, step) if one.name in wanted)
            worst: dict[str, Apart] = {}
            for one in furthest_first(found):
                worst.setdefault(one.name, one)
            if not worst:
                continue
            rows = list(worst.values())
            many = f", the {_MOST} of {len(rows)} furthest out" if len(rows) > _MOST else ""
            yield Text(f"\n{pair.title}: {kind} at steps {spans(steps)}, each where it is furthest out{many}")
            yield parameter_table(rows[:_MOST])


def _steps(opened: Opened, name: str, leg: LegResult | None) -> Iterator[RenderableType]:
    for pair in pairs(opened, leg):
        for kind in KINDS:
            steps = sketched_steps(pair, kind)
            kept = steps[: _STEPS - 1] + steps[-1:] if len(steps) > _STEPS else steps
            rows = [one for step in kept for one in parameters_at(pair, kind, step) if one.name == name]
            if rows:
                some = f", {len(kept)} of the {len(steps)} sketched steps" if len(kept) < len(steps) else ""
                yield Text(f"\n{kind}, {pair.title}{some}")
                yield parameter_table(rows, by="step")


def _holders(opened: Opened, name: str, only: LegResult | None) -> Iterator[RenderableType]:
    """Who holds which part, and its hash before the first step; ranks with the same of both together."""
    table = Columns("leg", "ranks", "holds", "hash at the start", "cut by", left=5)
    whole: dict[int, list[str]] = {}
    shape, dtype = "", ""
    for leg in opened.legs.values():
        if leg.records is None or name not in leg.records.holders or (only and leg.name != only.name):
            continue
        whole.setdefault(leg.records.state_hash(name), []).append(leg.name)
        for ranks, part in _together(leg.records, name):
            shape, dtype = "×".join(map(str, part.shape)), plain(part.dtype)
            axes = ", ".join(f"{plain(axis)} along {dimension}" for dimension, axis in sorted(part.split.items()))
            table.add(leg.name, spans(ranks), _box(part), f"{part.hash:016x}", axes)
    if not whole:
        return
    yield Text(f"{shape} of {dtype}" if shape else "one number")
    yield table
    told = (f"{hashed:016x} in {', '.join(legs)}" for hashed, legs in whole.items())
    yield Text(f"the whole began as {'; as '.join(told)}")


def _together(records: LegRecords, name: str) -> list[tuple[list[int], Part]]:
    same: dict[tuple[object, int], tuple[list[int], Part]] = {}
    for rank, part in records.holders[name]:
        same.setdefault((part.box, part.hash), ([], part))[0].append(rank.rank)
    return [(sorted(ranks), part) for ranks, part in same.values()]


def _box(part: Part) -> str:
    """`[0:86, :]`"""
    cuts = zip(part.start, part.stop, part.shape, strict=True)
    return f"[{', '.join(':' if (a, b) == (0, size) else f'{a}:{b}' for a, b, size in cuts)}]"
