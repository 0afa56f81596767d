"""`parity init`."""

from pathlib import Path

import click

from parity.commands.suites import RECIPES, recipes
from parity.errors import UsageError

__all__ = ["init"]


def _listed(context: click.Context, _parameter: click.Parameter, given: bool) -> None:
    if given:
        from parity.starting import described

        width = max(map(len, recipes()))
        for name in recipes():
            click.echo(f"{name:{width}}  {described(RECIPES / f'{name}.yml')}")
        context.exit(0)


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--recipe", metavar="NAME", help="Begin with this recipe, its files, and a workflow.")
@click.option("--list", is_flag=True, expose_value=False, is_eager=True, callback=_listed, help="List the recipes.")
@click.option("--workflow", metavar="STARTER", help="Which workflow to write with a recipe, or none.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
def init(path: Path | None, recipe: str | None, workflow: str | None, force: bool) -> int:
    """Write a commented parity.yml to begin with; or a recipe with its files, and a workflow that runs it.

    PATH is where the suite goes: parity.yml, or parity-recipes/NAME.yml of a recipe, whose files go beside it.
    """
    from parity.starting import STARTERS, begin, write_all

    if recipe is None:
        if workflow is not None:
            raise UsageError("--workflow: goes with --recipe")
        path = path or Path("parity.yml")
        if path.is_file() and not force:  # the same one is told, too: this was to begin with
            raise UsageError(f"{path}: exists already; --force overwrites it")
        write_all({path: (RECIPES / "init.yml").read_bytes()}, force)
        click.echo(f"wrote {path}; `parity validate {path}` checks it, `parity run {path}` runs it")
        return 0
    if recipe not in recipes():
        raise UsageError(f"--recipe {recipe}: no such recipe; there is {', '.join(recipes())}")
    workflow = workflow or "same-repo"
    if workflow not in (*STARTERS, "none"):
        raise UsageError(f"--workflow {workflow}: no such workflow; there is {', '.join(STARTERS)}, and none")
    suite = path or Path("parity-recipes") / f"{recipe}.yml"
    start = begin(RECIPES / f"{recipe}.yml", suite, None if workflow == "none" else workflow)
    written = write_all(start.files, force)
    for file in start.files:
        click.echo(f"{'wrote' if file in written else 'there already:'} {file}")
    click.echo("next:")
    for command in (start.setup, f"parity run {start.suite}"):
        if command:
            click.echo(f"  {command}")
    if start.workflow is not None:
        click.echo(f"and name your runner in {start.workflow}: runs-on")
    return 0
