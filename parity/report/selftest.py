"""A self-test's result as Markdown and at the terminal."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from parity.plain import plain
from parity.report import text
from parity.report.columns import COLOURS, Columns
from parity.report.markdown import environment
from parity.selftest.result import CleanRun, Selftest

__all__ = ["headline", "render_selftest", "render_selftest_markdown"]


def headline(result: Selftest) -> list[str]:
    """What was caught, and what was called wrong that is right."""
    lines = []
    if result.mistakes:
        caught = sum(run.caught for run in result.mistakes)
        classes = result.classes
        lines.append(
            f"{sum(classes.values())} of {len(classes)} classes of faults caught in every layout;"
            f" {caught} of {len(result.mistakes)} faults by layout"
        )
        twice = [run for run in result.mistakes if run.with_control is not None]
        if twice:
            seen = sum(run.with_control == run.expected for run in twice)
            lines.append(f"{seen} of {len(twice)} still caught with the same fault in the control")
    if result.controls:
        right = sum(run.caught for run in result.controls)
        lines.append(f"{right} of {len(result.controls)} controls are what they should be")
    if result.clean:
        line = f"{len(result.alarms)} false alarms in {len(result.clean)} runs of correct layouts"
        undecided = len(result.undecided)
        lines.append(line + (f", of which {undecided} are inconclusive" if undecided else ""))
    return lines


@dataclass(frozen=True)
class _Clean:
    """The runs of one correct layout."""

    model: str
    layout: str
    runs: int
    alarms: int
    nearest: float | None
    by: str


def _by_layout(runs: list[CleanRun]) -> Iterator[_Clean]:
    for model, layout in dict.fromkeys((run.model, run.layout) for run in runs):
        same = [run for run in runs if (run.model, run.layout) == (model, layout)]
        worst = max((run.worst for run in same if run.worst), key=lambda one: one.times_allowed or 0.0, default=None)
        yield _Clean(
            model,
            layout,
            len(same),
            sum(run.alarm for run in same),
            worst.times_allowed if worst else None,
            f"{worst.check}, {worst.what}" if worst else "",
        )


def render_selftest_markdown(result: Selftest) -> str:
    """The whole matrix; ends with a line break."""
    template = environment().get_template("selftest.md.j2")
    return template.render(result=result, headline=headline(result), clean=list(_by_layout(result.clean)))


def render_selftest(result: Selftest, console: Console) -> None:
    """The matrix, a line a fault, and what it comes to."""
    if result.faults:
        table = Columns("class", "fault", "layout", "verdict", "by", "step", "× allowed", left=5)
        for run in result.faults:
            found = run.finding
            table.add(
                run.mutation,
                run.fault,
                run.layout,
                Text(run.verdict, style="green" if run.caught else "red"),
                "" if found is None else plain(f"{found.check} {found.what}".strip(), 60),
                "–" if found is None or found.step is None else str(found.step),
                text.times(found.times_allowed if found else None),
            )
        console.print(table)
    if result.clean:
        table = Columns("correct", "layout", "runs", "alarms", "nearest to allowed", left=2)
        for row in _by_layout(result.clean):
            alarms = Text(str(row.alarms), style=COLOURS["fail"] if row.alarms else "")
            table.add(row.model, row.layout, str(row.runs), alarms, text.times(row.nearest))
        console.print(table)
    missed = [run for run in result.faults if not run.caught]
    for one in missed:
        line = f"{one.fault} under {one.layout} should be {one.expected} and is {one.verdict}: {one.summary}"
        console.print(plain(line, 1000), markup=False, soft_wrap=True)
    for alarm in (*result.alarms, *result.undecided):
        line = f"{alarm.model} {alarm.layout}, seed {alarm.seed}, is {alarm.verdict}: {alarm.summary}"
        console.print(plain(line, 1000), markup=False, soft_wrap=True)
    for line in headline(result):
        console.print(Text(line, style="bold" if result.as_it_should_be else "bold red"), soft_wrap=True)
