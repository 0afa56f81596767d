"""Draw the README's picture of a report: `python -m tests.picture RESULT PICTURE`."""

import sys
from pathlib import Path

from rich.console import Console

from parity.report.terminal import render_terminal
from parity.result import read_result


def main(result: Path, picture: Path) -> None:
    """Render a result as the terminal shows it, into an SVG file."""
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=126, file=nowhere, force_terminal=True, highlight=False)
        render_terminal(read_result(result), console, "parity-out")
    picture.write_text(console.export_svg(title="make run"), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
