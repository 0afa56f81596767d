"""What `parity inspect` understands of a log, and how it shows it."""

import io
import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from parity.cli import main
from parity.curves import Curve, LegCurves, Note, Resolution, read
from parity.inspection import InspectedFile, inspect
from parity.report.inspection import render_inspection
from tests.drawing import curve, leg
from tests.report.test_text import HOSTILE

LOGS = Path(__file__).parent / "data" / "logs"


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, words)])


def shown(*files: InspectedFile, width: int = 100) -> list[str]:
    out = io.StringIO()
    render_inspection(files, Console(file=out, width=width, color_system=None, highlight=False))
    return out.getvalue().split("\n")


def of(*curves: Curve, **more: object) -> InspectedFile:
    legs = LegCurves("log", "drawn", {one.metric: one for one in curves}, **more)  # type: ignore[arg-type]
    return inspect(legs, given=True)


def test_a_real_log_is_told_with_its_fields_steps_and_precision() -> None:
    one = inspect(read(LOGS / "deepspeed" / "tp3_z0.jsonl", keys={"grad_norm": "grad_norm_own"}))
    assert (one.format, one.evidence.split(" with ")[0]) == ("jsonl", "51 of the first 51 lines are JSON objects,")
    assert one.steps is not None
    assert one.steps.text == "50 steps, 0 to 49; none missing"
    by_name = {metric.metric: metric for metric in one.metrics}
    assert by_name["grad_norm"].field == "grad_norm_own"
    assert (by_name["loss"].first, by_name["loss"].last) == (6.283836841583252, 6.305880069732666)
    assert by_name["loss"].resolution is not None
    assert by_name["loss"].resolution.text.startswith("in full")
    assert "world_size" in one.other_fields
    assert one.notes == ('records without "step" were ignored: line 1',)
    assert one.hints == ()


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([0], "1 step, 0; none missing"),
        ([0, 1, 2, 5, 6, 8], "6 steps, 0 to 8; 3 steps between them missing: 3–4, 7"),
        ([10, 20, 30, 60, 70], "5 steps, 10 to 70, every 10; 2 steps between them missing: 40–50"),
        ([9, 19, 29, 80, 90, 100], "6 steps, 9 to 100, every 10; 5 steps between them missing: 39–79"),
        (
            [2 * at for at in range(30)] + [2 * at + 1 for at in range(100, 130)],
            "60 steps, 0 to 259, every 2; 71 steps between them missing: 60–200",
        ),
    ],
)
def test_gaps_are_told_as_ranges_at_the_log_s_own_distance(steps: list[int], text: str) -> None:
    seen = of(curve("loss", [1.0] * len(steps), steps)).steps
    assert seen is not None
    assert seen.text == text


def test_many_gaps_are_counted_beyond_those_that_are_named() -> None:
    steps = [at for at in range(300) if at % 5]
    seen = of(curve("loss", [1.0] * len(steps), steps)).steps
    assert seen is not None
    assert seen.gap_count == 59
    assert seen.gaps.endswith("100 and 39 more ranges")


@pytest.mark.parametrize(
    ("printed", "value", "text"),
    [
        (Resolution(4, 5), 5.29, "to 4 decimals: 0.0001 at 5.29"),
        (Resolution(6, 7), 6.612992, "to 6 decimals: 1e-06 at 6.61"),
        (Resolution(12, 4), 111.2, "to 4 significant digits: 0.1 at 111"),
        (Resolution(16, 17), 0.5, "in full: 1e-16 at 0.5"),
        (Resolution(20, 9, float32=True), 6.0, "stored as float32: 4.77e-07 at 6"),
        (Resolution(0, 1), 7.0, "to 0 decimals: 1 at 7"),
    ],
)
def test_precision_is_told_at_the_last_value(printed: Resolution, value: float, text: str) -> None:
    seen = of(curve("loss", [1.0, value, math.nan], resolution=printed)).metrics[0].resolution
    assert seen is not None
    assert seen.text == text


def test_nan_infinity_absent_values_and_conflicts_are_counted() -> None:
    odd = read_text = of(curve("loss", [1.0, math.nan, math.inf, -math.inf], missing=(7, 8, 9)))
    lines = "\n".join(shown(read_text))
    assert "loss: NaN at 1 of 4 steps" in lines
    assert "loss: infinite at 2 of 4 steps" in lines
    assert "loss: without a value at 3 steps of the log: 7–9" in lines
    assert odd.metrics[0].nan == 1
    assert of(curve("loss", [math.nan])).metrics[0].resolution is None


@pytest.mark.parametrize(
    ("base", "first", "hint"),
    [
        (None, 0, ""),
        (None, 1, "the log counts steps from 1: beside a leg that counts from 0, say first_step: 1"),
        (None, 9, "the log begins at step 9: checks of the first step do not run unless first_step: 9"),
        (1, 1, "drawn counts steps from 1: beside a leg that counts from 0, say first_step: 1"),
        (1, 101, "drawn counts steps from 1 and this log begins at 101: its first step is not in it"),
        (0, 1, "drawn counts steps from 0 and this log begins at 1: its first step is not in it"),
    ],
)
def test_where_steps_are_counted_from_is_told(base: int | None, first: int, hint: str) -> None:
    hints = of(curve("loss", [3.0, 2.0], [first, first + 1]), base=base).hints
    assert [one[: len(hint)] for one in hints] == ([hint] if hint else [])


def test_a_leg_without_any_step_is_shown_and_its_notes_say_why() -> None:
    one = inspect(
        LegCurves("log", "recorder", {}, (Note("the leg ended before its first"),), finished=False), given=True
    )
    assert [line.strip() for line in shown(one)][1:4] == [
        "no step", "the run never wrote its end", "the leg ended before its first"
    ]  # fmt: skip


def test_json_is_strict_though_the_log_has_nan(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 0, "loss": NaN}\n{"step": 1, "loss": Infinity}\n{"step": 2, "loss": 1.5}\n')

    def refuse(text: str) -> object:
        raise AssertionError(f"{text} is no JSON")

    done = run("--json", path, LOGS / "pytorch" / "base.jsonl")
    assert done.exit_code == 0
    files = json.loads(done.stdout, parse_constant=refuse)["files"]
    assert [one["metrics"][0]["first"] for one in files] == ["NaN", 4.019568920135498]


def test_what_cannot_be_read_costs_a_line_each_and_the_others_are_shown(tmp_path: Path) -> None:
    (tmp_path / "prose").write_text("nothing to see\n")
    done = run(tmp_path / "none", LOGS / "pytorch" / "base.jsonl", tmp_path / "prose")
    assert done.exit_code == 2
    assert "40 steps, 0 to 39" in done.stdout
    assert [line.split(": ")[1][:15] for line in done.stderr.splitlines()] == ["no such file", "no known format"]
    assert "Traceback" not in done.stderr
    as_json = run("--json", tmp_path / "none")
    assert (as_json.exit_code, json.loads(as_json.stdout)["files"][0]["error"].split(": ")[1]) == (2, "no such file")


def test_a_format_and_keys_that_are_given_are_taken() -> None:
    path = LOGS / "deepspeed" / "tp3_z0.jsonl"
    assert ": jsonl (as you say)" in run("--format", "jsonl", path).stdout
    assert "grad_norm_own" in run("--key", "grad_norm=grad_norm_own", path).stdout
    assert run("--format", "jsonll", path).exit_code == 2
    assert run().exit_code == 2


def test_a_narrow_terminal_loses_no_number() -> None:
    words = " ".join(shown(inspect(read(LOGS / "pytorch" / "base.jsonl")), width=40)).split()
    assert {"40", "4.01956892", "0.608070731"} <= set(words)


@settings(max_examples=60, deadline=None)
@given(text=st.one_of(st.text(max_size=40), st.sampled_from([*HOSTILE, "[/red]", "[bold]x[/bold]", ":tada:"])))
def test_hostile_names_in_a_log_change_nothing_around_them(text: str) -> None:
    def drawn(name: str) -> list[str]:
        one = leg("x", curve("loss", [1.0, 2.0])).curves
        legs = LegCurves(
            name, "drawn", one.curves, (Note(f"a: {name}"),), fields={"step": name, "loss": name}, others=(name,)
        )
        return shown(inspect(legs), width=100_000)

    wild = drawn(text)
    assert len(wild) == len(drawn("calm"))
    assert all(line.isprintable() for line in wild)
