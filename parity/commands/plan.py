"""`parity plan`."""

from pathlib import Path

import click

from parity.commands.suites import (
    devices_option,
    durations_option,
    override_options,
    overrides,
    slots_option,
    suite_path,
)

__all__ = ["plan"]


@click.command()
@click.argument("suite", default="parity.yml")
@override_options
@slots_option
@devices_option
@durations_option
@click.option("--matrix", is_flag=True, help="Print JSON for a GitHub matrix, a job for each leg, instead.")
def plan(
    suite: str,
    steps: int | None,
    seed: int | None,
    device: str | None,
    slots: int | None,
    devices: tuple[str, ...] | None,
    durations: Path | None,
    matrix: bool,
) -> int:
    """Show which legs of SUITE would run when and on what, without running anything.

    How long a leg takes is known from an earlier run: in `parity-out`, or where --durations says.
    """
    from parity.planning import as_matrix, as_text, planned
    from parity.run import choose_device
    from parity.schedule import Slots
    from parity.schedule.expected import expected
    from parity.suite import load

    loaded = load(suite_path(suite), overrides(steps=steps, seed=seed, device=device))
    times = expected(loaded, loaded.compared(), durations or Path("parity-out"))
    if matrix:  # other machines will run it
        click.echo(as_matrix(loaded, times))
        return 0
    room = Slots.here(slots, devices)
    chosen, note = choose_device(loaded, loaded.compared(), room)
    click.echo(as_text(planned(loaded, chosen, room, times)) + (f"{note}\n" if note else ""), nl=False)
    return 0
