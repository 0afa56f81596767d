"""Draw a picture of a report for the README: `python -m tests.picture RESULT PICTURE`."""

import sys
import tempfile
from pathlib import Path

from rich.console import Console

from parity.report.html import render_html
from parity.report.terminal import render_terminal
from parity.result import read_result
from tests.report import browser


def main(result: Path, picture: Path) -> None:
    """Draw a result as the terminal shows it into an SVG file, or the top of the HTML report into a PNG file."""
    if picture.suffix == ".png":
        with tempfile.TemporaryDirectory() as folder, browser.browser() as chromium:
            page = Path(folder) / "report.html"
            page.write_text(render_html(read_result(result)), encoding="utf-8")
            context = chromium.new_context(viewport={"width": 1200, "height": 1000})
            browser.drawn(context.new_page(), page).screenshot(path=picture)
        return
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=126, file=nowhere, force_terminal=True, highlight=False)
        render_terminal(read_result(result), console, "parity-out")
    picture.write_text(console.export_svg(title="make run"), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
