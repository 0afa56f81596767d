"""One leg: how it ran, its curves, what its ranks hold, its environment, and the end of its log."""

from collections.abc import Iterator

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from parity.checks.words import plural, spans
from parity.display.logs import tails
from parity.plain import plain
from parity.report import text
from parity.report.columns import Columns
from parity.report.details import check_table
from parity.result import LegResult
from parity.show.opened import Opened

__all__ = ["leg_answer"]

_SAMPLED = 12
_LINES = 15


def leg_answer(opened: Opened, leg: LegResult) -> Iterator[RenderableType]:
    """What is known of a leg."""
    yield Text(leg.name, style="bold").append(f"  {_how(leg)}", style="")
    for role in _roles(opened, leg.name):
        yield Text(role)
    if leg.error:
        yield Text(leg.error, style="red")
    for what, said in (("command", leg.command), ("source", leg.source), ("environment", _environment(leg))):
        if said:
            yield Text(f"{what}: ", style="dim").append(plain(said, 2000), style="default")
    for note in leg.notes:
        yield Text(f"note: {note}")
    for told in opened.result.comparisons:
        if told.candidate == leg.name:
            yield Text(f"\n{told.summary}")
            yield check_table(told)
    yield from _curves(opened, leg.name)
    yield from _ranks(leg)
    yield from _log(opened, leg)


def _how(leg: LegResult) -> str:
    sizes = " ".join(f"{axis}={size}" for axis, size in leg.layout.items() if size > 1)
    told = [
        leg.status + (f", rank {leg.failing_rank} first" if leg.failing_rank is not None else ""),
        sizes or ("one rank" if leg.ranks == 1 else ""),
        plural(leg.ranks, "rank") if leg.ranks and leg.ranks > 1 else "",
        f"{text.seconds(leg.seconds)} ({text.seconds(leg.device_seconds)} of devices)" if leg.seconds else "",
        f"exit code {leg.exit_code}" if leg.exit_code else "",
    ]
    return " · ".join(filter(None, told))


def _roles(opened: Opened, name: str) -> Iterator[str]:
    for told in opened.result.comparisons:
        noise = {"a control": told.controls, "a repeat": told.repeats, "perturbed": told.perturbed}
        noise["the reference"] = [told.reference] if told.reference else []
        about = f"{told.candidate} against {told.baseline}, {told.verdict}"
        if name in (told.candidate, told.baseline):
            yield f"{'candidate' if name == told.candidate else 'baseline'} in {about}"
        for role, names in noise.items():
            if name in names:
                yield f"{role} for {about}"


def _environment(leg: LegResult) -> str:
    return ", ".join(
        f"{name} {one}" for name, one in leg.environment.items() if name != "layout" and one not in (None, "")
    )


def _curves(opened: Opened, name: str) -> Iterator[RenderableType]:
    """The first steps, some of the others, and the last."""
    own = opened.series.get(name, {})
    curves = {metric: own[metric] for metric in opened.metrics([name])}
    if not curves:
        return
    steps = np.unique(np.concatenate([one.steps for one in curves.values()]))
    chosen = steps[np.unique(np.linspace(0, steps.size - 1, min(_SAMPLED, steps.size)).astype(np.int64))]
    yield Text(f"\n{plural(max(one.count for one in curves.values()), 'step')}: {spans(steps.tolist())}")
    table = Columns("step", *curves, left=0)
    for step in chosen.tolist():
        table.add(str(step), *(text.value(one.at(step)) for one in curves.values()))
    yield table


def _ranks(leg: LegResult) -> Iterator[RenderableType]:
    if not leg.holds:
        return
    sizes = leg.layout
    table = Columns("rank", "place", "elements", "layers", "experts", left=5)
    for rank in leg.holds:
        place = " ".join(f"{axis}={at}" for axis, at in rank.coordinates.items() if sizes.get(axis, 2) > 1)
        experts = "; ".join(f"{spans(one.experts)} in {plural(one.modules, 'module')}" for one in rank.experts)
        layers = "" if rank.layers is None else spans(rank.layers)
        table.add(str(rank.rank), place, f"{rank.elements:,}", layers, experts)
    yield Text("")
    yield table
    for one in leg.sharded:
        parts = ", ".join(f"{part.start}:{part.stop}" for part in one.parts[:8])
        more = f" and {len(one.parts) - 8} more" if len(one.parts) > 8 else ""
        heads = f" in heads of {one.head_size}" if one.head_size else ""
        axis = f" by {one.axis}" if one.axis else ""
        yield Text(
            f"{one.group}, such as {one.name}: dimension {one.dimension} of {one.size}{heads}{axis}: {parts}{more}"
        )


def _log(opened: Opened, leg: LegResult) -> Iterator[RenderableType]:
    """The end of the log that tells most."""
    found = leg.tails or tails(opened.directory, leg)
    if not found:
        return
    lines = found[0].lines[-_LINES:]
    yield Text(f"\nlast {plural(len(lines), 'line')} of {opened.directory.path / found[0].path}", style="bold")
    for line in lines:
        yield Text(line)
    others = [path for path in leg.logs if path != found[0].path]
    if others:
        yield Text(f"other logs: {', '.join(others[:8])}{' and more' if len(others) > 8 else ''}", style="dim")
