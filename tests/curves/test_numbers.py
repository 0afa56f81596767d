import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.curves import numbers
from parity.curves.numbers import ABSENT, as_number, as_step, cells, digits, resolution, steps_in
from parity.curves.records import Repeated


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (2.5, 2.5),
        (3, 3.0),
        ("2.1048", 2.1048),
        (" 4.9e-05 ", 4.9e-05),
        ("1,234.5", 1234.5),
        ("-12,345,678", -12345678.0),
        ("430", 430.0),
        ("-.5", -0.5),
        ("Infinity", math.inf),
        ("-inf", -math.inf),
        (10**400, math.inf),
        (-(10**400), -math.inf),
    ],
)
def test_as_number(value: Any, number: float) -> None:
    assert as_number(value) == number


def test_as_number__nan() -> None:
    for value in ("nan", "NaN", math.nan):
        number = as_number(value)
        assert number is not None
        assert math.isnan(number)


@pytest.mark.parametrize(
    "value", [True, None, [], {}, "", "1_000", "1,5", "1,2345", "0,123", ",123", "١", "0x1", "1 2", "1" * 100]
)
def test_as_number__not_numbers(value: Any) -> None:
    assert as_number(value) is None


@pytest.mark.parametrize(
    "value", [794, 794.0, "794", "794.0", "7.94e2", "794/4389", "794 / 1000", Repeated((794, 794.0))]
)
def test_as_step(value: Any) -> None:
    assert as_step(value) == 794


@pytest.mark.parametrize(
    "value",
    [
        -1,
        0.5,
        "2/",
        "2/3/4",
        True,
        math.nan,
        math.inf,
        "nan",
        "1e400",
        10**30,
        1e300,
        [],
        Repeated((1, 2)),
        Repeated(([], 1)),
    ],
)
def test_as_step__not_steps(value: Any) -> None:
    assert as_step(value) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5.555", (3, 4)),
        ("5.550", (3, 4)),
        ("1,234.5", (1, 5)),
        ("6.612992E+00", (6, 7)),
        ("4.9e-05", (6, 2)),
        ("-0.0012", (4, 2)),
        ("100", (0, 3)),
        ("1e+16", (0, 1)),
        ("0", (0, 1)),
        ("nan", (0, 0)),
        ("-inf", (0, 0)),
        ("1e-99999999", (340, 1)),
    ],
)
def test_digits(text: str, expected: tuple[int, int]) -> None:
    assert digits(text) == expected


VALUES = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30)


def trimmed(text: str) -> tuple[int, int]:
    """What can be known of a printed number once trailing zeros are lost."""
    value, _, exponent = text.partition("e")
    value = value.rstrip("0").rstrip(".") if "." in value else value
    return digits(value + ("e" + exponent if exponent else ""))


@given(VALUES, st.integers(0, 6))
def test_resolution__of_fixed_decimals(values: list[float], decimals: int) -> None:
    texts = [f"{value:.{decimals}f}" for value in values]
    found = resolution(np.array([float(text) for text in texts]))
    assert found.decimals == max(trimmed(text)[0] for text in texts)
    assert found.significant == max(trimmed(text)[1] for text in texts)


@given(VALUES, st.integers(1, 9))
def test_resolution__of_fixed_significant_digits(values: list[float], significant: int) -> None:
    texts = [f"{value:.{significant}g}" for value in values]
    found = resolution(np.array([float(text) for text in texts]))
    assert found.decimals == max(trimmed(text)[0] for text in texts)
    # 1e+02 is printed with one digit and reads back as 100: whole numbers show all of theirs.
    assert max(trimmed(text)[1] for text in texts) <= found.significant <= max(significant, 4)


def test_resolution__of_a_long_rounded_curve() -> None:
    values = np.round(np.random.default_rng(0).normal(6, 1, 100_000), 4)
    assert resolution(values).decimals == 4
    assert resolution(values).at(np.array([5.5]))[0] == pytest.approx(1e-4)


def test_resolution__of_full_precision() -> None:
    values = np.random.default_rng(0).normal(6, 1, 100_000)
    assert resolution(values).significant >= 16
    assert resolution(values.astype(np.float32).astype(np.float64)).significant >= 16


def test_resolution__small_values_late_in_a_curve_count() -> None:
    values = np.concatenate([np.random.default_rng(0).uniform(1, 2, 50_000), [1.2345678901234e-9], np.ones(50_000)])
    assert resolution(values).decimals >= 22


def test_resolution__nothing_finite() -> None:
    assert resolution(np.array([math.nan, math.inf])).significant == 1


TEXTS = st.one_of(
    st.floats(allow_nan=False).map(repr),
    st.integers(-(10**22), 10**22).map(str),
    st.from_regex(r"\A[+-]?[0-9]{1,22}(\.[0-9]{0,42})?([eE][+-]?[0-9]{1,4})?\Z"),
    st.sampled_from(
        ["0.0", "007", "5.e3", ".5", "1e400", "nan", "1,234", "", " 1", "1\n", "1\r", "1_0", "١", "0" * 60]
    ),
)


@given(st.lists(TEXTS | st.just(ABSENT), max_size=8))
def test_cells__of_texts_are_what_each_text_gives(column: list[object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbers, "_printed", lambda column: None)
        slow = cells(column)
    fast = cells(column)
    for name in ("rows", "values", "touched"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name))
    assert (fast.odd, fast.decimals, fast.significant, fast.texts) == (
        slow.odd,
        slow.decimals,
        slow.significant,
        slow.texts,
    )


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_steps_in__are_what_each_text_gives(column: list[str]) -> None:
    found = steps_in(column)
    assert found is None or found == [as_step(one) for one in column]


def test_steps_in__a_column_of_digits() -> None:
    assert steps_in(["0", "12", "0013"]) == [0, 12, 13]
    assert steps_in(["1", 2]) is None
