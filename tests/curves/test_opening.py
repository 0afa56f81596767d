import gzip
import os
import resource
import socket
import zlib
from pathlib import Path

import pytest

from parity.curves.notes import Notes
from parity.curves.opening import Limits, open_lines
from parity.errors import UsageError
from tests.curves.conftest import Write

TEXT = '{"step": 0}\n{"step": 1, "note": "ü €"}\n'
LINES = TEXT.splitlines()


def lines_of(path: Path, limits: Limits | None = None, within: Path | None = None) -> tuple[list[str], list[str]]:
    notes = Notes()
    with open_lines(path, notes, limits=limits, within=within) as opened:
        return list(opened.lines()), [note.text for note in notes.all()]


def refused(path: Path, limits: Limits | None = None, within: Path | None = None) -> str:
    with pytest.raises(UsageError) as error:
        lines_of(path, limits, within)
    (line,) = error.value.lines
    assert "\n" not in line
    assert line.startswith(f"{path}: ")
    return line.removeprefix(f"{path}: ")


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("packed", [False, True])
def test_open_lines__encodings_with_a_mark_and_gzip(write: Write, codec: str, packed: bool) -> None:
    data = TEXT.encode(codec)
    assert lines_of(write(gzip.compress(data) if packed else data)) == (LINES, [])


@pytest.mark.parametrize("mark", ["utf-16-be", "utf-32-be"])
def test_open_lines__big_endian(write: Write, mark: str) -> None:
    assert lines_of(write(("\ufeff" + TEXT).encode(mark))) == (LINES, [])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_open_lines__line_ends(write: Write, end: str) -> None:
    assert lines_of(write(TEXT.replace("\n", end)))[0] == LINES


def test_open_lines__line_ends_and_characters_cut_by_blocks(write: Write) -> None:
    lines = [f"ü{i}" * (i % 7) for i in range(200_000)]
    assert lines_of(write("\r\n".join(lines)))[0] == lines


def test_open_lines__other_separators_do_not_end_a_line(write: Write) -> None:
    assert lines_of(write("a\u2028b\x0cc\x85d\ne"))[0] == ["a\u2028b\x0cc\x85d", "e"]


def test_open_lines__last_line_without_end(write: Write) -> None:
    assert lines_of(write("a\n\nb"))[0] == ["a", "", "b"]


def test_open_lines__undecodable_bytes_are_replaced_and_noted(write: Write) -> None:
    lines, notes = lines_of(write(b"loss \xff 1\nok"))
    assert lines == ["loss \ufffd 1", "ok"]
    assert notes == ["some bytes are not UTF-8 and were replaced"]


def test_open_lines__truncated_gzip_keeps_what_was_there(write: Write) -> None:
    text = "".join(f"{zlib.crc32(bytes([i % 256])) * i}\n" for i in range(50_000))
    data = gzip.compress(text.encode())
    lines, notes = lines_of(write(data[: len(data) // 2]))
    assert len(lines) > 10_000
    assert text.startswith("\n".join(lines))
    assert "ends early" in notes[0]


def test_open_lines__gzip_with_a_wrong_checksum_is_refused(write: Write) -> None:
    data = bytearray(gzip.compress(TEXT.encode()))
    data[-6] ^= 1
    assert "damaged gzip" in refused(write(bytes(data)))


def test_open_lines__gzip_with_a_broken_stream_is_refused(write: Write) -> None:
    assert "damaged gzip" in refused(write(gzip.compress(b"", mtime=0)[:10] + b"\xff" * 100))


@pytest.mark.parametrize("content", [b"", b"\n  \n", b"\xef\xbb\xbf", b"\xff\xfe", gzip.compress(b"", mtime=0)])
def test_open_lines__empty(write: Write, content: bytes) -> None:
    assert refused(write(content)) == "is empty: the run wrote nothing"


def test_open_lines__png_is_not_text(write: Write) -> None:
    assert refused(write(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")).startswith("not text")


def test_open_lines__utf_16_without_a_mark_says_what_to_do(write: Write) -> None:
    assert "UTF-16 needs a byte-order mark" in refused(write(TEXT.encode("utf-16-le")))


def test_open_lines__missing_folder_pipe_socket_device(tmp_path: Path) -> None:
    assert refused(tmp_path / "none") == "no such file"
    assert refused(tmp_path).startswith("is a folder")
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe").startswith("is a pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        assert refused(tmp_path / "socket").startswith("is a socket")
    assert refused(Path("/dev/zero")).startswith("is a device")


def test_open_lines__unreadable(write: Write, tmp_path: Path) -> None:
    assert refused(write("x") / "below").startswith("can't be opened: Not a directory")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "symbolic links" in refused(loop)
    with pytest.raises(UsageError, match="can't be opened"), open_lines("a\0b", Notes()):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_open_lines__no_permission(write: Write) -> None:
    path = write(TEXT)
    path.chmod(0)
    assert "Permission denied" in refused(path)


def test_open_lines__file_too_large(write: Write) -> None:
    path = write("x\n")
    os.truncate(path, 9 << 30)  # sparse: takes no space
    why = refused(path)
    assert why.startswith("is 9.0 GiB large, and at most 8.0 GiB is read")
    assert "raise the limit" in why


def test_open_lines__gzip_bomb(write: Write) -> None:
    bomb = gzip.compress(b"a\n" * 5_000_000)
    assert len(bomb) < 20_000
    assert "holds more text than 1000000 bytes" in refused(write(bomb), Limits(size=1_000_000))


def test_open_lines__a_line_without_end_is_refused_before_it_fills_memory(write: Write) -> None:
    path = write("{}\n")
    with path.open("ab") as file:
        for _ in range(200):
            file.write(b"x" * (1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert refused(path).startswith("line 2 is longer than 1048576 characters")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10


def test_open_lines__long_line_in_the_middle(write: Write) -> None:
    assert "line 2 is longer than 5" in refused(write("a\nbcdefgh\ni\n"), Limits(line=5))


def test_open_lines__within_refuses_links_and_other_folders(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    run = tmp_path / "run"
    (run / "legs").mkdir(parents=True)
    (run / "legs" / "good").write_text("x")
    (run / "legs" / "link").symlink_to(secret)
    (run / "legs" / "sideways").symlink_to(run / "legs" / "good")
    (run / "other").symlink_to(run / "legs")
    assert lines_of(run / "legs" / "good", within=run)[0] == ["x"]
    for path in (run / "legs" / "link", run / "legs" / "sideways", run / "other" / "good", secret):
        assert "links are not followed" in refused(path, within=run)
    assert lines_of(run / "legs" / "link")[0] == ["x"]


def test_open_lines__within_a_folder_that_is_itself_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log").write_text("x")
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    assert lines_of(tmp_path / "latest" / "log", within=tmp_path / "latest")[0] == ["x"]


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16"])
def test_holding__only_the_lines_with_a_needle_and_their_numbers(write: Write, codec: str) -> None:
    text = "loss 0\nother\n\nbar 1%\rbar 2% loss 1\nx lo loss loss 2\nnorm 3\n" + "y\n" * 700_000 + "loss 4"
    with open_lines(write(text.encode(codec)), Notes()) as opened:
        found = [(number, line.removeprefix("\ufeff")) for number, line in opened.holding(["loss", "norm"])]
    lines = ["loss 0", "bar 2% loss 1", "x lo loss loss 2", "norm 3", "loss 4"]
    assert [line for _, line in found] == lines
    if codec != "utf-16":
        assert [number for number, _ in found] == [1, 4, 5, 6, 700_007]


@pytest.mark.parametrize("codec", ["utf-8", "utf-16"])
@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("loss 1\nloss 2\n", [False, False]),
        ("loss 1\nloss 2", [False, True]),
        ("loss 1\rloss 2", [False, True]),
        ("loss 1\nother", [False]),
        ("loss 1", [True]),
    ],
)
def test_holding__the_last_line_without_an_end_is_told(write: Write, text: str, cut: list[bool], codec: str) -> None:
    with open_lines(write(text.encode(codec)), Notes()) as opened:
        assert [opened.cut for _ in opened.holding(["loss"])] == cut


def test_holding__a_line_without_end_is_refused_before_it_fills_memory(write: Write) -> None:
    with (
        open_lines(write("x" * 5_000_000), Notes(), limits=Limits(line=1 << 20)) as opened,
        pytest.raises(UsageError, match="line 1 is longer than 1048576 characters"),
    ):
        list(opened.holding(["loss"]))
