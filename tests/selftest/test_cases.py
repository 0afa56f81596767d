"""What the self-test tries, and what it makes of it."""

import json
from pathlib import Path

import pytest

from parity.layout import AXES
from parity.report.selftest import headline, render_selftest_markdown
from parity.result import VerdictName
from parity.selftest.cases import CLEAN, clean_suite, fault_cases, fault_suite
from parity.selftest.result import CleanRun, FaultRun, Finding, Selftest
from parity.suite import load, train_options
from parity.train.faults import FAULTS


def written(folder: Path, content: dict[str, object]) -> Path:
    path = folder / "suite.yml"
    path.write_text(json.dumps(content))
    return path


def test_every_fault_is_tried_under_every_layout_that_it_applies_to() -> None:
    tried = {(case.fault.name, case.layout) for case in fault_cases()}
    assert tried == {(name, layout) for name, fault in FAULTS.items() for layout in fault.layouts}
    assert {f"M{number}" for number in range(1, 20)} <= {case.fault.mutation for case in fault_cases()}


def test_a_quick_run_has_one_fault_of_each_class_on_the_fewest_ranks() -> None:
    quick = fault_cases(quick=True)
    assert [case.fault.mutation for case in quick] == [
        *(f"M{number}" for number in range(1, 21)),
        *("C1", "C2", "C3"),
    ]
    assert max(case.layout.world_size for case in quick) == 2


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_suites_are_valid_and_each_comparison_has_a_perturbed_baseline(tmp_path: Path, dtype: str) -> None:
    for content in (
        fault_suite(fault_cases(), steps=10, seed=1, dtype=dtype),
        clean_suite(steps=10, seed=3, dtype=dtype),
    ):
        suite = load(written(tmp_path, content))
        assert all(item.perturbed == (f"{item.baseline}.perturbed",) for item in suite.compare)
        assert {train_options(suite, leg).dtype for leg in suite.legs.values()} == {dtype}


def test_a_fault_is_in_the_candidate_alone_unless_it_is_one_of_both(tmp_path: Path) -> None:
    suite = load(written(tmp_path, fault_suite(fault_cases(), steps=10, seed=1, dtype="fp32")))
    for item in suite.compare:
        fault = FAULTS[item.candidate.partition(".")[0]]
        assert train_options(suite, suite.legs[item.candidate]).fault == fault.name
        assert train_options(suite, suite.legs[item.baseline]).fault == (fault.name if fault.both else "")


def test_correct_layouts_use_every_axis() -> None:
    layouts = [layout for _, layouts in CLEAN.values() for layout in layouts]
    assert {axis for layout in layouts for axis, size in layout.sizes().items() if size > 1} == set(AXES)


def fault_run(name: str = "a-fault", mutation: str = "M4", verdict: str = "fail", **more: object) -> FaultRun:
    known = {
        "fault": name,
        "mutation": mutation,
        "bug": "a/b#1",
        "what": "something is wrong",
        "layout": "tp2",
        "both": False,
        "expected": "fail",
        "verdict": verdict,
        "with_control": verdict,
        "summary": f"{name} is {verdict}",
    }
    return FaultRun.model_validate({**known, **more})


def clean_run(verdict: VerdictName = "pass", layout: str = "tp2") -> CleanRun:
    worst = Finding(check="loss", what="loss", step=3, times_allowed=0.25)
    return CleanRun(
        model="qwen3", layout=layout, seed=1, verdict=verdict, worst=worst, summary=f"{layout} is {verdict}"
    )


def result(*runs: FaultRun | CleanRun, dtype: str = "fp32") -> Selftest:
    faults = [run for run in runs if isinstance(run, FaultRun)]
    clean = [run for run in runs if isinstance(run, CleanRun)]
    return Selftest.model_validate(
        {"dtype": dtype, "steps": 10, "seeds": [1], "seconds": 1.0, "faults": faults, "clean": clean}
    )


def test_a_class_is_caught_only_if_it_is_in_every_layout() -> None:
    found = result(fault_run(), fault_run("another", verdict="pass", layout="pp2"), fault_run("third", "M5"))
    assert found.classes == {"M4": False, "M5": True}
    assert headline(found)[0] == "1 of 2 classes of faults caught in every layout; 2 of 3 faults by layout"
    assert not found.as_it_should_be


def test_a_false_alarm_is_one_in_any_dtype_and_a_miss_only_in_fp32() -> None:
    assert result(fault_run(), clean_run()).as_it_should_be
    assert not result(fault_run(), clean_run("fail")).as_it_should_be
    assert not result(fault_run(), clean_run("inconclusive")).as_it_should_be
    assert result(fault_run(), clean_run("inconclusive"), dtype="bf16").as_it_should_be
    assert not result(fault_run(with_control="pass"), clean_run()).as_it_should_be
    assert not result().as_it_should_be
    assert headline(result(clean_run("inconclusive")))[-1].endswith("correct layouts, of which 1 are inconclusive")
    assert result(fault_run(verdict="pass"), clean_run(), dtype="bf16").as_it_should_be


def test_a_control_that_fails_where_it_should_pass_is_not_as_it_should_be() -> None:
    wrong = fault_run("micro-batches-reordered", "C1", "fail", expected="pass")
    assert not result(wrong).as_it_should_be
    assert headline(result(wrong)) == ["0 of 1 controls are what they should be"]


def test_markdown_tells_what_was_missed_and_why_and_holds_untrusted_text_back() -> None:
    missed = fault_run("missed", verdict="pass", summary="within | bounds <!--")
    text = render_selftest_markdown(result(missed, clean_run(), clean_run("fail", "pp2")))
    assert "- **missed** under tp2 should be fail and is pass: within &#124; bounds" in text
    assert "<!--" not in text
    assert "| qwen3 | tp2 | 1 | 0 | 0.25 (loss, loss) |" in text
    assert "1 false alarms in 2 runs of correct layouts" in text


def test_the_result_is_read_back_as_it_was_written() -> None:
    found = result(fault_run(finding={"check": "loss", "times_allowed": float("inf")}), clean_run())
    assert Selftest.model_validate_json(found.dumps()) == found
