"""`parity selftest`."""

from pathlib import Path

import click

from parity.commands.suites import slots_option
from parity.errors import UsageError

__all__ = ["selftest"]


@click.command()
@click.option("--quick", is_flag=True, help="One fault of each class, and one seed: two minutes on two cores.")
@click.option("--dtype", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True)
@click.option("--fault", multiple=True, metavar="NAME", help="Only this fault; repeatable.")
@click.option("--seeds", type=click.IntRange(0), help="How many runs of each correct layout; 6 if not given.")
@click.option("--steps", type=click.IntRange(4), default=10, show_default=True, help="Of each leg.")
@slots_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("parity-selftest"),
    show_default=True,
    help="Output folder.",
)
def selftest(
    quick: bool, dtype: str, fault: tuple[str, ...], seeds: int | None, steps: int, slots: int | None, out: Path
) -> int:
    """Put known faults into the embedded trainer and see which are caught; run correct layouts and see which fail.

    Exit code 1 if a correct layout fails, or in fp32 a fault does not. Writes selftest.json and selftest.md.
    """
    from parity.console import make_console
    from parity.document import suggestion
    from parity.report.selftest import render_selftest, render_selftest_markdown
    from parity.schedule import Slots
    from parity.selftest.cases import fault_cases
    from parity.selftest.progress import show_legs
    from parity.selftest.run import make_room
    from parity.selftest.run import selftest as run_selftest
    from parity.train.faults import FAULTS

    for name in fault:
        if name not in FAULTS:
            raise UsageError(f"--fault {name}: no such fault{suggestion(name, FAULTS)}")
    count = seeds if seeds is not None else 0 if fault else 1 if quick else 6
    make_room(out)
    console = make_console()
    with show_legs(console) as on_leg:
        result = run_selftest(
            out,
            cases=fault_cases(quick, fault),
            seeds=range(1, count + 1),
            dtype="bf16" if dtype == "bf16" else "fp32",
            steps=steps,
            slots=Slots.here(slots),
            on_leg=on_leg,
        )
    (out / "selftest.json").write_text(result.dumps(), encoding="utf-8")
    (out / "selftest.md").write_text(render_selftest_markdown(result), encoding="utf-8")
    render_selftest(result, console)
    return 0 if result.as_it_should_be else 1
