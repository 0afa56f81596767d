"""Reports of suites as people meet them, line by line. `pytest tests/report/test_golden.py --snapshot-update` writes
them anew; look at them before they are committed."""

import re

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from parity.report.first_screen import LINES
from parity.report.markdown import render_markdown
from parity.report.sections import chapters
from tests.report.cases import CASES


class Markdown(SingleFileSnapshotExtension):
    file_extension = "md"
    _write_mode = WriteMode.TEXT


@pytest.mark.parametrize("name", CASES)
def test_the_markdown_report(name: str, snapshot: SnapshotAssertion) -> None:
    assert render_markdown(CASES[name]()) == snapshot(name=name).use_extension(Markdown)


@pytest.mark.parametrize("name", CASES)
def test_the_first_screen_as_plain_text_carries_the_message(name: str) -> None:
    """A mail client that shows the source, and a reader that reads it aloud, have no more than this."""
    result = CASES[name]()
    screen = str(chapters(render_markdown(result))[0])
    lines = [line for line in screen.splitlines() if line]
    assert len(lines) < LINES  # one is left for what changed since the last pass
    assert "<" not in screen.replace("&#60;", "")
    assert f"parity: {result.verdict} · {result.suite}" in lines[0]
    assert re.search(r"\d", lines[1])
    assert not re.search(r"&#\d+;", lines[0] + lines[1])
    (row, *_) = [line for line in lines if line.startswith("| ") and " against tp1 |" in line]
    assert result.verdict in row
    assert f"- **Reproduce:** `{result.reproduce}`" in lines
    assert any(result.tested in line for line in lines if result.tested)
