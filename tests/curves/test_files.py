from pathlib import Path

import pytest

from parity.curves import files
from parity.curves.files import find_files
from parity.errors import UsageError


def refused(path: Path, within: Path | None = None) -> str:
    with pytest.raises(UsageError) as error:
        find_files(path, within=within)
    (line,) = error.value.lines
    return line.removeprefix(f"{path}: ")


def test_find_files__a_file_and_a_folder(tmp_path: Path) -> None:
    deep = tmp_path / "a/b/c/d/e/f"
    (deep / "g").mkdir(parents=True)
    for path in (tmp_path / "z", deep / "x", deep / "g" / "too deep"):
        path.write_bytes(b"12345")
    assert find_files(tmp_path).names == ("a/b/c/d/e/f/x", "z")
    found = find_files(tmp_path / "z")
    assert (found.names, found.is_folder, found.head()) == (("",), False, b"12345")
    with find_files(tmp_path).open("a/b/c/d/e/f/x") as file:
        assert file.read() == b"12345"


def test_find_files__folders_behind_links_are_not_looked_into(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "x").write_text("")
    run = tmp_path / "run"
    run.mkdir()
    (run / "link").symlink_to(tmp_path / "secret")
    assert find_files(run).names == ("link",)
    assert find_files(run / "link").names == ("x",)  # a person's own link
    assert refused(run / "link", within=run) == "is a link: links are not followed"
    (run / "more").symlink_to(tmp_path)
    assert "links are not followed" in refused(run / "more" / "secret", within=run)
    assert "links are not followed" in refused(tmp_path / "secret", within=run)


def test_find_files__folders_with_too_much_in_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_ENTRIES", 4)
    for name in "abc":
        (tmp_path / name).mkdir()
    assert find_files(tmp_path).names == ()
    for name in "de":
        (tmp_path / "c" / name).write_text("")
    assert refused(tmp_path) == "holds more than 4 files: name the folder of one run, or a file"


def test_files__a_disk_that_fails_is_told_as_such() -> None:
    with pytest.raises(UsageError, match=r"^/proc/self/mem: can't be read: Input/output error$"):
        find_files("/proc/self/mem").head()
