"""The action and the workflows pass the linters of their trade."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .files import ACTION, ROOT, STARTERS, WORKFLOWS

BIN = Path(sys.executable).parent
EVERYTHING = [str(path.relative_to(ROOT)) for path in (ACTION, *WORKFLOWS)]


def lint(*command: str) -> None:
    done = subprocess.run(
        [BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_something_to_lint() -> None:
    assert [path.name for path in STARTERS] == [
        "parity-copy-pr-bot.yml",
        "parity-matrix.yml",
        "parity-nightly.yml",
        "parity-ok-to-test.yml",
        "parity-same-repo.yml",
    ]
    assert len(WORKFLOWS) > len(STARTERS)


def test_zizmor() -> None:
    lint("zizmor", "--offline", "--quiet", "--no-config", "--pedantic", "--strict-collection", *EVERYTHING)


def test_actionlint() -> None:
    lint("actionlint", "-no-color", *(name for name in EVERYTHING if name != ACTION.name))


@pytest.mark.parametrize(
    ("schema", "names"),
    [("vendor.github-actions", [ACTION.name]), ("vendor.github-workflows", EVERYTHING[1:])],
    ids=["action", "workflows"],
)
def test_published_schema(schema: str, names: list[str]) -> None:
    lint("check-jsonschema", "--builtin-schema", schema, *names)


@pytest.mark.parametrize("name", EVERYTHING)
def test_what_a_linter_is_told_to_leave_is_justified_there(name: str) -> None:
    for line in (ROOT / name).read_text().splitlines():
        if "ignore" in line and ("zizmor" in line or "actionlint" in line):
            assert re.search(r"# zizmor: ignore\[[a-z-]+\] \w+( \S+){3,}$", line), line
