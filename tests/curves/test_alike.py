"""Lines of one shape are read in columns, and nothing of what is read tells."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.curves import formats, opening, read
from parity.curves.alike import Alike
from parity.curves.printed import Printed
from parity.curves.reading import Reading
from parity.curves.shape import learn
from parity.errors import UsageError
from tests.curves.conftest import Write

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
LOGS = Path(__file__).parents[1] / "data" / "logs"


def told(path: Path, **options: Any) -> object:
    """Everything that reading gives, to be compared to the last bit; but notes come as their kinds are noticed, which
    is another order where lines are taken together."""
    try:
        leg = read(path, **options)
    except UsageError as error:
        return error.lines
    return leg.format, leg.fields, leg.others, sorted(note.text for note in leg.notes), [
        (name, one.steps.tobytes(), one.values.tobytes(), one.resolution, repr(one.conflicts), one.missing)
        for name, one in leg.curves.items()
    ]  # fmt: skip


def both(path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[object, object]:
    """What is read in columns, and line by line."""
    fast = told(path, **options)
    with monkeypatch.context() as patch:
        patch.setattr(Printed, "_can_be_alike", lambda self, step: False)
        slow = told(path, **options)
    return fast, slow


def rows_in_columns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Will hold how many records were taken in columns."""
    taken: list[int] = []
    take = Reading.take_columns

    def counting(self: Reading, steps: Any, columns: Any) -> None:
        taken.append(steps.size)
        take(self, steps, columns)

    monkeypatch.setattr(Reading, "take_columns", counting)
    return taken


def megatron(step: int, loss: str, norm: str, lr: str = "1.000000E-05", more: str = "") -> str:
    return (
        f" [2025-02-20 11:18:36.{step % 1000:03d}] iteration {step:8d}/  100000 | consumed samples: {4 * step:12d} |"
        f" elapsed time per iteration (ms): {1000 + step % 70:.1f} | learning rate: {lr} | global batch size:     4 |"
        f"{loss and f' lm loss: {loss} |'} loss scale: 1.0 | grad norm: {norm} | number of skipped iterations:   0 |"
        f" number of nan iterations:   {int('nan' in norm)} |{more}"
    )


def test_a_long_log_is_read_in_columns_but_for_its_first_lines(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [megatron(s, f"{6 + math.sin(s):.6E}", f"{2 + math.sin(s):.3f}") for s in range(1, 3000)]
    path = write("building\n" + "\nother (min, max) time across ranks (ms): 1.5\n".join(lines) + "\n")
    taken = rows_in_columns(monkeypatch)
    leg = read(path)
    assert sum(taken) > 2900
    assert leg.curves["loss"].steps.tolist() == list(range(1, 3000))
    assert leg.curves["loss"].values.tolist() == [float(f"{6 + math.sin(s):.6E}") for s in range(1, 3000)]
    assert (leg.curves["loss"].resolution.decimals, leg.curves["grad_norm"].resolution.decimals) == (6, 3)
    fast, slow = both(path, monkeypatch)
    assert fast == slow


def test_notes_name_the_lines_that_they_would_name(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [megatron(s, f"{6.5:.6E}", "2.500") for s in [*range(1, 300), *range(7, 90), *range(3, 50)]]
    lines[150] = lines[150][:90]
    lines[200] = megatron(201, "", "nan")
    path = write("a\nb\n" + "\nx\n".join(lines))
    fast, slow = both(path, monkeypatch)
    assert fast == slow
    assert any("steps go back" in note.text and "line" in note.text for note in read(path).notes)


def test_a_shape_that_is_known_in_the_middle_of_a_piece_is_found_from_there(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [megatron(s, f"{6.5:.6E}", "2.500" if s < 700 else "12.500") for s in range(1, 1400)]
    taken = rows_in_columns(monkeypatch)
    read(write("\n".join(lines)))
    assert sum(taken) > 1300


@pytest.mark.parametrize("piece", [1 << 12, 1 << 15])
def test_lines_cut_by_pieces_are_whole(write: Write, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(opening, "CHUNK", piece)
    monkeypatch.setattr(opening, "PIECE", 2 * piece)
    monkeypatch.setattr(opening, "HEAD", piece)
    lines = [megatron(s, f"{6 + math.sin(s):.6E}", f"{2 + math.sin(s):.3f}") for s in range(1, 900)]
    path = write("\r\n".join(lines))
    fast, slow = both(path, monkeypatch)
    assert fast == slow
    assert read(path).curves["loss"].steps.size == 899


TEXTS = (
    "6.612992E+00 0.000000E+00 9.999999E-01 1.5E-30 1.5E+30 -1.000000E+00 nan inf 2.5 12.25 0.000123 1e-05 7 "
    "1234567.125 12345678901234567.5 007.50 -0.0 1,234.5 NaN 3.1e+2"
)
NUMBER = st.sampled_from(TEXTS.split())
STEP = st.integers(0, 12) | st.integers(95, 105) | st.just(10**9)
FOLLOWING = st.sampled_from(
    ["\n"] * 12 + ["\r\n", "\r", "\n\n", "\nnoise | 1\n", " iteration ", "\x1b[0m\n", "\xff\n"]
)
KINDS = st.sampled_from(["megatron", "automodel", "torchtitan", "maxtext", "nanochat", "nanotron"])
LINES = {
    "megatron": "{rank} iteration {s:6d}/ 100 | elapsed time per iteration (ms): {c} | learning rate: {c} |"
    " lm loss: {a} | grad norm: {b} | number of nan iterations: {n} |",
    "automodel": "{rank}2025-10-06 14:43:56 | INFO | root | step {s} | epoch 0 | loss {a} | grad_norm {b} | lr {c} |"
    " mem 1.5",
    "torchtitan": "{rank}[titan] 2025-05-28 21:13:37,816 - root - INFO - step: {s:2d}  loss: {a}  grad_norm: {b}"
    "  lr: {c}  tps: 85,636  mfu: 1%",
    "maxtext": "{rank}completed step: {s}, seconds: 1.5, TFLOP/s/device: {c}, total_weights: 4, loss: {a}",
    "nanochat": "{rank}step {s:05d}/00100 (1.00%) | loss: {a} | grad norm: {b} | lrm: {c} | dt: 1.5ms | total: 1m",
    "nanotron": "{rank}[INFO|DP=0|PP=0|TP=0]: iteration: {s} / 100 | consumed_tokens: 85.8G | grad_norm: {b} |"
    " lm_loss: {a} | lr: {c}",
}
ROW = st.tuples(
    STEP, NUMBER, NUMBER, NUMBER, st.integers(0, 1), st.sampled_from(["", "", "", "[rank0]:", "[rank1]:"]), FOLLOWING
)


@SHARED
@given(
    kind=KINDS, rows=st.lists(ROW, min_size=1, max_size=12), again=st.integers(1, 8), end=st.sampled_from(["", "\n"])
)
def test_any_lines_are_read_as_they_would_be_one_by_one(
    write: Write, kind: str, rows: Sequence[tuple[Any, ...]], again: int, end: str
) -> None:
    text = "".join(
        LINES[kind].format(s=s, a=a, b=b, c=c, n=n, rank=rank) + following
        for _ in range(again)
        for s, a, b, c, n, rank, following in rows
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        fast, slow = both(write(text + end), monkeypatch, format=kind)
    assert fast == slow


@pytest.mark.parametrize("path", sorted(LOGS.rglob("*.log*")), ids=lambda path: str(path.relative_to(LOGS)))
def test_real_logs_are_read_as_they_would_be_line_by_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = both(path, monkeypatch)
    assert fast == slow


def test_a_hostile_log_of_new_shapes_learns_no_more_than_a_few(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    meet = Alike._meet

    def counting(self: Alike, line: bytes) -> Any:
        counted.append(self._tried)
        return meet(self, line)

    monkeypatch.setattr(Alike, "_meet", counting)
    lines = [megatron(s % 7 + 1, "6.5", "2.5", more=" " + "x" * (s // 2)) for s in range(1, 1500)]
    read(write("\n".join(lines)))
    assert max(counted) <= 128


def parse(line: str) -> list[tuple[str, dict[str, object]]]:
    (one,) = [one for one in formats().values() if one.name == "megatron"]
    assert isinstance(one, Printed)
    return one._parsed(line)


def test_learn__a_number_that_decides_what_the_others_mean_stays_as_it_is() -> None:
    line = megatron(7, "", "2.500").encode()
    shape = learn(line, b"elapsed", parse, ("iteration", "grad norm"))
    assert shape is not None
    other = line.replace(b"nan iterations:   0", b"nan iterations:   1")
    text = bytearray(b"\n" + line + b"\n" + other + b"\n" + b"x" * 64)
    hits = np.array([at for at in range(len(text)) if text.startswith(b"elapsed", at)])
    mine, columns = shape.find(text, np.frombuffer(text, np.uint8), hits)
    assert mine.tolist() == [0]
    assert columns.values["grad norm"].tolist() == [2.5]


@pytest.mark.parametrize(
    "text", ["6.612992E+00", "0.1", "1e-22", "1.5e-21", "9007199254740.25", "1.7E+22", "8e-45", "123E-5"]
)
def test_find__a_number_is_what_reading_its_text_gives(text: str) -> None:
    line = megatron(7, text, "2.500").encode()
    shape = learn(line, b"elapsed", parse, ("iteration", "lm loss"))
    assert shape is not None
    whole = bytearray(b"\n" + line + b"\n" + b"x" * 64)
    _, columns = shape.find(whole, np.frombuffer(whole, np.uint8), np.array([whole.index(b"elapsed")]))
    assert columns.values["lm loss"].tolist() == [float(text)]
