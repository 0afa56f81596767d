import contextlib
import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.curves import LegCurves, read
from parity.errors import UsageError
from tests.curves.conftest import Write


def refused(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(UsageError) as error:
        read(*args, **kwargs)
    (line,) = error.value.lines
    return line.split(": ", 1)[1]


def notes(leg: LegCurves) -> list[str]:
    return [note.text for note in leg.notes]


LIGHTNING = """\
epoch,grad_norm,lr-AdamW,step,train_loss,val_loss
,,0.001,0,,
0,1.8312,,0,10.9123,
0,1.75,,1,10.9,
0,,,1,,9.5
0,1.5,,11,10.25,
0,1.625,,2,10.5,
"""


def test_csv__lightning_with_sparse_rows_and_steps_sorted_as_text(write: Write) -> None:
    leg = read(write(LIGHTNING))
    assert notes(leg) == [
        "csv: a header of 6 columns, with epoch, grad_norm, lr-AdamW, step, train_loss, val_loss",
        "records with a step and no metric, as of evaluations, were ignored: line 5",
        "loss: steps are out of order and were sorted",
        "grad_norm: steps are out of order and were sorted",
    ]
    assert leg.curves["loss"].steps.tolist() == [0, 1, 2, 11]
    assert leg.curves["loss"].values.tolist() == [10.9123, 10.9, 10.5, 10.25]
    assert leg.curves["grad_norm"].values.tolist() == [1.8312, 1.75, 1.625, 1.5]
    assert leg.curves["loss"].missing == leg.curves["grad_norm"].missing == ()
    assert leg.curves["lr"].steps.tolist() == [0]


def test_csv__a_row_of_a_step_alone_misses_its_values(write: Write) -> None:
    # pandas writes NaN as nothing.
    leg = read(write("step,loss,grad_norm\n0,1.5,2.5\n1,,\n2,,2.75\n3,1.25,2.5\n"))
    assert leg.curves["loss"].missing == (1, 2)
    assert leg.curves["grad_norm"].missing == (1,)


@pytest.mark.parametrize("name", ["Train_Samples_train_loss.csv", "source.Train_Samples_train_loss.csv"])
def test_csv__deepspeed_counts_samples_and_begins_again_with_a_header(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("step,train_loss\n8,2.5\n16,2.25\nstep,train_loss\n24,2.125\n")
    leg = read(path)
    assert leg.curves["loss"].steps.tolist() == [1, 2, 3]
    assert notes(leg)[1:] == [
        "the header again, as of another start: line 4",
        "DeepSpeed counts samples: 8 were taken for one step, the first of which is 1",
    ]
    path.write_text("step,train_loss\n80,2.5\n88,2.25\n")
    leg = read(path)
    assert leg.curves["loss"].steps.tolist() == [80, 88]
    assert notes(leg)[1:] == ["DeepSpeed counts samples, taken for steps here: compare runs of equal batch size only"]


def test_csv__quotes_thousands_and_empty_lines(write: Write) -> None:
    leg = read(write('\n"step","train/loss"\r\n1,"1,234.50"\r\n\r\n2," nan "\r\n,\r\n3,2.50\r\n'))
    loss = leg.curves["loss"]
    assert loss.values[[0, 2]].tolist() == [1234.5, 2.5]
    assert math.isnan(loss.values[1])
    assert loss.resolution.decimals == 2


def test_csv__a_decimal_comma_is_not_guessed_at(write: Write) -> None:
    path = write('step;loss\n1;1.5\n2;"1,234"\n')
    assert refused(path) == "has '1,234' at line 3: thousands or decimals? Use points alone"


def test_csv__tabs_and_an_index(write: Write) -> None:
    assert read(write("step\tloss\n0\t1.5\n")).curves["loss"].values.tolist() == [1.5]
    assert read(write(",step,loss\n0,5,1.5\n")).curves["loss"].steps.tolist() == [5]


def test_csv__a_last_line_without_end_may_be_cut(write: Write) -> None:
    leg = read(write("step,loss\n0,1.5\n1,1.2"))
    assert leg.curves["loss"].steps.tolist() == [0]
    assert notes(leg)[1] == "the last line has no end, so its numbers may be cut, and was ignored: line 3"


def test_csv__rows_that_do_not_fit_are_noted(write: Write) -> None:
    leg = read(write("step,loss\n0,1.5\n1,2,3\nstopped\n2,1.5\n"))
    assert leg.curves["loss"].steps.tolist() == [0, 2]
    assert notes(leg)[1] == "rows of another number of columns were ignored: lines 3, 4"


def test_csv__what_cannot_be_told(write: Write) -> None:
    assert refused(write("loss,norm\n1.5,1\n")) == (
        "no record has a step; the keys are: loss, norm; name it, keys: {step: …} (--key step=…)"
    )
    assert refused(write("step,loss,train/loss\n1,2,3\n")) == (
        "loss and train/loss could each be the loss: say which, keys: {loss: loss} (--key loss=loss)"
    )
    assert refused(write("step,loss,loss\n1,2,3\n")) == "has several columns of one name, loss: rename all but one"
    assert refused(write("step,a\n1,2\n")).startswith("no record has a loss, grad_norm, lr; the keys are: a, step")
    assert refused(write("1,2\n3,4\n"), format="csv").startswith(
        "has no header: its first line must name the columns"
    )
    assert refused(write('step,loss\n1,"' + "x\n" * 200_000)).startswith("is no CSV at line")


def test_csv__keys(write: Write) -> None:
    leg = read(write("it,my loss\n1,2.5\n"), format="csv", keys={"step": "it", "loss": "my loss"})
    assert leg.curves["loss"].values.tolist() == [2.5]


@pytest.mark.parametrize(
    "text", ["name,price\n1,2\n", "Loading, please wait\n3, 4\n", "step,loss\n", '{"step": 0, "x": 1}\n{"step": 1}\n']
)
def test_csv__other_text_is_not_claimed(write: Write, text: str) -> None:
    with contextlib.suppress(UsageError):
        assert read(write(text)).format != "csv"


SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
PIECES = st.sampled_from(
    ["step,loss\n", "step;loss\n", "1", ",", ";", '"', "\n", "\r", "x", "nan", "1,234.5", "1e999"]
)


@SHARED
@given(st.lists(PIECES, max_size=20).map("".join) | st.text(max_size=20), st.sampled_from([None, "csv"]))
def test_csv__any_text_gives_curves_or_one_line(write: Write, text: str, format_name: str | None) -> None:
    for whole in (text, "step,loss\n" + text):
        try:
            read(write(whole.encode(errors="replace")), format=format_name)
        except UsageError as error:
            (line,) = error.lines
            assert line.isprintable()


@SHARED
@given(st.dictionaries(st.integers(0, 2**53), st.floats(), min_size=1, max_size=20), st.sampled_from(",;\t"))
def test_csv__values_come_back_bit_for_bit(write: Write, values: dict[int, float], delimiter: str) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([("step", "loss"), *values.items()])
    loss = read(write(text.getvalue())).curves["loss"]
    assert loss.steps.tolist() == sorted(values)
    assert np.array_equal(loss.values, [values[step] for step in sorted(values)], equal_nan=True)
