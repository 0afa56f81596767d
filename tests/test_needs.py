"""A suite says what its legs import, and is refused in one line where that is not there."""

import sys
from pathlib import Path

import pytest

from parity.errors import PackageError
from parity.needs import check_needs, interpreter
from parity.suite import Suite
from tests.suite.test_suite import written
from tests.test_cli import parity

HERE = str(Path(sys.executable).parent)


def suite(command: object, needs: list[str], **leg: object) -> Suite:
    content = {
        "name": "x",
        "steps": 2,
        "needs": needs,
        "legs": {"a": {"command": command, **leg}, "b": {"command": command}},
        "compare": [{"baseline": "a", "candidate": "b"}],
    }
    return Suite.model_validate(content)


@pytest.mark.parametrize(
    ("command", "asks"),
    [
        ("torchrun --nproc-per-node 2 x.py", True),
        ("A=1 B='2 3' python -m x", True),
        (["python", "x.py"], True),
        (f"{sys.executable} x.py", True),
        ("rm -f {out}/x.jsonl && A=1 torchrun x.py", True),
        ("cd x; (python x.py | tee log)", True),
        ("echo python x.py", False),
        ("bash run.sh", False),
        ("./python x.py", False),
        ("{suite_dir}/bin/python x.py", False),
        ("echo 'open", False),
        ("", False),
        (None, False),
    ],
)
def test_the_first_words_of_commands_tell_their_interpreter(command: str | list[str] | None, asks: bool) -> None:
    found = interpreter(command, {"PATH": HERE})
    assert (found is not None) == asks
    assert found is None or Path(found).parent == Path(HERE)


def test_torchrun_s_interpreter_is_that_of_its_first_line_or_else_beside_it(tmp_path: Path) -> None:
    script = tmp_path / "torchrun"
    for line, expected in (
        (f"#!{sys.executable}", sys.executable),
        ("#!/usr/bin/env python3", str(tmp_path / "python3")),
        ("#!/nowhere/python3", str(tmp_path / "python3")),
    ):
        script.write_text(f"{line}\n")
        script.chmod(0o755)
        (tmp_path / "python3").write_text("")
        (tmp_path / "python3").chmod(0o755)
        assert interpreter("torchrun x.py", {"PATH": str(tmp_path)}) == expected


def test_what_is_missing_is_told_with_where_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").touch()
    with pytest.raises(PackageError) as caught:
        check_needs(
            suite("python x.py", ["json", "no_such", "json.no", "no.such"]), ["a", "b"], tmp_path, tmp_path, HERE
        )
    (line,) = caught.value.lines
    python = Path(HERE) / "python"
    assert line == (
        f"x needs no_such, json.no, no.such, which {python} does not have: activate an environment that does, or"
        f" {python} -m pip install -r {tmp_path / 'requirements.txt'}"
    )


def test_modules_on_a_leg_s_own_path_are_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    there = suite("python x.py", ["mine"], env={"PYTHONPATH": str(tmp_path)})
    check_needs(there, ["a"], Path("/"), tmp_path, HERE)
    with pytest.raises(PackageError, match="needs mine"):
        check_needs(there, ["a", "b"], Path("/"), tmp_path, HERE)


def test_nothing_is_started_or_written_where_something_is_missing(tmp_path: Path) -> None:
    legs = {"a": {"command": "python -c ''"}, "b": {"command": "python -c '0'"}}
    content = {
        "name": "x",
        "steps": 2,
        "needs": ["no_such"],
        "legs": legs,
        "compare": [{"baseline": "a", "candidate": "b"}],
    }
    done = parity("run", written(tmp_path, content), cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (4, 1), done.stderr
    assert "x needs no_such" in done.stderr
    assert not (tmp_path / "parity-out").exists()
