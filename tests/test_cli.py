"""The command line as a person meets it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from parity.schemas import FOLDER

LOGS = Path(__file__).parent / "data" / "logs"


def parity(*words: object, cwd: Path | None = None, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "parity", *map(str, words)],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def jsonl(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows(count: int = 20, **changes: object) -> list[dict[str, object]]:
    return [{"step": s, "loss": 6 - s / 13, "grad_norm": 2 + s / 17, **changes} for s in range(count)]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, runpy\n"
        "sys.argv = ['parity', '--help']\n"
        "try: runpy.run_module('parity', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'rich', 'jinja2', 'yaml', 'psutil', 'requests'} & set(sys.modules)\n"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_leg_waits_for_the_import_of_what_judges_and_reports() -> None:
    code = (
        "import sys, parity.prepare, parity.progress, parity.run\n"
        "early = {'parity.checks.run', 'parity.judge', 'parity.deliver', 'jinja2'} & set(sys.modules)\n"
        "sys.exit(f'imported {sorted(early)}' if early else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_outside_trainer_and_recorder_imports_torch() -> None:
    code = (
        "import importlib, pathlib, sys, parity\n"
        "root = pathlib.Path(parity.__file__).parent\n"
        "for path in sorted(root.rglob('*.py')):\n"  # pkgutil.walk_packages imports what it walks through
        "    words = path.relative_to(root.parent).with_suffix('').parts\n"
        "    name = '.'.join(words).removesuffix('.__init__')\n"
        "    inside = words[1] in ('train', 'record', 'recipes') or name == 'parity.launch.warm'\n"
        "    if inside or words[-1] == '__main__':\n"
        "        continue\n"
        "    importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules, name\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_compare_on_logs_passes_and_writes_result_and_report(tmp_path: Path) -> None:
    folder = LOGS / "deepspeed"
    done = parity(
        "compare", "--baseline", folder / "tp1_z0.jsonl", "--candidate", folder / "tp3_z0.jsonl",
        "--control", folder / "tp4_z0.jsonl", "--key", "grad_norm=grad_norm_own", "--steps", 50,
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "parity: pass" in done.stdout
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    jsonschema.validate(result, json.loads((FOLDER / "result.schema.json").read_text()))
    assert result["comparisons"][0]["profile"] == "fp32-cpu"
    again = parity("report", tmp_path / "out", "--format", "markdown")
    assert again.returncode == 0
    assert again.stdout == (tmp_path / "out" / "report.md").read_text()
    again = parity("report", tmp_path / "out", "--format", "html")
    assert again.stdout == (tmp_path / "out" / "report.html").read_text()
    again = parity("report", tmp_path / "out", "--format", "junit")
    assert again.stdout == (tmp_path / "out" / "junit.xml").read_text()
    assert (tmp_path / "out" / "curves.csv").read_text().count("\ntp3_z0,loss,") == 50


def test_a_result_with_nan_is_strict_json_and_fulfils_the_schema(tmp_path: Path) -> None:
    base = jsonl(tmp_path / "a.jsonl", rows())
    bad = jsonl(tmp_path / "b.jsonl", [*rows(10), {"step": 10, "loss": float("nan"), "grad_norm": float("inf")}])
    done = parity("compare", "--baseline", base, "--candidate", bad, "--out", tmp_path / "out")
    assert done.returncode == 1

    def refuse(text: str) -> object:
        raise AssertionError(f"{text} is no JSON")

    result = json.loads((tmp_path / "out" / "result.json").read_text(), parse_constant=refuse)
    jsonschema.validate(result, json.loads((FOLDER / "result.schema.json").read_text()))
    assert parity("report", tmp_path / "out").returncode == 1


@pytest.mark.parametrize(
    ("candidate", "code"),
    [
        (rows(), 0),
        ([{**row, "loss": 1.001 * float(str(row["loss"]))} for row in rows()], 1),
        (rows(5), 3),
        ([*rows()[:-1], {"step": 19, "loss": float("nan"), "grad_norm": 2}], 1),
        ([{"step": s, "loss": 6 - s / 13} for s in range(20)], 3),
        ([*rows(), {"step": 3, "loss": 99.0, "grad_norm": 2}], 3),
    ],
)
def test_exit_codes_of_compare(tmp_path: Path, candidate: list[dict[str, object]], code: int) -> None:
    base = jsonl(tmp_path / "base.jsonl", rows())
    done = parity("compare", "--baseline", base, "--candidate", jsonl(tmp_path / "cand.jsonl", candidate))
    assert done.returncode == code, done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["compare"], "give a run directory, or logs with --baseline and --candidate"),
        (["compare", "nowhere"], "no run directory"),
        (["compare", "--baseline", "none.jsonl", "--candidate", "other"], "none.jsonl"),
        (["compare", "--baseline", "empty", "--candidate", "other"], "empty"),
        (["compare", "--baseline", "binary", "--candidate", "other"], "binary"),
        (["compare", "--baseline", ".", "--candidate", "other"], "."),
        (["compare", "--baseline", "a", "--candidate", "b", "--key", "loss"], "is not metric=key"),
        (["compare", "--baseline", "a", "--candidate", "b", "--require", "los"], "no such check"),
        (["compare", "--baseline", "a", "--candidate", "./a"], "a log is compared with itself"),
        (["compare", "--baseline", "a", "--candidate", "b", "--k", "inf"], "not a finite number"),
        (["compare", "--baseline", "a", "--candidate", "b", "--loss-rtol", "nan"], "--loss-rtol"),
        (["compare", "full", "--profile", "bf16"], "--profile: only for logs"),
        (
            ["compare", "--baseline", "a", "--candidate", "b", "--reference", "c", "--reference", "d"],
            "a comparison has",
        ),
        (
            ["compare", "--baseline", "a", "--candidate", "b", "--baseline", "c"],
            "given 2 times; a comparison has one",
        ),
        (["run", "nowhere"], "neither a file nor a recipe; the recipes are "),
        (["run", "embedded/tensor-parallel", "--only", "tp9"], "no such leg; there is tp1, tp3, tp4"),
        (["run", "embedded/tensor-parallel", "--out", "empty"], "is a file"),
        (["run", "embedded/tensor-parallel", "--out", "full"], "holds files that are not from a run"),
        (["validate"], "parity.yml: no such file; `parity init`"),
        (["report", "nowhere"], "no such file"),
        (["report", "empty"], "not a result of format parity.result/1: Invalid JSON"),
        (["compare", "empty"], "empty: a run directory is a folder; give logs with --baseline and --candidate"),
        (["run", "--steps", "0"], "--steps"),
        (["lauf"], "No such command"),
    ],
)
def test_a_mistake_is_told_without_a_traceback_and_ends_with_code_2(
    tmp_path: Path, words: list[str], expected: str
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00" * 10)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    done = parity(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_a_leg_larger_than_the_machine_ends_with_code_4_before_anything_starts(tmp_path: Path) -> None:
    done = parity("run", "embedded/tensor-parallel", "--slots", 3, cwd=tmp_path)
    assert done.returncode == 4
    assert "tp4" in done.stderr
    assert "Traceback" not in done.stderr
    done = parity("run", "embedded/tensor-parallel", "--device", "cuda", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 4
    assert "GPUs" in done.stderr


def test_init_writes_a_valid_suite_and_never_overwrites(tmp_path: Path) -> None:
    assert parity("init", cwd=tmp_path).returncode == 0
    assert parity("validate", cwd=tmp_path).returncode == 0
    done = parity("init", cwd=tmp_path)
    assert (done.returncode, "--force" in done.stderr) == (2, True)


def test_output_survives_a_terminal_that_knows_only_ascii(tmp_path: Path) -> None:
    base = jsonl(tmp_path / "a.jsonl", rows())
    other = jsonl(tmp_path / "b.jsonl", rows())
    done = parity("compare", "--baseline", base, "--candidate", other, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.1, 1)])
def test_a_reader_that_goes_away_changes_no_exit_code_and_loses_no_result(
    tmp_path: Path, factor: float, code: int
) -> None:
    base = jsonl(tmp_path / "a.jsonl", rows())
    other = jsonl(tmp_path / "b.jsonl", [{**row, "loss": factor * float(str(row["loss"]))} for row in rows()])
    line = f"{sys.executable} -m parity compare --baseline {base} --candidate {other} --out {tmp_path / 'out'} | true"
    done = subprocess.run(
        ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert (tmp_path / "out" / "result.json").exists()


def test_a_full_disk_costs_one_line_and_never_the_verdict(tmp_path: Path) -> None:
    base, other = jsonl(tmp_path / "a.jsonl", rows()), jsonl(tmp_path / "b.jsonl", rows())
    line = f"{sys.executable} -m parity compare --baseline {base} --candidate {other}"
    done = subprocess.run(["bash", "-c", f"{line} > /dev/full"], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_a_report_that_cannot_be_written_is_an_error_that_still_shows_the_verdict(tmp_path: Path) -> None:
    base, other = jsonl(tmp_path / "a.jsonl", rows()), jsonl(tmp_path / "b.jsonl", rows())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "result.json").mkdir()
    done = parity("compare", "--baseline", base, "--candidate", other, "--out", tmp_path / "out")
    assert done.returncode == 4
    assert "parity: pass" in done.stdout
    assert "could not be written" in done.stderr


def test_a_fault_of_our_own_is_never_taken_for_a_verdict() -> None:
    code = (
        "import sys, parity.cli, parity.suite\n"
        "def broken(*a): raise RuntimeError('inner')\n"
        "parity.suite.load = broken\n"
        "sys.argv = ['parity', 'validate', 'embedded/tensor-parallel']\n"
        "parity.cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "this is no verdict" in done.stderr


def test_compare_on_logs_by_a_pattern(tmp_path: Path) -> None:
    for name, last in (("base", 3.0), ("same", 3.0), ("other", 3.5)):
        lines = [f"at {step}: loss={3 if step < 19 else last} norm={1 + step / 7:.15f}\n" for step in range(20)]
        (tmp_path / name).write_text("".join(lines))
    by = ("--pattern", r"at (?P<step>\d+): loss=(?P<loss>\S+) norm=(?P<grad_norm>\S+)")
    done = parity("compare", "--baseline", "base", "--candidate", "other", *by, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "step 19" in done.stdout
    done = parity("compare", "--baseline", "base", "--candidate", "same", "--pattern", "x", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip().endswith(r"such as 'step (?P<step>\d+).*loss (?P<loss>\S+)'")


def test_logs_that_name_a_metric_differently_are_compared_by_all_its_names(tmp_path: Path) -> None:
    for name, field in (("base", "Loss"), ("other", "mean loss")):
        lines = [
            json.dumps({"step": step, field: 3 + step / 7 + (step == 9 and name == "other")}) for step in range(10)
        ]
        (tmp_path / name).write_text("\n".join(lines))
    keys = ("--key", "loss=Loss", "--key", "loss=mean loss")
    done = parity("compare", "--baseline", "base", "--candidate", "other", *keys, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the first at step 9" in done.stdout


def test_every_option_of_every_command_has_a_help_text() -> None:
    for command in ("run", "compare", "validate", "init", "report", "show"):
        done = parity(command, "--help")
        assert done.returncode == 0
        bare = re.findall(r"^  --[\w-]+(?: \S+)?\s*$(?!\n {10,})", done.stdout, re.MULTILINE)
        assert not bare, (command, bare)
