"""Files to read, written as a run would leave them."""

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a log and return its path."""

    def _write(content: str | bytes) -> Path:
        path = tmp_path / "log.jsonl"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return _write
