import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.curves import read
from parity.curves.pattern import problem
from parity.errors import UsageError
from tests.curves.conftest import Write

PLAIN = r"step (?P<step>\d+).*loss (?P<loss>\S+)"


def test_pattern__a_curve_for_each_group(write: Write) -> None:
    text = "Iter step 1 of 9: loss 2.500 (3.1)\x1b[0m\nother\nstep 2: train loss 2.61e+00\nstep 3: loss nan\n"
    leg = read(write(text), pattern=PLAIN)
    assert leg.format == "pattern"
    assert leg.curves["loss"].steps.tolist() == [1, 2, 3]
    assert np.array_equal(leg.curves["loss"].values, [2.5, 2.61, np.nan], equal_nan=True)
    assert leg.curves["loss"].resolution.decimals == 3


def test_pattern__the_value_beside_a_mean_is_the_user_s_choice(write: Write) -> None:
    # As in microsoft/unilm#598: a median, and the mean in brackets.
    text = "[ 10/625] lr: 0.000000 loss: 6.9 (7.0) grad_norm: 0.3922 (nan)\n"
    median = read(write(text), pattern=r"\[ *(?P<step>\d+)/\d+\].*grad_norm: (?P<grad_norm>\S+)")
    assert median.curves["grad_norm"].values.tolist() == [0.3922]
    mean = read(write(text), pattern=r"\[ *(?P<step>\d+)/\d+\].*grad_norm: \S+ \((?P<grad_norm>\S+)\)")
    assert np.isnan(mean.curves["grad_norm"].values).all()


def test_pattern__ranks_and_bars(write: Write) -> None:
    text = "[rank0]: step 1 loss 2.5\r[rank1]: step 1 loss 2.6\r\n"
    leg = read(write(text), pattern=PLAIN)
    assert leg.curves["loss"].conflicts[0].values == (2.5, 2.6)
    assert any("rank 1 prints another loss than rank 0" in note.text for note in leg.notes)


def test_pattern__a_group_that_did_not_match_is_missing(write: Write) -> None:
    leg = read(write("step 1 loss 2.5 norm 3\nstep 2 loss 2.4\n"), pattern=PLAIN + r"(?: norm (?P<grad_norm>\S+))?")
    assert leg.curves["grad_norm"].missing == (2,)


def test_pattern__keys_may_rename_groups(write: Write) -> None:
    leg = read(write("1 a 2.5\n"), pattern=r"^(?P<at>\d) (?P<step>\w) (?P<x>\S+)", keys={"loss": "x", "step": "at"})
    assert leg.curves["loss"].values.tolist() == [2.5]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "be a regular expression of RE2, which has no look-around and no back-references: missing )"),
        (r"(?P<step>\d)(?<=a)(?P<loss>b)", "be a regular expression of RE2"),
        (r"(?P<step>\d)(?P<loss>b)\1", "be a regular expression of RE2"),
        (r"(?P<step>\d)(?P<loss>((a{1,100}){1,100}){1,100})", "be a regular expression of RE2"),
        (r"loss (?P<loss>\S+)", "have groups named step and after metrics, such as 'step"),
        (r"step (?P<step>\d+)", "have groups named step and after metrics"),
        ("x" * 2000, "be at most 1000 characters long"),
    ],
)
def test_problem(write: Write, pattern: str, why: str) -> None:
    assert problem(pattern).startswith(why)
    with pytest.raises(UsageError, match=r"^pattern: must (be|have)") as caught:
        read(write("step 1 loss 2.5\n"), pattern=pattern)
    assert len(caught.value.lines) == 1


def test_pattern__one_that_takes_python_for_ever_is_done_at_once(write: Write) -> None:
    text = "a" * 500_000 + "b\nstep 1 loss 2.5\n"
    leg = read(write(text), pattern=r"(a+)+$|step (?P<step>\d+) loss (?P<loss>\S+)")
    assert leg.curves["loss"].values.tolist() == [2.5]


def test_pattern__finds_nothing(write: Write) -> None:
    with pytest.raises(UsageError, match=r"no line is a match of the pattern"):
        read(write("step one\n"), pattern=PLAIN)


def test_pattern__with_another_format(write: Write) -> None:
    with pytest.raises(UsageError, match=r"^pattern: only for format: pattern, not jsonl"):
        read(write("x\n"), pattern=PLAIN, format="jsonl")
    with pytest.raises(UsageError, match=r"format: pattern needs a pattern, such as"):
        read(write("x\n"), format="pattern")
    assert read(write("step 1 loss 2\n"), pattern=PLAIN, format="pattern").format == "pattern"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(pattern=st.text(max_size=12) | st.text("()?P<step>\\d+[]{1,9}|*.^$", max_size=30), text=st.text(max_size=60))
def test_pattern__any_pattern_on_any_text_gives_curves_or_one_line(write: Write, pattern: str, text: str) -> None:
    full = rf"(?:{pattern})|(?P<step>\d)(?P<loss>\d)"
    try:
        read(write(text.encode("utf-8", "surrogatepass")), pattern=full)
    except UsageError as error:
        lines = error.lines
    else:
        lines = ()
    assert all(line.isprintable() for line in lines)
