"""`parity validate`."""

import click

from parity.commands.suites import suite_path

__all__ = ["validate"]


@click.command()
@click.argument("suite", default="parity.yml")
def validate(suite: str) -> int:
    """Check SUITE, a file or a recipe's name, without running anything."""
    from parity.checks.words import plural
    from parity.prepare import choose_device
    from parity.schedule import Slots
    from parity.suite import load

    loaded = load(suite_path(suite))
    counts = ((loaded.legs, "leg"), (loaded.compare, "comparison"))
    told = ", ".join(plural(len(of), word) for of, word in counts)
    click.echo(f"{suite}: {told}, {plural(loaded.steps, 'step')}")
    for name, leg in loaded.legs.items():
        click.echo(f"  {name}: {leg.sizes()}, {leg.ranks} rank{'s' if leg.ranks > 1 else ''}")
    device, note = choose_device(loaded, loaded.compared(), Slots.here())
    click.echo(f"  here the legs would run on {device}{f': {note}' if note else ''}")
    return 0
