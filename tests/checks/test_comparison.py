"""Which steps of two logs are the same, where they count from other numbers."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from parity.checks.comparison import Comparison, Leg
from parity.checks.outcome import Status, Verdict
from parity.curves import read
from parity.judge_logs import LogSource, judge_logs
from tests.checks.test_bounds import outcome, verdict
from tests.drawing import LOSS, NORM, compare, curve, leg


def counted(name: str, first: int, *, base: int | None = None, count: int = 20, factor: float = 1.0) -> Leg:
    steps = np.arange(first, first + count)
    one = leg(name, curve("loss", factor * LOSS[:count], steps), curve("grad_norm", NORM[:count], steps))
    return dataclasses.replace(one, curves=dataclasses.replace(one.curves, base=base))


def forward(comparison: Comparison) -> tuple[Status, bool]:
    one = outcome(comparison, "forward")
    return one.status, one.required


def test_logs_that_count_from_0_and_from_1_are_not_compared_and_the_hint_says_how() -> None:
    for ours, theirs, which in ((0, 1, "b"), (1, 0, "a")):
        comparison = compare(counted("a", ours), counted("b", theirs))
        assert verdict(comparison) is Verdict.INCONCLUSIVE
        reason = outcome(comparison, "complete").reason
        assert f"say `first_step: 1` for {which} (--first-step {ours} --candidate-first-step {theirs})" in reason


def test_a_log_from_1_that_is_a_step_shorter_is_not_compared_with_the_next_step() -> None:
    # Compared by number, each loss would be held against the one before it, and the verdict would be `fail`.
    comparison = compare(counted("a", 0), counted("b", 1, count=19))
    assert verdict(comparison) is Verdict.INCONCLUSIVE
    assert comparison.gap("loss") is None


def test_a_step_that_is_missing_by_both_formats_is_missing() -> None:
    a, b = counted("a", 0, base=0), counted("b", 0, base=0, factor=1.01)
    b = dataclasses.replace(b, curves=dataclasses.replace(b.curves, curves={
        metric: dataclasses.replace(one, steps=one.steps[1:], values=one.values[1:])
        for metric, one in b.curves.curves.items()
    }))  # fmt: skip
    comparison = compare(a, b)
    assert comparison.shift == 0
    assert verdict(comparison) is Verdict.FAIL


def test_two_logs_that_count_from_1_have_their_first_step() -> None:
    assert forward(compare(counted("a", 1, base=1), counted("b", 1, base=1))) == (Status.PASS, True)
    off = compare(counted("a", 1, base=1), counted("b", 1, base=1, factor=1 + 1e-5))
    assert forward(off) == (Status.FAIL, True)
    assert forward(compare(counted("a", 1), counted("b", 1))) == (Status.PASS, True)


@pytest.mark.parametrize(("base", "first"), [(1, 101), (0, 1), (1, 2), (None, 2)])
def test_the_first_step_of_a_log_that_begins_later_is_not_the_first(base: int | None, first: int) -> None:
    comparison = compare(counted("a", first, base=base), counted("b", first, base=base, factor=1 + 1e-5))
    assert forward(comparison) == (Status.NOT_RUN, False)
    assert comparison.updates(np.array([first]))[0] > 0
    assert outcome(comparison, "loss").status is Status.PASS


def log(path: Path, first: int, text: str) -> Path:
    lines = [text.format(step=first + at, loss=loss) for at, loss in enumerate(LOSS[:12])]
    path.write_text("\n".join(lines) + "\n")
    return path


MEGATRON = " iteration {step:8d}/ 100 | elapsed time per iteration (ms): 1.5 | lm loss: {loss:.6E} |"
RECORDED = '{{"kind": "step", "step": {step}, "loss": {loss:.6f}}}'
GENERIC = '{{"step": {step}, "loss": {loss:.6f}}}'


def test_formats_that_prove_how_they_count_are_aligned_and_it_is_noted(tmp_path: Path) -> None:
    a, b = log(tmp_path / "a.log", 1, MEGATRON), log(tmp_path / "b.jsonl", 0, RECORDED)
    result = judge_logs([("baseline", LogSource(a)), ("candidate", LogSource(b))], profile="bf16").result
    assert result.comparisons[0].metrics[0].steps == 12
    assert "megatron counts steps from 1; they are counted from 0 here, as another leg's are" in result.legs[0].notes


def test_a_log_that_proves_nothing_is_not_aligned_but_when_asked(tmp_path: Path) -> None:
    a, b = log(tmp_path / "a.log", 1, MEGATRON), log(tmp_path / "b.jsonl", 0, GENERIC)
    sources = LogSource(a), LogSource(b)
    result = judge_logs([("baseline", sources[0]), ("candidate", sources[1])], profile="bf16").result
    assert (result.verdict, "first_step: 1` for a" in result.summary) == ("inconclusive", True)
    asked = dataclasses.replace(sources[0], first_step=1)
    assert judge_logs([("baseline", asked), ("candidate", sources[1])], profile="bf16").result.verdict == "pass"


def test_two_megatron_logs_keep_their_own_numbers(tmp_path: Path) -> None:
    a, b = log(tmp_path / "a.log", 1, MEGATRON), log(tmp_path / "b.log", 1, MEGATRON)
    assert read(a).base == 1
    result = judge_logs([("baseline", LogSource(a)), ("candidate", LogSource(b))], profile="bf16").result
    assert (result.verdict, result.comparisons[0].metrics[0].worst_step) == ("pass", 1)
