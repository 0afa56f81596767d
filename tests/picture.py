"""Draw a picture of a report for the README: `python -m tests.picture RESULT PICTURE`, or of a Markdown report."""

import sys
import tempfile
from pathlib import Path

from markdown_it import MarkdownIt
from rich.console import Console

from parity.report.html import render_html
from parity.report.terminal import render_terminal
from parity.result import read_result
from tests.report import browser

# Somewhat as GitHub lays out a comment.
_STYLE = """
body { box-sizing: border-box; width: 860px; margin: 0; padding: 8px 24px; background: #fff; color: #1f2328;
       font: 14px/1.5 system-ui, "Noto Sans", Helvetica, Arial, sans-serif }
h2 { border-bottom: 1px solid #d1d9e0; padding-bottom: .3em; margin: 8px 0 12px }
table { border-collapse: collapse; margin-bottom: 12px; font-size: 12.5px }
th, td { border: 1px solid #d1d9e0; padding: 5px 8px; white-space: nowrap }
code { background: #eff1f3; padding: .2em .4em; font-size: 85% }
ul { padding-left: 24px } p { margin: 8px 0 }
"""


def main(result: Path, picture: Path) -> None:
    """Draw a result as the terminal shows it into an SVG file, or the top of the HTML report into a PNG file; of a
    Markdown file what a comment shows before anything is unfolded.
    """
    if result.suffix == ".md":
        _comment(result, picture)
        return
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


def _comment(report: Path, picture: Path) -> None:
    markdown = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(report.read_text(encoding="utf-8"))
    with browser.browser() as chromium:
        page = chromium.new_context(viewport={"width": 860, "height": 600}).new_page()
        page.set_content(f"<!doctype html><style>{_STYLE}</style>{markdown}")
        page.locator("body").screenshot(path=picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
