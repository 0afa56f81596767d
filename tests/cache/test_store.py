"""Entries of the cache: whole or not at all, whoever writes at the same time, and never more than was promised."""

import json
import os
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from parity.cache import store
from parity.cache.store import DamagedError, Store, TooLargeError

KEY, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def left(tmp_path: Path) -> Path:
    folder = tmp_path / "left"
    (folder / "events").mkdir(parents=True)
    (folder / "leg.json").write_text("{}")
    (folder / "events" / "0.log").write_bytes(bytes(range(256)) * 4000)
    (folder / "link").symlink_to("/etc/passwd")
    return folder


def target(tmp_path: Path, name: str = "target") -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder


def test_what_is_kept_comes_back_with_its_folders_and_without_links(tmp_path: Path, left: Path) -> None:
    kept = Store(tmp_path / "cache")
    assert not kept.has(KEY)
    kept.write(KEY, left)
    assert kept.has(KEY)
    created = kept.read(KEY, target(tmp_path))
    assert created is not None
    assert 0 <= time.time() - created < 100
    found = {str(path.relative_to(tmp_path / "target")) for path in (tmp_path / "target").rglob("*")}
    assert found == {"leg.json", "events", "events/0.log"}
    assert (tmp_path / "target/events/0.log").read_bytes() == (left / "events/0.log").read_bytes()
    assert kept.read(OTHER, tmp_path / "target") is None


def test_writers_and_readers_at_once_never_see_half_an_entry(tmp_path: Path, left: Path) -> None:
    folder = tmp_path / "cache"
    Store(folder).write(KEY, left)

    def write(_: int) -> None:
        Store(folder).write(KEY, left)

    def read(number: int) -> bytes:
        into = target(tmp_path, f"target-{number}")
        assert Store(folder).read(KEY, into) is not None
        return (into / "events" / "0.log").read_bytes()

    with ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(write, number) for number in range(20)]
        reading = [pool.submit(read, number) for number in range(20)]
        assert {one.result() for one in reading} == {(left / "events/0.log").read_bytes()}
        assert [one.result() for one in writing] == [None] * 20
    assert [path.name for path in folder.iterdir()] == [f"{KEY}.zip"]


def test_every_byte_that_is_changed_is_noticed(tmp_path: Path, left: Path) -> None:
    (left / "events" / "0.log").write_bytes(b"short")
    kept = Store(tmp_path / "cache")
    kept.write(KEY, left)
    entry = tmp_path / "cache" / f"{KEY}.zip"
    content = entry.read_bytes()
    for place in range(0, len(content), 7):
        entry.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        into = target(tmp_path, f"target-{place}")
        try:
            kept.read(KEY, into)
        except DamagedError:
            continue
        # A time or the like, which nobody reads.
        assert (into / "leg.json").read_text() == "{}"
        assert (into / "events" / "0.log").read_bytes() == b"short"


@pytest.mark.parametrize("name", ["../out.py", "/etc/out.py", "a/../../out.py", "a//b", "./a", ""])
def test_an_entry_whose_files_would_lie_elsewhere_is_damaged(tmp_path: Path, name: str) -> None:
    (tmp_path / "cache").mkdir()
    told = {"key": KEY, "created": 0, "files": {name: {"sha256": "0" * 64, "size": 1}}}
    with zipfile.ZipFile(tmp_path / "cache" / f"{KEY}.zip", "w") as entry:
        entry.writestr(name or "x", "x")
        entry.writestr("manifest.json", json.dumps(told))
    with pytest.raises(DamagedError):
        Store(tmp_path / "cache").read(KEY, target(tmp_path))
    assert not any(path.name == "out.py" for path in tmp_path.rglob("*"))


def test_an_entry_of_another_key_or_that_is_longer_than_it_says_is_damaged(tmp_path: Path, left: Path) -> None:
    kept = Store(tmp_path / "cache")
    kept.write(KEY, left)
    (tmp_path / "cache" / f"{KEY}.zip").rename(tmp_path / "cache" / f"{OTHER}.zip")
    with pytest.raises(DamagedError):
        kept.read(OTHER, target(tmp_path))
    told = {"key": KEY, "created": 0, "files": {"a": {"sha256": "0" * 64, "size": 1}}}
    with zipfile.ZipFile(tmp_path / "cache" / f"{KEY}.zip", "w", zipfile.ZIP_DEFLATED) as entry:
        entry.writestr("a", bytes(50_000_000))
        entry.writestr("manifest.json", json.dumps(told))
    with pytest.raises(DamagedError, match="longer than it was"):
        kept.read(KEY, target(tmp_path, "second"))


def test_a_leg_that_left_too_much_is_not_kept(tmp_path: Path, left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_FILES", 1)
    with pytest.raises(TooLargeError, match="1 files"):
        Store(tmp_path / "cache").write(KEY, left)
    assert not (tmp_path / "cache").exists()


def test_what_was_used_longest_ago_goes_first(tmp_path: Path, left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, folder = Store(tmp_path / "cache"), tmp_path / "cache"
    keys = [letter * 64 for letter in "abcd"]
    now = time.time()
    for age, key in zip((40 * 86400, 3000, 2000), keys, strict=False):
        kept.write(key, left)
        os.utime(folder / f"{key}.zip", (now - age, now - age))
    (folder / "mine.txt").write_text("")
    (folder / ".parity-0").write_text("")
    os.utime(folder / ".parity-0", (now - 2 * 86400, now - 2 * 86400))
    size = (folder / f"{keys[1]}.zip").stat().st_size
    # Of two entries; their sizes differ by some digits of the time at which they were written.
    monkeypatch.setattr(store, "KEPT_BYTES", 2 * size + size // 2)
    kept.read(keys[1], target(tmp_path))  # is used again
    kept.write(keys[3], left)
    assert {path.name for path in folder.iterdir()} == {f"{keys[1]}.zip", f"{keys[3]}.zip", "mine.txt"}
