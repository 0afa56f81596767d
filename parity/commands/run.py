"""`parity run`."""

import shlex
from pathlib import Path
from typing import Any

import click

from parity.commands.suites import folder_of, suite_path

__all__ = ["run"]


@click.command()
@click.argument("suite", default="parity.yml")
@click.option("--only", multiple=True, metavar="LEG", help="Run this leg only; repeatable. Others stay as they are.")
@click.option("--steps", type=click.IntRange(1), help="Instead of the suite's steps.")
@click.option("--seed", type=click.IntRange(0), help="Instead of the suite's seed.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), help="Instead of the suite's device.")
@click.option("--slots", type=click.IntRange(1), help="CPU ranks that may run at the same time.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("parity-out"), show_default=True, help="Run directory."
)
def run(
    suite: str,
    only: tuple[str, ...],
    steps: int | None,
    seed: int | None,
    device: str | None,
    slots: int | None,
    out: Path,
) -> int:
    """Run the legs of SUITE, a file or a recipe's name, and compare them."""
    from parity.deliver import deliver, make_console
    from parity.judge import judge_run
    from parity.progress import show_progress
    from parity.run import check_only, prepare
    from parity.run import run as run_legs
    from parity.schedule import Slots
    from parity.suite import load

    path = suite_path(suite)
    given = {"steps": steps, "seed": seed, "device": device}
    loaded = load(path, {key: value for key, value in given.items() if value is not None})
    plan, notes = prepare(
        loaded,
        folder=folder_of(path),
        out=out,
        slots=Slots.here(slots),
        reproduce=_reproduce_run(suite, only, given),
        only=check_only(loaded, only),
        keep=bool(only),
    )
    console = make_console()
    for line in notes:
        console.print(line, markup=False, soft_wrap=True)
    layouts = {name: str(loaded.legs[name].sizes()) for name in plan.only}
    with show_progress(console, layouts, loaded.steps) as take:
        run_legs(plan, take)
    return deliver(judge_run(plan.directory), plan.directory, console)


def _reproduce_run(suite: str, only: tuple[str, ...], given: dict[str, Any]) -> str:

    words = ["parity", "run", suite]
    for name in only:
        words += ["--only", name]
    for key, value in given.items():
        if value is not None:
            words += [f"--{key}", str(value)]
    return shlex.join(words)
