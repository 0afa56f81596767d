"""What `parity init` writes is valid, runs, and is never written over something else."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from parity.commands.suites import RECIPES, recipes
from parity.starting import STARTERS, described
from parity.suite import load
from tests.test_cli import parity
from tests.workflows.files import ROOT

BIN = Path(sys.executable).parent
FRAMEWORK = "deepspeed/autotp-uneven"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    return tmp_path / "repository"


def written(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def legs_of(workflow: Path) -> dict[str, Any]:
    """The inputs of the step that runs the legs."""
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    steps = [step.get("with", {}) for job in jobs for step in job["steps"]]
    (found,) = [given for given in steps if "timeout" in given]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("recipe", recipes())
def test_a_recipe_is_written_whole_with_a_workflow_that_runs_it(repository: Path, recipe: str) -> None:
    done = parity("init", "--recipe", recipe, cwd=repository)
    assert done.returncode == 0, done.stderr
    suite = repository / "parity-recipes" / f"{recipe}.yml"
    assert suite.read_bytes() == (RECIPES / f"{recipe}.yml").read_bytes()
    for file in re.findall(r"\{suite_dir\}/([\w./-]+)", suite.read_text()):
        assert (suite.parent / file).exists(), file
    assert load(suite) == load(RECIPES / f"{recipe}.yml")
    given = legs_of(repository / ".github" / "workflows" / "parity.yml")
    assert given["suite"] == str(suite.relative_to(repository))
    installed = [Path(word) for word in shlex.split(given.get("setup", "")) if word.endswith(".txt")]
    assert [repository / path for path in sorted(installed)] == sorted(suite.parent.glob("requirements*.txt"))
    assert ("network" in given) == bool(installed)
    # Everything else is a recipe's own, and no other suite.
    assert [one for one in written(repository) if one.endswith((".yml", ".pyc", "README.md"))] == sorted(
        [".github/workflows/parity.yml", str(suite.relative_to(repository))]
    )


@pytest.mark.parametrize("recipe", [FRAMEWORK, "embedded/qwen3-cp2"])
@pytest.mark.parametrize("starter", STARTERS)
def test_workflows_stay_valid_and_safe(repository: Path, starter: str, recipe: str) -> None:
    done = parity("init", "--recipe", recipe, "--workflow", starter, cwd=repository)
    assert done.returncode == 0, done.stderr
    workflow = repository / ".github" / "workflows" / "parity.yml"
    original = ROOT / "workflows" / f"parity-{starter}.yml"
    assert "parity.yml\n" not in workflow.read_text()
    for mine, theirs in zip(
        yaml.safe_load(workflow.read_text())["jobs"].values(),
        yaml.safe_load(original.read_text())["jobs"].values(),
        strict=True,
    ):
        assert mine["permissions"] == theirs["permissions"]
        for step, before in zip(mine["steps"], theirs["steps"], strict=True):
            given, were = step.get("with", {}), before.get("with", {})
            changed = {key for key in given if given[key] != were.get(key)}
            assert changed <= {"suite", "setup", "network"}
            assert ("suite" in changed) == (were.get("suite") == "parity.yml")
    for command in (
        ["zizmor", "--offline", "--quiet", "--no-config", "--pedantic", "--strict-collection"],
        ["actionlint", "-no-color", "-config-file", str(ROOT / ".github" / "actionlint.yaml")],
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
    ):
        checked = subprocess.run(
            [BIN / command[0], *command[1:], workflow], capture_output=True, text=True, check=False, timeout=120
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_nothing_is_written_where_one_file_is_there_already(repository: Path) -> None:
    (repository / "parity-recipes" / "deepspeed").mkdir(parents=True)
    mine = repository / "parity-recipes" / "deepspeed" / "train.py"
    mine.write_text("mine")
    done = parity("init", "--recipe", FRAMEWORK, cwd=repository)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "parity-recipes/deepspeed/train.py: exists already; --force overwrites it, and nothing was written"
    ]
    assert written(repository) == ["parity-recipes/deepspeed/train.py"]
    assert mine.read_text() == "mine"
    assert parity("init", "--recipe", FRAMEWORK, "--force", cwd=repository).returncode == 0
    assert mine.read_bytes() == (RECIPES / "deepspeed" / "train.py").read_bytes()


def test_a_second_recipe_of_a_framework_leaves_what_is_the_same(repository: Path) -> None:
    assert parity("init", "--recipe", "embedded/qwen3-cp2", cwd=repository).returncode == 0
    assert parity("init", "--recipe", "embedded/qwen3-cp2", cwd=repository).returncode == 0
    done = parity("init", "--recipe", "embedded/all-axes", cwd=repository)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert ".github/workflows/parity.yml: exists already" in done.stderr
    done = parity("init", "--recipe", "embedded/all-axes", "--workflow", "none", cwd=repository)
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_written_leaves_nothing_behind(repository: Path) -> None:
    (repository / ".github").write_text("a file where a folder must be")
    done = parity("init", "--recipe", "embedded/qwen3-cp2", cwd=repository)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert [path.name for path in repository.iterdir() if path.name != ".git"] == [".github"]
    done = parity("init", "--recipe", "embedded/qwen3-cp2", "--workflow", "none", ".git", "--force", cwd=repository)
    assert (done.returncode, done.stderr) == (2, ".git: is a folder; nothing was written\n")


def test_the_workflow_is_at_the_top_of_the_repository_wherever_one_stands(repository: Path) -> None:
    (repository / "a b").mkdir()
    done = parity("init", "--recipe", FRAMEWORK, "its.yml", cwd=repository / "a b")
    assert done.returncode == 0, done.stderr
    given = legs_of(repository / ".github" / "workflows" / "parity.yml")
    assert given["suite"] == "a b/its.yml"
    assert shlex.split(given["setup"])[-1] == "a b/requirements.txt"
    assert "parity run its.yml" in done.stdout
    done = parity("init", "--recipe", FRAMEWORK, "../../out.yml", cwd=repository / "a b")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "outside of" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--recipe", "deepspeed/nothing"], "no such recipe; there is "),
        (["--recipe", "embedded/qwen3-cp2", "--workflow", "x"], "no such workflow; there is copy-pr-bot, matrix, "),
        (["--workflow", "nightly"], "--workflow: goes with --recipe"),
    ],
)
def test_a_wrong_word_costs_a_line(repository: Path, words: list[str], expected: str) -> None:
    done = parity("init", *words, cwd=repository)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert expected in done.stderr
    assert written(repository) == []


def test_the_list_says_what_each_recipe_asks() -> None:
    done = parity("init", "--list")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == recipes()
    assert all(20 < len(described(RECIPES / f"{name}.yml")) < 250 for name in recipes())


@pytest.mark.slow
def test_a_recipe_that_was_written_runs_as_the_recipe_does(repository: Path) -> None:
    assert parity("init", "--recipe", "embedded/qwen3-cp2", cwd=repository).returncode == 0
    results = []
    for suite in ("embedded/qwen3-cp2", "parity-recipes/embedded/qwen3-cp2.yml"):
        done = parity("run", suite, cwd=repository)
        assert done.returncode == 0, done.stdout + done.stderr
        (one,) = json.loads((repository / "parity-out" / "result.json").read_text())["comparisons"]
        results.append([(metric["metric"], metric["sample"]) for metric in one["metrics"]])
    assert results[0] == results[1]


@pytest.mark.slow
def test_an_installed_package_has_every_recipe_and_starter(tmp_path: Path) -> None:
    for name in ("parity", "entrypoint", "workflows"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "tree" / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "tree")
    (stray := tmp_path / "tree" / "parity" / "recipes" / "embedded" / "__pycache__").mkdir()
    (stray / "x.cpython-311.pyc").touch()
    build = f"from setuptools.build_meta import build_wheel; build_wheel({str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=tmp_path / "tree", capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    packed = {
        name for name in zipfile.ZipFile(wheel).namelist() if name.startswith(("parity/recipes/", "parity/starters/"))
    }
    files = {
        f"parity/recipes/{path.relative_to(RECIPES)}"
        for path in RECIPES.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    starters = {f"parity/starters/parity-{name}.yml" for name in STARTERS}
    assert packed == files | starters
