"""A result to files, to the terminal, and to an exit code."""

from rich.console import Console

from parity.checks.outcome import Verdict
from parity.errors import DiskError, UsageError
from parity.judged import Judged
from parity.report.curves_csv import render_curves
from parity.report.html import page, render_html
from parity.report.junit import render_junit
from parity.report.markdown import render_markdown, templates
from parity.report.terminal import render_terminal
from parity.rundir import RunDirectory

__all__ = ["deliver", "prepare"]


def prepare() -> None:
    """Compile the reports' templates, so that nobody has to wait for it when there is a result."""
    templates()
    page()


def deliver(judged: Judged, directory: RunDirectory | None, console: Console) -> int:
    """Write result and reports, print the verdict, and return the exit code.

    The verdict is printed even if nothing could be written.

    Raises:
        DiskError: the files could not be written.
    """
    where, problem, result = None, None, judged.result
    if directory is not None:
        try:
            directory.write("result.json", result.dumps())
            directory.write("report.md", render_markdown(result))
            where = str(directory.path)
            directory.write("report.html", render_html(result))
            directory.write("junit.xml", render_junit(result))
            curves, every = render_curves(judged)
            directory.write("curves.csv", curves)
            if every > 1:
                console.print(f"curves.csv has one step of {every}, for there are many", style="dim")
        except (UsageError, OSError) as error:
            problem = str(error)
    render_terminal(result, console, where)
    if problem:
        raise DiskError(f"the report could not be written: {problem}")
    return Verdict(result.verdict).exit_code
