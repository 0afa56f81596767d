"""What is answered after a verdict, from a run directory and from a result alone."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from parity.checks.comparison import Comparison
from parity.checks.parameters import apart
from parity.compare import compare
from parity.display.curves import curves
from parity.display.legs import with_display
from parity.errors import UsageError
from parity.report import text
from parity.result import LegResult, Result
from parity.rundir import RunDirectory
from parity.show import Opened, Question, answer, open_run
from tests.checks.recorded import Q0, comparison, scaled, tp3
from tests.drawing import LOSS, NORM
from tests.records.drawing import MODEL, Drawn
from tests.test_cli import jsonl, parity, rows

pytestmark = pytest.mark.filterwarnings("error")


def opened(folder: Path, judged: Comparison) -> Opened:
    """A run of which tp3 failed and left a log."""
    log = folder / "legs" / "tp3" / "rank-1.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"line {at}\n" for at in range(100)) + "\x1b[31mValueError: no\x1b[0m\n")
    legs = {leg.name: leg for leg in judged.legs()}
    results = [
        LegResult(
            name=name,
            status="failed" if name == "tp3" else "finished",
            layout={"tp": 3 if name == "tp3" else 1},
            ranks=3 if name == "tp3" else 1,
            failing_rank=1 if name == "tp3" else None,
            seconds=12.5,
            device_seconds=37.5,
            error="ValueError: no" if name == "tp3" else None,
            environment={"torch": "2.9", "dtype": "fp32"},
            logs=[f"legs/{name}/rank-{rank}.log" for rank in range(3)],
        )
        for name in legs
    ]
    directory = RunDirectory(folder)
    compared = compare(judged)
    result = Result(
        suite="drawn",
        verdict=compared.verdict,
        summary=compared.summary,
        reproduce="parity run",
        legs=[with_display(directory, one, legs[one.name]) for one in results],
        comparisons=[compared],
        curves=curves(legs.values()),
    )
    return Opened(folder, directory, result, legs, (judged,))


def alone(of: Opened, folder: Path) -> Opened:
    """The same, of which only `result.json` was kept."""
    (folder / "alone").mkdir(exist_ok=True)
    (folder / "alone" / "result.json").write_text(of.result.dumps())
    return open_run(folder / "alone")


def shown(of: Opened, width: int = 200, **question: Any) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None)
    for part in answer(of, Question(**question)):
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def cells(told: str, first: str) -> list[str]:
    """The row that begins with a word."""
    return next(line.split() for line in told.split("\n") if line.split()[:1] == [first])


@pytest.fixture
def broken(tmp_path: Path) -> Opened:
    """A query projection's gradient twice as large, from step 0, and a loss that parts at step 7."""
    bad = tp3()
    bad.gradients = dict.fromkeys((0, 1), scaled(Q0, 2.0))
    bad.split = {Q0: {0: "tp"}}
    made = comparison(bad, control=tp3())
    curve = made.candidate.curves.curves["loss"]
    far = replace(curve, values=np.where(curve.steps == 7, curve.values + 0.5, curve.values))
    held = replace(made.candidate.curves, curves={**made.candidate.curves.curves, "loss": far})
    return opened(tmp_path, replace(made, candidate=replace(made.candidate, curves=held)))


def test_a_step_shows_every_leg_the_gap_and_the_parameters_furthest_apart(broken: Opened) -> None:
    told = shown(broken, step=7)
    assert cells(told, "base")[1:] == [text.value(LOSS[7]), text.value(NORM[7])]
    assert cells(told, "tp3")[1] == text.value(LOSS[7] + 0.5)
    assert cells(told, "control")[1] == text.value(LOSS[7])
    assert cells(told, "loss")[1:3] == [text.gap(0.5 / LOSS[7]), "2e-05"]
    assert "gradients at step 1, the nearest to 7 that was sketched\n" in told
    assert "updates at step 0, the nearest to 7 that was sketched\n" in told
    first = told[told.index("gradients at step 1") :].split("\n")[2].split()
    assert first[:2] == [Q0, "attention"]
    assert first[5] == "2"  # the ratio
    assert "gradients at step 1\n" in shown(broken, step=1)


def test_numbers_of_a_parameter_are_those_that_the_checks_judge(broken: Opened) -> None:
    judged = broken.comparisons[0]
    measured = apart(judged, judged.candidate, "gradients", 0).parameters[Q0]
    told = shown(broken, parameter=Q0)
    row = cells(told[told.index("gradients, tp3 against base") :], "0")
    assert row[1] == text.gap(measured.distance)
    assert row[4:6] == [text.ratio(measured.ratio), text.ratio(measured.cosine)]


def test_a_parameter_shows_who_holds_which_part_and_how_it_began(broken: Opened) -> None:
    told = shown(broken, parameter="layers.0.attention.*")
    assert told.startswith(f"{Q0}\n16×8 of float32\n")
    assert [line.split()[:4] for line in told.split("\n") if line.startswith("tp3 ")] == [
        ["tp3", "0", "[0:6,", ":]"],
        ["tp3", "1", "[6:12,", ":]"],
        ["tp3", "2", "[12:16,", ":]"],
    ]
    assert "tp along 0" in told
    began = broken.legs["base"].records
    assert began is not None
    assert f"the whole began as {began.state_hash(Q0):016x} in base, tp3, control\n" in told


def test_legs_that_began_otherwise_are_told_apart_and_equal_ranks_together(tmp_path: Path) -> None:
    other = tp3()
    other.weights = scaled("norm.weight", 1.5)
    told = shown(opened(tmp_path, comparison(other)), parameter="norm.*")
    assert re.search(r"the whole began as [0-9a-f]{16} in base; as [0-9a-f]{16} in tp3\n", told)
    assert ["tp3", "0–2", "[:]"] in [line.split()[:3] for line in told.split("\n")]


def test_many_parameters_are_a_row_each_where_they_are_furthest_out(broken: Opened) -> None:
    told = shown(broken, parameter="*")
    assert told.startswith(f"{len(MODEL)} parameters; a narrower pattern")
    assert "tp3 against base: gradients at steps 0–1, each where it is furthest out\n" in told
    assert told.count(f"\n{Q0} ") == 2  # gradients and updates


def test_a_leg_shows_how_it_ran_and_ended(broken: Opened) -> None:
    told = shown(broken, leg="tp3")
    assert told.startswith("tp3  failed, rank 1 first · tp=3 · 3 ranks · 12.5 s (37.5 s of devices)\n")
    for line in (
        "candidate in tp3 against base, fail",
        "ValueError: no",
        "environment: torch 2.9, dtype fp32",
        "20 steps: 0–19",
        f"attention, such as {Q0}: dimension 0 of 16 by tp: 0:6, 6:12, 12:16",
        f"last 15 lines of {broken.path}/legs/tp3/rank-1.log",
        "line 99\nValueError: no",
    ):
        assert f"\n{line}\n" in told
    assert cells(told, "19")[1] == text.value(LOSS[19])
    assert "a control for tp3 against base, fail" in shown(broken, leg="control")


def test_options_narrow_each_other(broken: Opened) -> None:
    told = shown(broken, step=7, leg="control", parameter=Q0)
    assert "control against base, which measures noise\n" in told
    assert "tp3" not in told
    assert told.count(f"\n{Q0} ") == 2
    assert "norm.weight" not in told
    assert "\ncontrol " in shown(broken, leg="control", parameter=Q0)
    assert "\ntp3 " not in shown(broken, leg="control", parameter=Q0)


def test_without_a_question_it_is_the_worst_and_what_to_ask_next(broken: Opened) -> None:
    told = shown(broken)
    assert told.startswith("tp3 against base, control control: fail\n")
    asked = re.findall(r"parity show \S+ (--\w+ \S+)", told)
    assert asked[1:] == [f"--parameter {Q0}", "--leg tp3"]
    for words in asked:
        option, value = words.removeprefix("--").split()
        assert shown(broken, **{option: int(value) if option == "step" else value})


def test_a_result_alone_answers_what_is_in_it_with_the_same_numbers(broken: Opened, tmp_path: Path) -> None:
    kept = alone(broken, tmp_path)
    for first in ("base", "tp3", "control", "loss", "grad_norm"):
        assert cells(shown(kept, step=7), first) == cells(shown(broken, step=7), first)
    judged = cells(shown(broken, step=1)[shown(broken, step=1).index("gradients at") :], Q0)
    assert cells(shown(kept, step=1)[shown(kept, step=1).index("gradients at") :], Q0)[:3] == judged[:3]
    assert "only a result is here" in shown(kept, parameter=Q0)
    assert "\nlast 15 lines of " in shown(kept, leg="tp3")


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"leg": "tp9"}, "--leg tp9: no such leg; there is base, tp3, control"),
        ({"step": 25}, "--step 25: no leg has it; there are steps 0–19, the nearest 19"),
        ({"step": -3}, "--step -3: no leg has it; there are steps 0–19, the nearest 0"),
        (
            {"parameter": "router"},
            "(a pattern matches whole names: try one with * at its ends); near it are ",
        ),
        ({"parameter": "layer.1.attention.q_proj.weight"}, "near it are layers.1.attention.q_proj.weight, "),
        ({"parameter": ""}, "no parameter of this name; near it are "),
        ({"step": 3, "leg": "x\x1b[2J"}, "--leg x: no such leg"),
    ],
)
def test_a_mistake_costs_one_line_that_says_what_there_is(
    broken: Opened, question: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        shown(broken, **question)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_steps_that_lie_apart_name_the_nearest(tmp_path: Path) -> None:
    base, other = (
        jsonl(tmp_path / f"{name}.jsonl", [{"step": 10 * at, "loss": 5.0, "grad_norm": 1.0} for at in range(10)])
        for name in ("a", "b")
    )
    done = parity("compare", "--baseline", base, "--candidate", other, "--out", tmp_path / "out")
    assert done.returncode in (0, 1, 3), done.stderr
    done = parity("show", tmp_path / "out", "--step", 42)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("the nearest 40 and 50")


HOSTILE = "\x1b[2J\x1b]0;t\x07[red]x[/red]\n::error::\u202e"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.one_of(st.just(HOSTILE), st.text(min_size=1, max_size=20)))
def test_no_name_of_a_parameter_moves_the_cursor_or_adds_a_line(tmp_path: Path, name: str) -> None:
    weights = {**MODEL, f"a{name}": MODEL["norm.weight"]}
    drawn = [Drawn(weights=weights, gradients={0: weights}, updates={0: weights}) for _ in range(2)]
    run = opened(tmp_path, comparison(drawn[0], baseline=drawn[1]))
    for question in ({"step": 3}, {"parameter": "*"}, {"parameter": "a*"}, {"leg": "tp3"}, {}):
        told = shown(run, **question)
        assert all(line.isprintable() for line in told.split("\n"))


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_narrow_terminal_cuts_no_number(broken: Opened, width: int) -> None:
    for question in ({}, {"step": 7}, {"parameter": Q0}, {"parameter": "*"}, {"leg": "tp3"}):
        told = shown(broken, width, **question)
        assert all(len(line) <= width for line in told.split("\n") if "parity show" not in line)
        assert not re.search(r"\d…", told)


def folders(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    yield tmp_path / "other", "holds no suite.json and no result.json; give the folder that `parity run`"
    yield tmp_path / "nowhere", "no such folder; give the folder that `parity run` or `parity compare --out` wrote"
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "result.json").write_text(json.dumps({"format": "other"}))
    yield tmp_path / "bad", "not a result of format parity.result/1"


def test_what_is_no_run_is_told_in_one_line(tmp_path: Path) -> None:
    for folder, said in folders(tmp_path):
        done = parity("show", folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_the_result_on_logs_is_answered_too(tmp_path: Path) -> None:
    base = jsonl(tmp_path / "tp1.jsonl", rows())
    other = jsonl(tmp_path / "tp2.jsonl", [{**row, "loss": 1.001 * float(str(row["loss"]))} for row in rows()])
    assert parity("compare", "--baseline", base, "--candidate", other, "--out", tmp_path / "out").returncode == 1
    done = parity("show", tmp_path / "out", "--step", 12)
    assert done.returncode == 0, done.stderr
    assert cells(done.stdout, "tp1")[1] == text.value(6 - 12 / 13)
    assert cells(done.stdout, "loss")[1] == "0.001"
    assert "--step 12" not in parity("show", tmp_path / "out", "--leg", "tp2").stdout
    done = parity("show", tmp_path / "out", "--parameter", "*")
    assert done.returncode == 2
    assert done.stderr.strip() == "--parameter: no leg recorded any; recorder.start(model, optimizer) does"


@pytest.mark.slow
def test_a_run_is_judged_anew_and_answers_without_its_result(tmp_path: Path) -> None:
    done = parity("run", "embedded/tensor-parallel-cut-by-rows", "--steps", 5, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    (tmp_path / "parity-out" / "result.json").unlink()
    done = parity("show", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for line in re.findall(r"parity show (.*?)   ", done.stdout):
        done = parity("show", *line.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout
