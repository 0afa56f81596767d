import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from parity.curves import read
from tests.fuzz.readers import Source, check, sources, write_source
from tests.fuzz.samples import samples


# Else nothing would be fuzzed but the detection.
@pytest.mark.parametrize("name", samples())
def test_samples__are_read_before_they_are_mutated(name: str, tmp_path: Path) -> None:
    path = write_source(tmp_path, samples()[name])
    assert read(path).curves


@pytest.mark.slow
@settings(max_examples=400)
@given(sources())
def test_readers__any_damage_to_a_real_log_gives_curves_or_a_line(source: Source) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder), source)
