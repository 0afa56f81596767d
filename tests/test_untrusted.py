"""What a leg can put where a file is expected, and that it leads nowhere."""

import os
import socket
import stat
from pathlib import Path

import pytest

from parity.errors import UsageError
from parity.untrusted import MissingError, copy_bounded, open_regular, read_bytes, replacing, write_whole


def refusal(error: pytest.ExceptionInfo[UsageError], path: Path) -> str:
    (line,) = error.value.lines
    assert "\n" not in line
    assert line.startswith(f"{path}: ")
    return line.removeprefix(f"{path}: ")


def refused(path: Path, within: Path | None = None, limit: int = 100) -> str:
    with pytest.raises(UsageError) as error:
        read_bytes(path, within=within, limit=limit)
    return refusal(error, path)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    path = tmp_path / "outside" / "secret"
    path.write_text("secret")
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    (path / "legs").mkdir(parents=True)
    (path / "legs" / "good").write_bytes(b"good")
    return path


def test_read_bytes__a_file_below_a_folder_that_is_reached_by_a_link(run: Path, tmp_path: Path) -> None:
    assert read_bytes(run / "legs" / "good", within=run, limit=4) == b"good"
    (tmp_path / "latest").symlink_to(run)
    assert read_bytes(tmp_path / "latest" / "legs" / "good", within=tmp_path / "latest", limit=4) == b"good"
    assert read_bytes(run / "legs" / ".." / "legs" / "good", within=run, limit=4) == b"good"


def test_read_bytes__relative_paths(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run / "legs")
    assert read_bytes("good", within=None, limit=4) == b"good"
    assert read_bytes("good", within="..", limit=4) == b"good"


def test_read_bytes__a_link_in_the_last_place(run: Path, secret: Path) -> None:
    for name, target in (("out", secret), ("sideways", run / "legs" / "good"), ("loop", run / "legs" / "loop")):
        (run / "legs" / name).symlink_to(target)
        for within in (None, run):
            assert refused(run / "legs" / name, within) == "is a link: links are not followed"


def test_read_bytes__a_link_on_the_way(run: Path, secret: Path) -> None:
    (run / "legs" / "tp2").symlink_to(secret.parent)
    (run / "legs" / "tp3").symlink_to(run / "legs")
    for path in (run / "legs" / "tp2" / "secret", run / "legs" / "tp3" / "good"):
        assert refused(path, run) == f"is a link or lies outside {run}: links are not followed"


def test_read_bytes__outside(run: Path, secret: Path) -> None:
    for path in (secret, run / ".." / "outside" / "secret", run):
        assert refused(path, run) == f"is a link or lies outside {run}: links are not followed"


def test_open_regular__a_folder_exchanged_for_a_link_after_it_was_looked_at(
    run: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (secret.parent / "good").write_text("secret")
    look = os.stat

    def exchange(*args: object, **kwargs: object) -> os.stat_result:
        found = look(*args, **kwargs)  # type: ignore[arg-type]
        monkeypatch.undo()
        (run / "legs").rename(run / "aside")
        (run / "legs").symlink_to(secret.parent)
        return found

    monkeypatch.setattr(os, "stat", exchange)
    assert read_bytes(run / "legs" / "good", within=run, limit=100) == b"good"
    assert (run / "legs").is_symlink()


def test_read_bytes__pipe_socket_device_folder_wait_for_no_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe").startswith("is a pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        assert refused(tmp_path / "socket").startswith("is a socket")
    assert refused(Path("/dev/zero")).startswith("is a device")
    assert refused(tmp_path).startswith("is a folder")


def test_read_bytes__missing_and_unreadable(run: Path) -> None:
    for path in (run / "none", run / "none" / "below"):
        for within in (None, run):
            with pytest.raises(MissingError) as error:
                read_bytes(path, within=within, limit=1)
            assert refusal(error, path) == "no such file"
    assert "Not a directory" in refused(run / "legs" / "good" / "below", run)
    with pytest.raises(UsageError, match="null byte"):
        read_bytes("a\0b", within=None, limit=1)


def test_read_bytes__too_large_is_refused_before_it_is_read(run: Path) -> None:
    os.truncate(run / "legs" / "good", 3 << 30)  # sparse: takes no space
    assert refused(run / "legs" / "good") == "is 3.0 GiB large, and at most 100 bytes is read"


def test_open_regular__a_file_that_grows_past_the_limit_while_it_is_read(run: Path) -> None:
    path = run / "legs" / "good"
    for read in (lambda file: file.read(), lambda file: file.read(100), list):
        path.write_bytes(b"x" * 10)
        with open_regular(path, limit=10) as file, path.open("ab") as more:
            more.write(b"more")
            more.flush()
            with pytest.raises(UsageError) as error:
                read(file)
        assert refusal(error, path) == "has grown beyond 10 bytes, which is the most that is read"


def test_open_regular__a_file_of_just_the_limit_can_be_read_twice(run: Path) -> None:
    with open_regular(run / "legs" / "good", limit=4) as file:
        assert (file.read(), file.seek(0), file.read(2), file.tell(), file.read()) == (b"good", 0, b"go", 2, b"od")


def test_open_regular__follow_is_for_paths_that_a_person_gave(run: Path, secret: Path) -> None:
    (run / "link").symlink_to(secret)
    with open_regular(run / "link", follow=True) as file:
        assert file.read() == b"secret"
    with pytest.raises(UsageError, match="links are not followed"):
        open_regular(run / "link", within=run, follow=True)


def test_copy_bounded(run: Path, secret: Path) -> None:
    target = run / "copy"
    target.symlink_to(secret)
    copy_bounded(run / "legs" / "good", target, limit=4, within=run)
    assert not target.is_symlink()
    assert (target.read_bytes(), secret.read_text()) == (b"good", "secret")


def test_copy_bounded__a_source_that_is_refused_leaves_the_target_as_it_was(run: Path, secret: Path) -> None:
    target = run / "copy"
    target.write_text("before")
    (run / "link").symlink_to(secret)
    for source in (run / "link", run / "legs" / "good", run / "none"):
        with pytest.raises(UsageError) as error:
            copy_bounded(source, target, limit=3)
        assert refusal(error, source)
    assert target.read_text() == "before"
    assert sorted(path.name for path in run.iterdir()) == ["copy", "legs", "link"]


def test_write_whole__a_planted_link_is_replaced_and_not_written_through(run: Path, secret: Path) -> None:
    (run / "leg.json").symlink_to(secret)
    write_whole(run / "leg.json", "ü\n", within=run)
    assert not (run / "leg.json").is_symlink()
    assert ((run / "leg.json").read_bytes(), secret.read_text()) == ("ü\n".encode(), "secret")
    assert stat.S_IMODE((run / "leg.json").stat().st_mode) & 0o133 == 0


def test_write_whole__a_folder_that_became_a_link_is_not_written_to(run: Path, secret: Path) -> None:
    (run / "legs" / "tp2").symlink_to(secret.parent)
    path = run / "legs" / "tp2" / "leg.json"
    with pytest.raises(UsageError) as error:
        write_whole(path, "x", within=run)
    assert refusal(error, path).endswith("links are not followed")
    assert [one.name for one in secret.parent.iterdir()] == ["secret"]


def test_write_whole__cannot_be_written(run: Path) -> None:
    for path, why in ((run / "legs", "Is a directory"), (run / "none" / "x", "No such file or directory")):
        with pytest.raises(UsageError) as error:
            write_whole(path, "x")
        assert refusal(error, path) == f"can't be written: {why}"
    assert [path.name for path in run.iterdir()] == ["legs"]


def test_replacing__what_breaks_off_leaves_the_file_as_it_was_and_no_draft(run: Path) -> None:
    (run / "file").write_text("before")
    with pytest.raises(TypeError), replacing(run / "file") as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert (run / "file").read_text() == "before"
    assert sorted(path.name for path in run.iterdir()) == ["file", "legs"]


def test_replacing__its_draft_cannot_be_foreseen(run: Path) -> None:
    names: set[str] = set()
    for _ in range(2):
        with replacing(run / "file"):
            names.update(path.name for path in run.iterdir() if path.name.startswith(".parity-"))
    assert len(names) == 2
    assert min(map(len, names)) > 32
