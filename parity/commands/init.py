"""`parity init`."""

from pathlib import Path

import click

from parity.commands.suites import RECIPES
from parity.errors import UsageError

__all__ = ["init"]


@click.command()
@click.argument("path", default="parity.yml", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
def init(path: Path, force: bool) -> int:
    """Write a commented parity.yml to begin with."""
    template = RECIPES / "init.yml"
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(template.read_text(encoding="utf-8"))
    except FileExistsError:
        raise UsageError(f"{path}: exists already; --force overwrites it") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    click.echo(f"wrote {path}; `parity validate {path}` checks it, `parity run {path}` runs it")
    return 0
