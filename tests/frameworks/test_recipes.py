"""What holds for every framework's folder of recipes, without the framework."""

import re
import sys
from pathlib import Path

import pytest

from parity.errors import PackageError
from parity.needs import check_needs
from parity.suite import Suite, load
from tests.frameworks.environments import FRAMEWORKS, RECIPES, venv_of

SUITES = [path for name in FRAMEWORKS for path in sorted((RECIPES / name).glob("*.yml"))]
HERE = Path(__file__).parent

each = pytest.mark.parametrize("name", FRAMEWORKS)


def pins(name: str) -> dict[str, str]:
    """What a framework's requirements pin, by distribution."""
    lines = [
        line.split("#")[0].strip()
        for path in sorted((RECIPES / name).glob("requirements*.txt"))
        for line in path.read_text().splitlines()
    ]
    return {re.split(r"[=@ \[]", line)[0].lower().replace("_", "-"): line for line in lines if line}


@each
def test_a_framework_has_recipes_a_page_and_tests(name: str) -> None:
    assert [path for path in SUITES if path.parent.name == name]
    assert (RECIPES / name / "README.md").exists()
    assert (HERE / f"test_{name}.py").exists()


@each
def test_what_a_framework_needs_is_pinned(name: str) -> None:
    loose = [line for line in pins(name).values() if "==" not in line and not re.search(r" @ \S+@[0-9a-f]{40}", line)]
    assert not loose
    assert "torch" in pins(name)


@each
def test_frameworks_that_share_an_environment_agree(name: str) -> None:
    host = venv_of(name).name
    assert host in FRAMEWORKS
    assert venv_of(host).name == host, "shares the environment of one that shares another's"
    theirs = pins(host)
    assert not {mine: pin for mine, pin in pins(name).items() if theirs.get(mine, pin) != pin}


@each
def test_a_page_names_recipes_that_there_are_and_all_of_them(name: str) -> None:
    page = (RECIPES / name / "README.md").read_text()
    missing = [path.stem for path in SUITES if path.parent.name == name and f"{name}/{path.stem}" not in page]
    assert not missing
    used = re.findall(rf"(?:run|validate|calibrate|--recipe) ({name}/[\w.-]*\w)", page)
    assert not {one for one in used if not (RECIPES / f"{one}.yml").exists()}
    assert f"parity run {name}/" in page


def texts(suite: Suite) -> list[str]:
    """The words of every leg's command."""
    found: list[str] = []
    for leg in suite.legs.values():
        command = suite.command_of(leg) or []
        found += [command] if isinstance(command, str) else command
    return found


@pytest.mark.parametrize("path", SUITES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_files_beside_a_suite_that_it_names_are_there(path: Path) -> None:
    for text in texts(load(path)):
        for file in re.findall(r"\{suite_dir\}/([\w./-]+)", text):
            assert (path.parent / file).exists(), file
        bare = [word for word in re.findall(r"[\w./{}-]+\.(?:py|yaml|json)\b", text) if (path.parent / word).exists()]
        assert not bare, "is found from the recipe's own folder alone: name it by {suite_dir}"


@pytest.mark.parametrize("path", SUITES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_missing_framework_is_told_before_anything_starts(path: Path, tmp_path: Path) -> None:
    suite = load(path)
    assert suite.needs
    (tmp_path / "torchrun").write_text(f"#!{sys.executable}\n")  # of this environment, which has no framework
    (tmp_path / "torchrun").chmod(0o755)
    for name in suite.legs:
        with pytest.raises(PackageError) as told:
            check_needs(suite, [name], tmp_path, path.parent, str(tmp_path))
        assert len(told.value.lines) == 1
        assert str(path.parent / "requirements.txt") in told.value.lines[0]
