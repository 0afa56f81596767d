"""The launcher runs on the runner itself: Python 3.9, and nothing installed."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.entrypoint.launch.bench import LAUNCH, ROOT, Bench

# sys.stdlib_module_names is that of this Python; these modules came after 3.9.
LATER = {"tomllib", "_typing"}


def imported() -> dict[str, Path]:
    """Every module of entrypoint that the launcher imports, by name."""
    found: dict[str, Path] = {}
    queue = [LAUNCH]
    while queue:
        path = queue.pop()
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: a relative import fails in a file run by its path"
                parts = (node.module or "").split(".")
                names = [".".join(parts[: i + 1]) for i in range(len(parts))]
                names += [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                if name.partition(".")[0] != "entrypoint":
                    assert name.partition(".")[0] in sys.stdlib_module_names - LATER, f"{path}: imports {name}"
                    continue
                place = ROOT / name.replace(".", "/")
                file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
                if file.exists() and name not in found:
                    found[name] = file
                    queue.append(file)
    return found


def test_only_the_standard_library_and_only_what_is_its_own() -> None:
    modules = imported()
    assert {"entrypoint", "entrypoint.inputs", "entrypoint.commands", "entrypoint.launching.keeper"} <= set(modules)
    allowed = {"entrypoint", "entrypoint.inputs", "entrypoint.commands"}
    assert all(name in allowed or name.startswith("entrypoint.launching") for name in modules)


def test_every_file_is_python_3_9() -> None:
    for path in [LAUNCH, *imported().values()]:
        tree = ast.parse(path.read_text(), feature_version=(3, 9))
        if any(isinstance(node, ast.AnnAssign | ast.FunctionDef) for node in ast.walk(tree)):
            names = {
                alias.name
                for node in tree.body
                if isinstance(node, ast.ImportFrom) and node.module == "__future__"
                for alias in node.names
            }
            assert "annotations" in names, path


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_it_runs_on_an_older_and_a_newer_python(version: str, bench: Bench) -> None:
    found = shutil.which(f"python{version}")
    # What is found may be a script that looks for the interpreter on its own.
    words = [found or "false", "-c", "import sys; print(sys.executable)"]
    python = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    if not python:
        pytest.skip(f"there is no python{version}")
    bench.docker()
    bench.env |= {"INPUT_ISOLATION": "docker", "INPUT_IMAGE": "r/i", "INPUT_GPUS": "none"}
    done = subprocess.run([python, LAUNCH], env=bench.env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_python_path_into_the_checkout_leads_nowhere(bench: Bench) -> None:
    """As the action calls it."""
    calls = [line.strip() for line in (ROOT / "action.yml").read_text().splitlines() if "launch.py" in line]
    assert len(calls) == 2
    bench.docker()
    for name in ("sitecustomize", "json", "contextlib", "entrypoint", "platform"):
        (bench.workspace / f"{name}.py").write_text("import os\nos.write(1, b'PWNED')\n")
    bench.env |= {"PYTHONPATH": str(bench.workspace), "GITHUB_ACTION_PATH": str(ROOT)}
    bench.env |= {"INPUT_ISOLATION": "docker", "INPUT_IMAGE": "r/i", "INPUT_GPUS": "none"}
    bench.env["PATH"] = f"{bench.bin}:{Path(sys.executable).parent}"
    for call in calls:
        shell = ["/bin/bash", "-c", call.removeprefix("run: ")]
        done = subprocess.run(shell, env=bench.env, cwd=bench.workspace, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "PWNED" not in done.stdout
    assert bench.calls()


def test_modules_of_the_workspace_are_never_imported(bench: Bench) -> None:
    for name in ("json", "subprocess", "entrypoint", "inputs", "commands"):
        (bench.workspace / f"{name}.py").write_text("raise SystemExit('taken')")
    bench.docker()
    done = bench.launch(isolation="docker", image="r/i", gpus="none")
    assert (done.code, done.err) == (0, "")
