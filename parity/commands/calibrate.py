"""`parity calibrate`."""

import shlex
from pathlib import Path

import click

from parity.commands.suites import folder_of, override_options, override_words, overrides, slots_option, suite_path
from parity.exits import FiniteRange

__all__ = ["calibrate"]


@click.command()
@click.argument("suite", default="parity.yml")
@click.option("--runs", type=click.IntRange(1, 16), default=5, show_default=True, help="Perturbed legs per baseline.")
@click.option("--k", type=FiniteRange(1), help="Times the measured noise allowed, instead of the suite's k.")
@override_options
@slots_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("parity-calibration"),
    show_default=True,
    help="Run directory; gets bounds.yml.",
)
def calibrate(
    suite: str,
    runs: int,
    k: float | None,
    steps: int | None,
    seed: int | None,
    device: str | None,
    slots: int | None,
    out: Path,
) -> int:
    """Measure the noise of SUITE's baselines and write explicit bounds, with where they came from.

    Runs each baseline, once more, with its weights moved by one ulp in several directions, and its controls; no
    candidate.
    """
    from parity.calibrate import as_yaml, calibrated, with_runs
    from parity.console import make_console
    from parity.prepare import prepare
    from parity.progress import show_progress
    from parity.run import check_whole
    from parity.run import run as run_legs
    from parity.schedule import Slots
    from parity.suite import load

    path = suite_path(suite)
    given = overrides(steps=steps, seed=seed, device=device)
    loaded = with_runs(load(path, given), runs)
    k = loaded.k if k is None else k
    command = ["parity", "calibrate", suite, "--runs", str(runs), "--k", f"{k:g}", *override_words(given)]
    names = [name for item in loaded.compare for name in item.legs() if name != item.candidate]
    plan, notes = prepare(
        loaded,
        folder=folder_of(path),
        suite_dir=path.parent,
        out=out,
        slots=Slots.here(slots),
        reproduce=shlex.join(command),
        only=list(dict.fromkeys(names)),
    )
    console = make_console(stderr=True)
    for line in notes:
        console.print(line, markup=False, soft_wrap=True)
    with show_progress(console, {name: str(loaded.legs[name].sizes()) for name in plan.only}, loaded.steps) as take:
        check_whole(run_legs(plan, take))
    text = as_yaml(calibrated(plan.directory, k))
    plan.directory.write("bounds.yml", text)
    click.echo(text, nl=False)
    return 0
