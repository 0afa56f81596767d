"""From a question to what is shown."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from parity.report.details import comparison_details
from parity.report.first_screen import telling, worst_step
from parity.result import ComparisonResult
from parity.show.legs import leg_answer
from parity.show.opened import Opened
from parity.show.parameters import find_parameters, parameter_answer
from parity.show.steps import step_answer

__all__ = ["Question", "answer"]


@dataclass(frozen=True)
class Question:
    """What is asked; None where it does not matter.

    Attributes:
        step: a step, as the legs number theirs.
        parameter: a pattern of names, as a shell's.
        leg: a leg's name.
    """

    step: int | None = None
    parameter: str | None = None
    leg: str | None = None


def answer(opened: Opened, question: Question) -> Iterator[RenderableType]:
    """What is known, piece by piece; every text in it is printable.

    Raises:
        UsageError: there is no such leg, step or parameter.
    """
    leg = None if question.leg is None else opened.leg(question.leg)
    names = None if question.parameter is None else find_parameters(opened, question.parameter)
    if question.step is not None:
        yield from step_answer(opened, question.step, names, leg)
    elif names is not None:
        yield from parameter_answer(opened, names, leg)
    elif leg is not None:
        yield from leg_answer(opened, leg)
    else:
        yield from _overview(opened)


def _overview(opened: Opened) -> Iterator[RenderableType]:
    """The comparison that makes the verdict, and what to ask next."""
    about = telling(opened.result)
    if about is None:
        yield Text(opened.result.summary)
    else:
        yield from comparison_details(about)
        others = [one.candidate for one in opened.result.comparisons if one is not about]
        if others:
            yield Text(f"\nother candidates, each shown by --leg: {', '.join(others)}")
    yield Text("\nask next", style="bold")
    for option, value, why in _next(opened, about):
        yield Text(
            f"  parity show {shlex.quote(str(opened.path))} {option} {shlex.quote(value)}", no_wrap=True
        ).append(f"   {why}", style="dim")


def _next(opened: Opened, about: ComparisonResult | None) -> Iterator[tuple[str, str, str]]:
    step = worst_step(opened.result)
    if step is not None:
        yield "--step", str(step), "the worst step: every leg's values, and the parameters furthest apart"
    failed = [one for one in about.outcomes if one.parameters] if about else []
    if failed:
        worst = max(failed, key=lambda one: one.status == "fail").parameters[0]
        yield "--parameter", worst.name, "the parameter furthest out: by step, and who holds it"
    ended_badly = [leg.name for leg in opened.result.legs if leg.status not in ("finished", "read")]
    for name in ended_badly[:3] or ([about.candidate] if about else []):
        yield "--leg", name, "its curves, what its ranks hold, its environment and the end of its log"
