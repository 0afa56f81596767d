"""What must hold of every file: curves or one line that says what to do, never a traceback."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import note
from hypothesis import strategies as st

from parity.curves import LegCurves, formats, read
from parity.curves.printed import Printed
from parity.errors import UsageError
from parity.inspection import inspect
from parity.judge_logs import LogSource, judge_logs
from tests.fuzz.mutate import mutated
from tests.fuzz.samples import Sample, samples

__all__ = ["Source", "check", "sources", "write_source"]

Source = tuple[str, Sample, dict[str, object]]
"""A sample's name, its files with one of them mutated, and how to read it."""

PATTERN = r"step\D*(?P<step>\d+).*loss\W*(?P<loss>\S+)"


@st.composite
def sources(draw: st.DrawFn) -> Source:
    """What is to be read."""
    name, other = draw(st.sampled_from(sorted(samples()))), draw(st.sampled_from(sorted(samples())))
    files = dict(samples()[name])
    chosen = draw(st.sampled_from(sorted(files)))
    files[chosen] = draw(mutated(files[chosen], next(iter(samples()[other].values()))))
    how: st.SearchStrategy[dict[str, object]] = st.one_of(
        st.just({}),
        st.just({}),
        st.sampled_from(sorted(formats().keys() - {"pattern"})).map(lambda one: {"format": one}),
        st.just({"pattern": PATTERN}),
        st.sampled_from([{"loss": "loss"}, {"loss": ["a.b", "lr"]}, {"step": "epoch"}, {"grad_norm": "loss"}]).map(
            lambda keys: {"keys": keys}
        ),
    )
    return name, files, draw(how)


def check(folder: Path, source: Source, seconds: float | None = None) -> None:
    """Write the files, read them, and hold what comes of it to what is promised.

    Args:
        seconds: of processor time that all of it may take.
    """
    name, files, how = source
    path = write_source(folder, files)
    note(f"{name}, {how}")
    started = time.process_time()
    leg, said = _read(path, how)
    if leg is not None:
        _is_sound(leg)
        inspect(leg, given=bool(how)).model_dump_json()
        _compared(path, folder, how)
    with mock.patch.object(Printed, "_can_be_alike", return_value=False):
        assert _told(*_read(path, how)) == _told(leg, said), "in columns it reads otherwise than line by line"
    spent = time.process_time() - started
    assert seconds is None or spent < seconds, f"took {spent:.1f} s"


def write_source(folder: Path, files: Sample) -> Path:
    """Write a sample's files, and return the path to read."""
    for name, data in files.items():
        path = folder / (name or "log")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder / next(iter(files)).split("/")[0] if "" not in files else folder / "log"


def _read(path: Path, how: Mapping[str, object]) -> tuple[LegCurves | None, list[str]]:
    try:
        return read(path, **how), []  # type: ignore[arg-type]
    except UsageError as error:
        for line in error.lines:
            assert "\n" not in line
            assert line.isprintable()
            assert len(line) < 2000
        return None, [*error.lines]


def _is_sound(leg: LegCurves) -> None:
    for curve in leg.curves.values():
        assert curve.steps.shape == curve.values.shape
        assert curve.steps.dtype == np.int64
        assert curve.values.dtype == np.float64
        assert curve.steps.size
        assert np.all(curve.steps[1:] > curve.steps[:-1])
        assert np.all(curve.resolution.at(curve.values) >= 0)
    for one in leg.notes:
        assert one.text.isprintable()
        assert len(one.text) < 1000


def _compared(path: Path, folder: Path, how: Mapping[str, object]) -> None:
    """Against itself, under another name: whatever is in it, the same is no other."""
    twin = folder / "twin"
    if not twin.exists():
        os.symlink(path, twin, target_is_directory=path.is_dir())
    options = {key: value for key, value in how.items() if key != "keys"}
    sources = [LogSource(one, **options) for one in (path, twin)]  # type: ignore[arg-type]
    try:
        judged = judge_logs([("baseline", sources[0]), ("candidate", sources[1])])
    except UsageError:
        return
    assert judged.result.verdict in {"pass", "inconclusive"}


def _told(leg: LegCurves | None, said: list[str]) -> object:
    if leg is None:
        return said
    notes = sorted(one.text for one in leg.notes)
    curves = [
        (name, one.steps.tobytes(), one.values.tobytes(), one.resolution, repr(one.conflicts), one.missing)
        for name, one in leg.curves.items()
    ]
    return leg.format, leg.fields, leg.others, notes, curves
