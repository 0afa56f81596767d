"""The hash of code: what changes it, and what does not."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.cache import code
from parity.cache.code import Code
from parity.cache.reasons import NotCacheableError


def git(folder: Path, *words: str) -> None:
    own = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "commit.gpgsign=false",
        "-c",
        "protocol.file.allow=always",
    ]
    subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True)


def committed(folder: Path) -> None:
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "all")


@pytest.fixture(params=["repository", "folder"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text("one")
    (folder / "package" / "model.py").write_text("two")
    (folder / "parity.yml").write_text("suite")
    (folder / ".gitignore").write_text("*.bin\n")
    if request.param == "repository":
        committed(folder)
    return folder


def hash_of(folder: Path, *without: Path) -> str:
    return Code([folder / "parity.yml", *without]).of(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda at: (at / "train.py").write_text("ONE"),
        lambda at: (at / "train.py").unlink(),
        lambda at: (at / "train.py").chmod(0o755),
        lambda at: (at / "train.py").rename(at / "renamed.py"),
        lambda at: (at / "new.py").write_text(""),
        lambda at: (at / "package" / "new.py").symlink_to("model.py"),
        lambda at: (at / "package" / "model.py").write_text("three"),
    ],
)
def test_every_change_of_code_changes_its_hash(project: Path, change: Callable[[Path], object]) -> None:
    before = hash_of(project)
    assert hash_of(project) == before
    change(project)
    assert hash_of(project) != before


def test_what_is_no_code_does_not(project: Path) -> None:
    before = hash_of(project, project / "cache")
    (project / "parity.yml").write_text("another")
    for name in (
        "cache/entry",
        "__pycache__/train.pyc",
        "package/__pycache__/model.pyc",
        ".venv/pyvenv.cfg",
        ".venv/lib/x.py",
    ):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    for name in ("out", "out.1"):
        (project / name / "legs" / "tp1").mkdir(parents=True)
        (project / name / "suite.json").write_text("{}")
        (project / name / "legs" / "tp1" / "rank-0.log").write_text(name)
    assert hash_of(project, project / "cache") == before


def test_a_folder_of_a_repository_stands_for_the_whole_of_it(tmp_path: Path) -> None:
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "parity.yml").write_text("suite")
    (tmp_path / "model.py").write_text("one")
    committed(tmp_path)
    before = Code().of(tmp_path / "suites")
    (tmp_path / "model.py").write_text("two")
    changed = Code().of(tmp_path / "suites")
    git(tmp_path, "commit", "-a", "-m", "changed")
    assert len({before, changed, Code().of(tmp_path / "suites")}) == 3


def test_files_that_git_ignores_do_not_count_unless_they_are_all_there_is(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("build/\n")
    committed(tmp_path)
    (tmp_path / "build").mkdir()
    before = Code().of(tmp_path), Code().of(tmp_path / "build")
    (tmp_path / "build" / "made.py").write_text("one")
    after = Code().of(tmp_path), Code().of(tmp_path / "build")
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_what_is_changed_in_a_submodule_counts(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for folder in (inner, outer):
        folder.mkdir()
        (folder / "model.py").write_text("one")
        committed(folder)
    git(outer, "submodule", "add", str(inner), "inner")
    git(outer, "commit", "-m", "inner")
    found = {Code().of(outer)}
    for text in ("two", "three"):
        (outer / "inner" / "model.py").write_text(text)
        found.add(Code().of(outer))
    assert len(found) == 3


def test_a_folder_where_a_file_was_counts_with_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("one")
    committed(tmp_path)
    found = {Code().of(tmp_path)}
    (tmp_path / "model").unlink()
    (tmp_path / "model").mkdir()
    for text in ("two", "three"):
        (tmp_path / "model" / "layers.py").write_text(text)
        found.add(Code().of(tmp_path))
    assert len(found) == 3


def test_more_than_can_be_read_in_a_moment_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        (tmp_path / f"{number}.py").write_text("x" * 100)
    monkeypatch.setattr(code, "MOST_FILES", 3)
    with pytest.raises(NotCacheableError, match="more than 3 files in"):
        Code().of(tmp_path)
    monkeypatch.setattr(code, "MOST_FILES", 4)
    monkeypatch.setattr(code, "MOST_BYTES", 399)
    with pytest.raises(NotCacheableError, match="that git does not know"):
        Code().of(tmp_path)
