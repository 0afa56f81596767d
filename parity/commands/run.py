"""`parity run`."""

import importlib
import shlex
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parity.commands.suites import (
    cache_options,
    devices_option,
    durations_option,
    folder_of,
    override_options,
    override_words,
    overrides,
    slots_option,
    suite_path,
)

if TYPE_CHECKING:
    from parity.launch import Event
    from parity.schedule import Slots
    from parity.suite import Suite

__all__ = ["run"]


@click.command()
@click.argument("suite", default="parity.yml")
@click.option("--only", multiple=True, metavar="LEG", help="Run this leg only; repeatable. Others stay as they are.")
@click.option(
    "--resume",
    is_flag=True,
    help="Run only what is missing in the output folder: legs that finished there under the same suite stay as they"
    " are. Whether the code that they ran is still the same, nobody looks.",
)
@cache_options
@override_options
@slots_option
@devices_option
@durations_option
@click.option(
    "--node-rank",
    type=click.IntRange(min=0),
    metavar="K",
    help="For launcher: torchrun, which machine this is; 0 leads and judges, the others follow.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("parity-out"), show_default=True, help="Run directory."
)
def run(
    suite: str,
    only: tuple[str, ...],
    resume: bool,
    cache: Path | None,
    no_cache: bool,
    steps: int | None,
    seed: int | None,
    device: str | None,
    slots: int | None,
    devices: tuple[str, ...] | None,
    durations: Path | None,
    node_rank: int | None,
    out: Path,
) -> int:
    """Run the legs of SUITE, a file or a recipe's name, and compare them."""
    from parity.console import make_console
    from parity.prepare import check_only, prepare
    from parity.progress import show_progress
    from parity.run import run as run_legs
    from parity.schedule import Slots
    from parity.suite import load

    path = suite_path(suite)
    given = overrides(steps=steps, seed=seed, device=device)
    loaded = load(path, given)
    if node_rank:
        return _follow(loaded, path, out, Slots.here(slots, devices), node_rank)
    # Without --only, --resume and the like: it is to come to the same verdict in a folder that is empty.
    command = ["parity", "run", suite, *override_words(given)]
    command += [] if node_rank is None else ["--node-rank", str(node_rank)]
    kept = None
    if cache is not None and not no_cache:
        from parity.cache import Cache

        kept = Cache(cache, path)
    plan, notes = prepare(
        loaded,
        folder=folder_of(path),
        suite_dir=path.parent,
        out=out,
        slots=Slots.here(slots, devices),
        reproduce=shlex.join(command),
        only=check_only(loaded, only),
        keep=bool(only),
        resume=resume,
        durations=durations,
        cache=kept,
        node=node_rank,
    )
    console = make_console()
    for line in notes:
        console.print(line, markup=False, soft_wrap=True)
    layouts = {name: str(loaded.legs[name].sizes()) for name in plan.only}
    if layouts:
        with show_progress(console, layouts, loaded.steps) as take:
            run_legs(plan, _preparing(take))
    for line in kept.told() if kept is not None else ():
        console.print(line, markup=False, soft_wrap=True)
    from parity.deliver import deliver
    from parity.judge import judge

    return deliver(judge(plan.directory), plan.directory, console)


def _preparing(take: "Callable[[Event], None]") -> "Callable[[Event], None]":
    """Pass events on. What judges and reports is made ready beside the first leg, and nobody waits for it."""
    from parity.launch import LegStarted

    begun = False

    def listen(event: "Event") -> None:
        nonlocal begun
        take(event)
        if not begun and isinstance(event, LegStarted):
            begun = True
            threading.Thread(target=_prepare).start()

    return listen


def _prepare() -> None:
    importlib.import_module("parity.judge")
    importlib.import_module("parity.deliver").prepare()


def _follow(suite: "Suite", path: Path, out: Path, slots: "Slots", node: int) -> int:
    """Run this machine's parts of the legs; machine 0 judges."""
    from parity.checks.outcome import Verdict
    from parity.console import make_console
    from parity.follow import follow, followed
    from parity.prepare import check_environment
    from parity.progress import show_progress

    check_environment()
    console = make_console()
    layouts = {name: str(suite.legs[name].sizes()) for name in followed(suite, node)}
    console.print(f"machine {node}: waiting for machine 0 to begin a run in {out}", markup=False, soft_wrap=True)
    with show_progress(console, layouts, suite.steps) as take:
        ends = follow(
            suite, node=node, folder=folder_of(path), suite_dir=path.parent, out=out, slots=slots, on_event=take
        )
    return 0 if all(end.status in ("finished", "not started") for end in ends.values()) else Verdict.ERROR.exit_code
