"""`parity inspect`."""

from pathlib import Path

import click

from parity.commands.options import key_option, pattern_option
from parity.errors import UsageError

__all__ = ["inspect"]


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--format", "log_format", help="Format of the logs; by default told from their content.")
@key_option
@pattern_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(
    files: tuple[Path, ...], log_format: str | None, key: dict[str, list[str]], pattern: str | None, as_json: bool
) -> int:
    """Show what is understood of logs: format, metrics, steps, gaps, precision, and what was ignored."""
    from parity.console import make_console
    from parity.curves import read
    from parity.inspection import Inspected, InspectedFile
    from parity.inspection import inspect as understand
    from parity.report.inspection import render_inspection

    seen: list[InspectedFile] = []
    wrong: list[str] = []
    for path in files:
        try:
            leg = read(path, format=log_format, keys=key or None, pattern=pattern)
        except UsageError as error:
            wrong += error.lines
            seen.append(InspectedFile(source=str(path), error="\n".join(error.lines)))
        else:
            seen.append(understand(leg, given=log_format is not None or pattern is not None))
    if as_json:
        click.echo(Inspected(files=seen).model_dump_json(indent=1))
    else:
        render_inspection(seen, make_console())
    if wrong:
        raise UsageError(*wrong)
    return 0
