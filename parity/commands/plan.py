"""`parity plan`."""

from pathlib import Path

import click

from parity.commands.suites import (
    cache_options,
    devices_option,
    durations_option,
    folder_of,
    override_options,
    overrides,
    slots_option,
    suite_path,
)

__all__ = ["plan"]


@click.command()
@click.argument("suite", default="parity.yml")
@cache_options
@override_options
@slots_option
@devices_option
@durations_option
@click.option("--matrix", is_flag=True, help="Print JSON for a GitHub matrix, a job for each leg, instead.")
def plan(
    suite: str,
    cache: Path | None,
    no_cache: bool,
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
    from parity.prepare import choose_device, inputs_of
    from parity.schedule import Slots
    from parity.schedule.expected import expected
    from parity.suite import load

    path = suite_path(suite)
    loaded = load(path, overrides(steps=steps, seed=seed, device=device))
    times = expected(loaded, loaded.compared(), durations or Path("parity-out"))
    if matrix:  # other machines will run it
        click.echo(as_matrix(loaded, times))
        return 0
    room = Slots.here(slots, devices)
    chosen, note = choose_device(loaded, loaded.compared(), room)
    there, notes = list[str](), [note] if note else []
    if cache is not None and not no_cache:
        from parity.cache import Cache

        kept, folder, suite_dir = Cache(cache, path), folder_of(path), path.parent.absolute()
        there = kept.look(
            loaded, loaded.compared(), lambda: inputs_of(loaded, chosen, room, folder, suite_dir, kept.without)
        )
        notes += [*kept.told(), *([f"from the cache, so not run: {', '.join(there)}"] if there else [])]
    text = as_text(planned(loaded, chosen, room, times, there))
    click.echo(text + "".join(f"{one}\n" for one in notes), nl=False)
    return 0
