"""Legs that come from the cache, those that must not, and what a person is told of either."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from parity.cache import inputs
from parity.cli import main
from tests.test_cli import parity

# Notes that it ran, and writes a curve; reads a number that is code, as it lies beside it.
TRAINER = """\
import json, os, sys
from scale import SCALE
out, steps, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with open(os.environ["RAN"], "a") as ran:
    ran.write(name + " ")
with open(out, "w") as log:
    for step in range(int(os.environ.get("ONLY", steps))):
        log.write(json.dumps({"step": step, "loss": (6 - step / 13) * SCALE, "grad_norm": 2.0 + step / 7}) + "\\n")
sys.exit(int(os.environ.get("CODE", "0")))
"""


class Project:
    """A folder with a suite and its code, a cache beside it, and runs of it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self.ran, self.cache = path / "code", path / "ran", path / "cache"
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self.path.mkdir()
        self.write("trainer.py", TRAINER)
        self.write("scale.py", "SCALE = 1.0\n")
        self.suite()
        self.said = ""
        self.outs: list[Path] = []

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

    def suite(self, **changes: Any) -> None:
        content = {
            "name": "somebody-s",
            "steps": 12,
            "trainer": {"command": [sys.executable, "trainer.py", "{out}/metrics.jsonl", "{steps}", "{leg}", "{tp}"]},
            "source": "{out}/metrics.jsonl",
            "env": {"RAN": str(self.ran)},
            "legs": {"a": {}, "b": {"layout": {"tp": 2}}, "c": {"layout": {"tp": 4}}},
            "compare": [{"baseline": "a", "candidate": "b", "control": "c", "floor": "repeat"}],
            "layout": "unproven",
            **changes,
        }
        self.write("parity.yml", yaml.safe_dump(content, sort_keys=False))

    def run(self, *words: object, cache: bool = True, expected: int = 0, **env: str) -> list[str]:
        """The legs that ran."""
        self.ran.unlink(missing_ok=True)
        self.outs.append(self.path / f"out-{len(self.outs)}")
        words = ("run", "--out", self.outs[-1], *(["--cache", self.cache] if cache else []), *words)
        self.call(*words, expected=expected, **env)
        return sorted(self.ran.read_text().split()) if self.ran.exists() else []

    def call(self, *words: object, expected: int = 0, **env: str) -> None:
        """Have the command line do something; what it prints is in `said`."""
        with self._monkeypatch.context() as patch:
            patch.chdir(self.path)
            for name, value in env.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main([str(word) for word in words])
        said = self._capsys.readouterr()
        self.said = said.out + said.err
        assert ended.value.code == expected, self.said

    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.outs[-1] / "result.json").read_text())
        return result

    def entries(self) -> list[Path]:
        return sorted(self.cache.glob("*"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Project:
    monkeypatch.setattr(inputs, "package", lambda folder: "as it is")
    return Project(tmp_path, monkeypatch, capsys)


EVERY = ["a", "a.repeat", "b", "c"]


def test_a_second_run_takes_every_leg_but_the_candidate_and_says_so_everywhere(project: Project) -> None:
    assert project.run() == EVERY
    before = project.result()
    assert project.run() == ["b"]
    assert "cache: a need not run: it is there, " in project.said
    after = project.result()
    assert after["verdict"] == before["verdict"] == "pass"
    legs = {leg["name"]: leg for leg in after["legs"]}
    assert legs["b"]["reused"] is None
    for name in ("a", "a.repeat", "c"):
        assert 0 <= legs[name]["reused"]["age"] < 300
        assert legs[name]["run_id"] == before["run_id"]
        first, second = (out / "legs" / name for out in project.outs)
        assert (second / "metrics.jsonl").read_bytes() == (first / "metrics.jsonl").read_bytes()
        assert (second / "command.log").exists()
    assert len({legs[name]["reused"]["key"] for name in ("a", "a.repeat", "c")}) == 3
    assert [note for note in after["notes"] if note.startswith("a did not run: it is from the cache, ")]
    out = project.outs[-1]
    assert "| a | from the cache, " in (out / "report.md").read_text()
    assert "<td>from the cache, " in (out / "report.html").read_text()
    # The comparison is that of any other run.
    assert after["comparisons"] == before["comparisons"]


def test_changed_code_runs_again_and_what_it_was_before_does_not(project: Project) -> None:
    project.run()
    project.write("scale.py", "SCALE = 1.5\n")
    assert project.run() == EVERY
    assert project.run() == ["b"]
    project.write("scale.py", "SCALE = 1.0\n")
    assert project.run() == ["b"]
    project.write("new.py", "")
    assert project.run() == EVERY


def test_what_a_suite_says_of_other_things_does_not_matter_and_what_it_says_of_a_leg_does(project: Project) -> None:
    project.run()
    project.suite(bounds={"loss": {"rtol": 0.5}}, name="renamed", timeout="5m")
    assert project.run() == ["b"]
    project.suite(legs={"a": {}, "b": {"layout": {"tp": 2}}, "c": {"layout": {"tp": 4}, "env": {"X": 1}}})
    assert project.run() == ["b", "c"]
    assert project.run("--steps", 13) == EVERY
    assert project.run("--seed", 1) == EVERY


def test_a_variable_that_legs_inherit_matters(project: Project) -> None:
    project.run()
    assert project.run(SOME_RATE="0.1") == EVERY
    assert project.run(SOME_RATE="0.1", GITHUB_RUN_ID="7", TERM="dumb") == ["b"]
    assert project.run(SOME_RATE="0.1", PARITY_IMAGE="sha256:1") == EVERY


def test_a_leg_that_is_a_candidate_anywhere_is_never_kept(project: Project) -> None:
    project.suite(compare=[{"baseline": "a", "candidate": "b"}, {"baseline": "b", "candidate": "c"}])
    assert project.run() == ["a", "b", "c"]
    assert len(project.entries()) == 1
    assert project.run() == ["b", "c"]


def test_a_plan_tells_which_legs_would_not_run(project: Project) -> None:
    project.run()
    project.call("plan", "--cache", project.cache)
    assert "from the cache, so not run: a, c, a.repeat\n" in project.said
    assert "somebody-s: 1 legs" in project.said
    assert [path.name for path in project.path.glob("out-*")] == ["out-0"]
    project.call("plan", "--cache", project.cache, "--no-cache")
    assert "somebody-s: 4 legs" in project.said


def test_no_cache_runs_every_leg_whatever_the_environment_says(project: Project) -> None:
    assert project.run(cache=False, PARITY_CACHE=str(project.cache)) == EVERY
    assert len(project.entries()) == 3
    assert project.run("--no-cache", cache=False, PARITY_CACHE=str(project.cache)) == EVERY
    assert project.run("--no-cache") == EVERY
    assert project.run(cache=False, PARITY_CACHE=str(project.cache)) == ["b"]


def test_a_damaged_entry_is_told_in_a_line_and_its_leg_runs_again(project: Project) -> None:
    project.run()
    for place, entry in enumerate(project.entries()):
        content = entry.read_bytes()
        half = len(content) // 2
        damaged = [content[:half], content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :], b"no archive"]
        entry.write_bytes(damaged[place])
    assert project.run() == EVERY
    lines = [line for line in project.said.splitlines() if "is damaged, so it runs again" in line]
    assert len(lines) == 3
    assert project.run() == ["b"]


def test_legs_that_fail_or_leave_half_a_curve_are_not_kept(project: Project) -> None:
    c = {"layout": {"tp": 4}}
    project.suite(legs={"a": {}, "b": {"layout": {"tp": 2}}, "c": {**c, "env": {"CODE": 3, "ONLY": 4}}})
    project.run(expected=4)
    assert len(project.entries()) == 2
    project.suite(legs={"a": {}, "b": {"layout": {"tp": 2}}, "c": {**c, "env": {"ONLY": 4}}})
    assert "c" in project.run(expected=3)
    assert "c" in project.run(expected=3)
    assert len(project.entries()) == 2


def test_code_that_changes_while_it_runs_is_not_kept(project: Project) -> None:
    project.write("trainer.py", TRAINER + "open('scale.py', 'a').write('# again\\n')\n")
    project.write("trainer.py", (project.path / "trainer.py").read_text().replace("sys.exit", "int"))
    project.run()
    assert "cache: a is not kept, as its code or environment has changed since it began" in project.said
    assert project.entries() == []


def test_a_cache_that_cannot_be_written_costs_a_line_and_no_leg(project: Project) -> None:
    project.cache.write_text("")
    project.run("--cache", project.cache / "below", cache=False)
    assert "cache: a is not kept: " in project.said
    assert project.result()["verdict"] == "pass"


def test_a_command_of_which_nobody_knows_the_python_runs_and_is_told_apart(project: Project) -> None:
    project.write("run.sh", f'exec {sys.executable} trainer.py "$@"\n')
    project.suite(trainer={"command": "sh run.sh {out}/metrics.jsonl {steps} {leg} {tp}"})
    assert project.run() == EVERY
    assert "cache: a has to run, as its command does not tell which Python runs it" in project.said
    assert project.run() == EVERY


def test_two_runs_at_once_share_a_cache(project: Project) -> None:
    words = [sys.executable, "-m", "parity", "run", "--cache", str(project.cache), "--out"]
    # The output of the one is no code of the other.
    runs = [
        subprocess.Popen([*words, f"../out-{number}"], cwd=project.path, stdout=subprocess.DEVNULL)
        for number in (1, 2)
    ]
    assert [run.wait(120) for run in runs] == [0, 0]
    assert len(project.entries()) == 3


@pytest.mark.parametrize("age", ["1e999", "NaN", "-1", '"old"'])
def test_a_leg_whose_age_is_none_counts_as_not_run(project: Project, age: str) -> None:
    project.run()
    leg = project.outs[-1] / "legs" / "a" / "leg.json"
    leg.write_text(leg.read_text().replace('"reused": null', f'"reused": {{"age": {age}, "key": "{"0" * 64}"}}'))
    project.call("compare", project.outs[-1], expected=4)
    assert sum("a not run: " in line and "reused.age" in line for line in project.said.splitlines()) == 1
    assert "Traceback" not in project.said


@pytest.mark.slow
def test_the_embedded_trainer_s_legs_do_not_depend_on_where_they_run(tmp_path: Path) -> None:
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "something.py").write_text(name)
        words = ("run", "embedded/tensor-parallel", "--steps", 4, "--cache", tmp_path / "cache")
        done = parity(*words, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        came = {line.split()[1] for line in done.stdout.splitlines() if "need not run" in line}
        assert came == ({"tp1", "tp4", "tp1.perturbed"} if name == "other" else set())
