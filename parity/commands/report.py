"""`parity report`."""

from pathlib import Path

import click

__all__ = ["report"]


@click.command()
@click.argument("run_dir", default="parity-out", type=click.Path(path_type=Path))
@click.option(
    "--format", "kind", type=click.Choice(["terminal", "markdown", "junit"]), default="terminal", show_default=True
)
def report(run_dir: Path, kind: str) -> int:
    """Show the report of RUN_DIR again, from its result.json."""
    from parity.checks.outcome import Verdict
    from parity.deliver import make_console
    from parity.report.junit import render_junit
    from parity.report.markdown import render_markdown
    from parity.report.terminal import render_terminal
    from parity.result import read_result

    result = read_result(run_dir / "result.json" if run_dir.is_dir() else run_dir)
    if kind == "markdown":
        click.echo(render_markdown(result), nl=False)
    elif kind == "junit":
        click.echo(render_junit(result), nl=False)
    else:
        render_terminal(result, make_console())
    return Verdict(result.verdict).exit_code
