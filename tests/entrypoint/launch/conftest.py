from pathlib import Path

import pytest

from tests.entrypoint.launch.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
