"""`parity report`."""

from pathlib import Path

import click

__all__ = ["report"]


@click.command()
@click.argument("run_dir", default="parity-out", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "kind",
    type=click.Choice(["terminal", "markdown", "html", "junit"]),
    default="terminal",
    show_default=True,
)
def report(run_dir: Path, kind: str) -> int:
    """Show the report of RUN_DIR again, from its result.json."""
    from parity.checks.outcome import Verdict
    from parity.console import make_console
    from parity.report.html import render_html
    from parity.report.junit import render_junit
    from parity.report.markdown import render_markdown
    from parity.report.terminal import render_terminal
    from parity.result import read_result

    result = read_result(run_dir / "result.json" if run_dir.is_dir() else run_dir)
    render = {"markdown": render_markdown, "html": render_html, "junit": render_junit}.get(kind)
    if render is None:
        render_terminal(result, make_console())
    else:
        click.echo(render(result), nl=False)
    return Verdict(result.verdict).exit_code
