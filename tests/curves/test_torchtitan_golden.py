import math

import pytest

from parity.curves import read
from parity.errors import UsageError
from tests.curves.conftest import Write


def test_torchtitan_golden__in_full(write: Write) -> None:
    leg = read(write("1 8.049097061157227\n2 nan\n\n3 7.25e-1\n"))
    assert leg.notes[0].text == "torchtitan_golden: 3 lines of a step and a loss"
    assert leg.curves["loss"].steps.tolist() == [1, 2, 3]
    assert leg.curves["loss"].values[[0, 2]].tolist() == [8.049097061157227, 0.725]
    assert math.isnan(leg.curves["loss"].values[1])
    assert leg.curves["loss"].resolution.significant == 16


def test_torchtitan_golden__a_last_line_without_end_may_be_cut(write: Write) -> None:
    leg = read(write("1 8.0\n2 7.0"))
    assert leg.curves["loss"].steps.tolist() == [1]
    assert leg.notes[1].text == "the last line has no end, so its number may be cut, and was ignored: line 2"


@pytest.mark.parametrize("text", ["100 200\n200 300\n", "2 1.5\n1 1.5\n", "1 1.5\nx\n2 1.5\n", "loss 1.5\n"])
def test_torchtitan_golden__other_numbers_are_not_claimed(write: Write, text: str) -> None:
    with pytest.raises(UsageError):
        read(write(text))
