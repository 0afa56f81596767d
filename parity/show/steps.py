"""One step: every leg's values, the gaps, and the parameters furthest apart."""

from collections.abc import Collection, Iterator

from rich.console import RenderableType
from rich.text import Text

from parity.checks.words import spans
from parity.errors import UsageError
from parity.report import text
from parity.report.columns import Columns
from parity.result import LegResult
from parity.result.drawn import DeviationResult
from parity.show.apart import KINDS, Pair, furthest_first, pairs, parameter_table, parameters_at, sketched_steps
from parity.show.opened import Opened

__all__ = ["step_answer"]

_FURTHEST = 10


def step_answer(
    opened: Opened, step: int, names: Collection[str] | None, leg: LegResult | None
) -> Iterator[RenderableType]:
    """What is known of a step.

    Args:
        opened: the run.
        step: as the legs number theirs.
        names: of parameters; those furthest apart if None.
        leg: this one alone, against the baseline.

    Raises:
        UsageError: no leg has this step.
    """
    _check_step(opened, step)
    yield Text(f"step {step}", style="bold")
    yield _values(opened, step, leg)
    for pair in pairs(opened, leg):
        yield Text(f"\n{pair.title}", style="bold")
        yield from _gaps(opened, pair, step)
        for kind in KINDS:
            steps = sketched_steps(pair, kind)
            if steps:
                nearest = min(steps, key=lambda one: abs(one - step))
                yield from _parameters(pair, kind, step, nearest, names)


def _check_step(opened: Opened, step: int) -> None:
    steps = sorted({int(one) for curves in opened.series.values() for own in curves.values() for one in own.steps})
    if not steps or step in steps:
        return
    below = max((one for one in steps if one < step), default=None)
    above = min((one for one in steps if one > step), default=None)
    near = " and ".join(str(one) for one in (below, above) if one is not None)
    who = "no leg has it" if opened.legs else "the result does not keep it"
    raise UsageError(f"--step {step}: {who}; there are steps {spans(steps)}, the nearest {near}")


def _values(opened: Opened, step: int, only: LegResult | None) -> Columns:
    legs = [leg for leg in opened.result.legs if only is None or leg.name == only.name]
    metrics = opened.metrics(leg.name for leg in legs)
    table = Columns("leg", *metrics, left=1)
    for leg in legs:
        curves = opened.series.get(leg.name, {})
        table.add(leg.name, *(text.value(curves[one].at(step) if one in curves else None) for one in metrics))
    return table


def _gaps(opened: Opened, pair: Pair, step: int) -> Iterator[RenderableType]:
    table = Columns(f"of {pair.told.baseline}'s", "gap", "allowed", "× allowed", "floor", "× floor")
    for metric, drawn in opened.deviations(pair.told, pair.leg, step).items():
        if step not in drawn.steps:
            table.add(metric, *["–"] * 5)
            continue
        at = drawn.steps.index(step)
        floor = drawn.floor[at] if drawn.floor else None
        over = not drawn.times_allowed[at] <= 1
        table.add(
            metric,
            text.gap(drawn.gap[at]),
            text.gap(drawn.allowed[at]),
            text.times(drawn.times_allowed[at]),
            text.gap(floor),
            text.times(_times_floor(drawn, at)),
            style="red" if over else "",
        )
    yield table


def _times_floor(drawn: DeviationResult, at: int) -> float | None:
    return drawn.gap[at] / drawn.floor[at] if drawn.floor and drawn.floor[at] else None


def _parameters(
    pair: Pair, kind: str, step: int, nearest: int, names: Collection[str] | None
) -> Iterator[RenderableType]:
    found = parameters_at(pair, kind, nearest)
    named = furthest_first(one for one in found if names is None or one.name in names)
    if not named:
        return
    where = f"at step {step}" if nearest == step else f"at step {nearest}, the nearest to {step} that was sketched"
    many = f"; the {_FURTHEST} of {len(named)} furthest out" if len(named) > _FURTHEST else ""
    yield Text(f"\n{kind} {where}{many}")
    yield parameter_table(named[:_FURTHEST])
