"""`parity run`."""

import shlex
from pathlib import Path

import click

from parity.commands.suites import (
    devices_option,
    durations_option,
    folder_of,
    override_options,
    override_words,
    overrides,
    slots_option,
    suite_path,
)

__all__ = ["run"]


@click.command()
@click.argument("suite", default="parity.yml")
@click.option("--only", multiple=True, metavar="LEG", help="Run this leg only; repeatable. Others stay as they are.")
@override_options
@slots_option
@devices_option
@durations_option
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
    devices: tuple[str, ...] | None,
    durations: Path | None,
    out: Path,
) -> int:
    """Run the legs of SUITE, a file or a recipe's name, and compare them."""
    from parity.deliver import deliver, make_console
    from parity.judge import judge
    from parity.progress import show_progress
    from parity.run import check_only, prepare
    from parity.run import run as run_legs
    from parity.schedule import Slots
    from parity.suite import load

    path = suite_path(suite)
    given = overrides(steps=steps, seed=seed, device=device)
    loaded = load(path, given)
    command = ["parity", "run", suite, *(word for name in only for word in ("--only", name)), *override_words(given)]
    plan, notes = prepare(
        loaded,
        folder=folder_of(path),
        suite_dir=path.parent,
        out=out,
        slots=Slots.here(slots, devices),
        reproduce=shlex.join(command),
        only=check_only(loaded, only),
        keep=bool(only),
        durations=durations,
    )
    console = make_console()
    for line in notes:
        console.print(line, markup=False, soft_wrap=True)
    layouts = {name: str(loaded.legs[name].sizes()) for name in plan.only}
    with show_progress(console, layouts, loaded.steps) as take:
        run_legs(plan, take)
    return deliver(judge(plan.directory), plan.directory, console)
