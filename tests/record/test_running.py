"""What a script sees of being recorded: nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parity.errors import UsageError
from parity.record.automatic import placed
from parity.record.renaming import Renaming

LOOKING = """
import json, os, sys
import other
print(json.dumps([sys.argv, __file__, __name__, sys.path[0], "torch" in sys.modules, __spec__ and __spec__.name,
                  sys.modules["__main__"].__dict__ is globals()]))
"""


def run(folder: Path, *command: str, **env: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PARITY_")}
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**kept, **path, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "look.py").write_text(LOOKING)
    (tmp_path / "sub" / "other.py").write_text("")
    (tmp_path / "sub" / "package").mkdir()
    (tmp_path / "sub" / "package" / "__main__.py").write_text(LOOKING)
    return tmp_path


@pytest.mark.parametrize("recorded", [{}, {"PARITY_RECORD_DIR": "records"}])
@pytest.mark.parametrize(
    ("where", "command"),
    [(".", ["sub/look.py", "a", "--b", "--"]), ("sub", ["-m", "look", "-x"]), ("sub", ["-m", "package", "c"])],
)
def test_a_script_finds_what_python_gives_it(
    folder: Path, where: str, command: list[str], recorded: dict[str, str]
) -> None:
    plain = run(folder / where, *command)
    assert plain.returncode == 0, plain.stderr
    for form in (["--", *command], command):
        under = run(folder / where, "-m", "parity.record", *form, **recorded)
        assert (under.stdout, under.stderr, under.returncode) == (plain.stdout, "", 0)


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        ("raise ValueError('no such thing')", 1, "error"),
        ("import sys; sys.exit(3)", 3, "error"),
        ("import sys; sys.exit('a text')", 1, "error"),
        ("import sys; sys.exit()", 0, "end"),
        ("def broken(:", 1, "error"),
    ],
)
def test_how_a_script_ends_is_passed_on_and_recorded(tmp_path: Path, text: str, code: int, kind: str) -> None:
    (tmp_path / "ends.py").write_text(f"import atexit\natexit.register(print, 'at exit')\n{text}\n")
    plain = run(tmp_path, "ends.py")
    under = run(tmp_path, "-m", "parity.record", "--", "ends.py", PARITY_RECORD_DIR="records")
    assert plain.returncode == code
    # The interpreter names the whole path of the script that it was given.
    told = under.stderr.replace(str(tmp_path) + os.sep, ""), plain.stderr.replace(str(tmp_path) + os.sep, "")
    assert told[0] == told[1]
    assert (under.stdout, under.returncode) == (plain.stdout, code)
    lines = [json.loads(line) for line in (tmp_path / "records" / "rank-0.jsonl").read_text().splitlines()]
    assert lines[-1]["kind"] == kind


def test_outside_of_a_leg_nothing_is_written(folder: Path) -> None:
    before = sorted(folder.rglob("*.jsonl"))
    assert run(folder, "-m", "parity.record", "--", "sub/look.py").returncode == 0
    assert sorted(folder.rglob("*.jsonl")) == before


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([], "give the script to run"),
        (["--", "-m"], "give the script to run"),
        (["--", "missing.py"], "missing.py: no such file"),
        (["--nmaes", "x", "--", "look.py"], "--nmaes: no option"),
    ],
)
def test_a_mistake_costs_one_line(tmp_path: Path, command: list[str], said: str) -> None:
    done = run(tmp_path, "-m", "parity.record", *command)
    assert done.returncode == 2
    assert done.stderr.startswith(f"parity.record: {said}")
    assert done.stderr.count("\n") == 1


def test_names_of_a_stage_become_model_wide_ones(tmp_path: Path) -> None:
    file = tmp_path / "names-1.json"
    file.write_text(json.dumps({r"0\.(.*)": r"layers.2.\1", r"head\.(?P<rest>.*)": r"lm_head.\g<rest>"}))
    renaming = Renaming.read(str(tmp_path / "names-{rank}.json"), rank=1)
    assert renaming("0.weight") == "layers.2.weight"
    assert renaming("head.bias") == "lm_head.bias"
    assert renaming("10.weight") == "10.weight"


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1}', '{"(": "a"}', '{"a": "\\\\1"}'])
def test_names_that_are_none_are_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "names.json").write_text(text)
    with pytest.raises(UsageError, match=r"^names: "):
        Renaming.read(str(tmp_path / "names.json"), rank=0)


def test_places_count_through_the_last_axis_fastest() -> None:
    assert [placed("pp=2,tp=3", rank, 6) for rank in (0, 2, 4)] == [
        {"pp": (0, 2), "tp": (0, 3)},
        {"pp": (0, 2), "tp": (2, 3)},
        {"pp": (1, 2), "tp": (1, 3)},
    ]


@pytest.mark.parametrize("mesh", ["dp=2", "dp=2,dp=3", "rows=6", "dp=six", "dp"])
def test_a_mesh_that_is_none_is_told(mesh: str) -> None:
    with pytest.raises(UsageError, match=r"^mesh: "):
        placed(mesh, 0, 6)


def test_a_script_that_records_itself_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "records_itself.py").write_text(
        "from parity.record import Recorder\nrec = Recorder.from_env()\nrec.start({})\nrec.step(0, loss=1.0)\n"
    )
    done = run(tmp_path, "-m", "parity.record", "--", "records_itself.py", PARITY_RECORD_DIR="records")
    assert done.returncode == 2
    assert "the script records itself, and python -m parity.record records it too" in done.stderr
