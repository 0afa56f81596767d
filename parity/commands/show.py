"""`parity show`."""

from pathlib import Path

import click

__all__ = ["show"]


@click.command()
@click.argument("run_dir", default="parity-out", type=click.Path(path_type=Path))
@click.option("--step", type=int, help="Every leg's values at this step, gaps, and the parameters furthest apart.")
@click.option("--parameter", metavar="GLOB", help="Parameters by name: who holds them, and how far apart they are.")
@click.option("--leg", metavar="LEG", help="One leg: its curves, what its ranks hold, its environment and log.")
def show(run_dir: Path, step: int | None, parameter: str | None, leg: str | None) -> int:
    """Answer the next question from RUN_DIR: where it is worst and, by the options, what is there.

    The options narrow each other. The exit code is no verdict: 0 wherever there is an answer.
    """
    from parity.console import make_console
    from parity.report.columns import print_lines
    from parity.show import Question, answer, open_run

    print_lines(answer(open_run(run_dir), Question(step, parameter, leg)), make_console())
    return 0
