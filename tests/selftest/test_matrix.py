"""The matrix that is committed is what the README says of it, and what a run finds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from parity.layout import Layout
from parity.report.selftest import headline, render_selftest_markdown
from parity.selftest.cases import CLEAN, fault_cases, label
from parity.selftest.result import FaultRun, Selftest
from parity.train.faults import FAULTS

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs" / "selftest"
README = (ROOT / "README.md").read_text()


def parity(*arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "parity", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout)


def committed(dtype: str) -> Selftest:
    return Selftest.model_validate_json((FOLDER / f"{dtype}.json").read_text())


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_matrix_is_whole_and_rendered(dtype: str) -> None:
    found = committed(dtype)
    assert {run.name for run in found.faults} == {case.name for case in fault_cases()}
    layouts = {(model, label(layout)) for model, (_, layouts) in CLEAN.items() for layout in layouts}
    assert {(run.model, run.layout) for run in found.clean} == layouts
    assert len(found.clean) == len(layouts) * 6
    assert (FOLDER / f"{dtype}.md").read_text() == render_selftest_markdown(found)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_readme_tells_its_numbers(dtype: str) -> None:
    for line in headline(committed(dtype)):
        assert line in README, line


def test_in_fp32_everything_is_what_it_should_be() -> None:
    found = committed("fp32")
    assert [run.name for run in found.faults if not run.caught] == []
    assert [run.summary for run in found.alarms] == []
    hidden = [run for run in found.mistakes if run.with_control is not None]
    assert len(hidden) >= 60
    assert [run.name for run in hidden if run.with_control == "pass"] == []


def test_in_bf16_no_correct_layout_fails_and_the_readme_names_every_fault_that_is_missed() -> None:
    found = committed("bf16")
    assert found.alarms == []
    for fault in {run.fault for run in found.mistakes if not run.caught}:
        assert f"`{fault}`" in README, fault


# What a hint must say of a fault, beside the ratio that the catalogue gives; `-` where it can say nothing specific: a
# wrong forward disturbs every gradient, so that none points to the place.
SAYS = {
    "loss-plus-log-tp": "log(tp), with tp = 2",
    "norm-gradients-not-reduced": "norms",
    "head-norm-gradients-not-reduced": "norms",
    "router-gradients-not-reduced": "router",
    "gradients-summed-not-averaged": "ll gradients are 2.000 times",
    "expert-gradients-times-ep": "xperts' gradients are 2.000 times",
    "expert-gradients-over-ep": "xperts' gradients are 0.5000 times",
    "accumulation-scaled-at-every-stage": "stage",
    "norm-of-local-shard": "shard",
    "tied-gradients-not-summed": "embeddings",
    "aux-loss-times-micro-batches": "outer",
    "aux-loss-added-twice": "outer",
    "parameter-group-skipped": "a parameter group that the optimizer skips",
    "adam-step-ahead": "0.744",
    "reports-minus-one": "-1",
    "reports-own-loss": "rank 0",
    "optimizer-frozen": "No weight",
    "nan-from-third-step": "step 2",
}


@pytest.mark.parametrize("fault", SAYS)
def test_the_first_hints_name_the_group_and_the_ratio(fault: str) -> None:
    runs = [run for run in committed("fp32").faults if run.fault == fault]
    assert runs
    for run in runs:
        assert SAYS[fault] in " ".join(run.hints[:2]), (run.name, run.hints)


def sizes(run: FaultRun) -> Layout:
    return Layout(**{axis: int(size) for axis, size in re.findall(r"(dp|fsdp|tp|pp|ep|cp)(\d+)", run.layout)})


def test_every_constant_ratio_in_the_catalogue_is_in_a_hint() -> None:
    held = 0
    for run in committed("fp32").faults:
        hint = FAULTS[run.fault].hint
        ratio = None if hint is None or hint.ratio is None else hint.expected(sizes(run), 2)
        if ratio is None or hint is None or hint.of not in ("gradients", "grad_norm"):
            continue
        held += 1
        told = [float(number) for number in re.findall(r"\d+\.\d+", " ".join(run.hints))]
        assert any(abs(number - ratio) <= 0.01 * ratio for number in told), (run.name, ratio, run.hints)
    assert held >= 10


def test_what_looks_like_something_is_never_called_certain() -> None:
    for run in committed("fp32").faults:
        for hint in run.hints:
            assert "looks like" in hint, hint


@pytest.mark.slow
def test_a_quick_run_finds_what_the_committed_matrix_says(tmp_path: Path) -> None:
    ended = parity("selftest", "--quick", "--out", tmp_path / "out", timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = Selftest.model_validate_json((tmp_path / "out" / "selftest.json").read_text())
    known = {run.name: run for run in committed("fp32").faults}
    for run in found.faults:
        assert (run.verdict, run.with_control) == (known[run.name].verdict, known[run.name].with_control), run.name
        assert run.finding is None or run.finding.check == known[run.name].finding.check  # type: ignore[union-attr]
    assert (tmp_path / "out" / "selftest.md").read_text().startswith("# Self-test in fp32")
    assert "0 false alarms in 16 runs of correct layouts" in ended.stdout


@pytest.mark.slow
def test_a_single_fault_can_be_tried_and_looked_into(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = parity("selftest", "--fault", "loss-plus-log-tp", "--out", out)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    again = parity("compare", out / "faults")
    assert again.returncode == 1
    assert "log(tp), with tp = 2" in (out / "faults" / "report.md").read_text()


def test_an_unknown_fault_is_told_with_the_one_that_was_meant(tmp_path: Path) -> None:
    ended = parity("selftest", "--fault", "loss-plus-log", "--out", tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith("--fault loss-plus-log: no such fault")
    assert "loss-plus-log-tp" in ended.stderr
