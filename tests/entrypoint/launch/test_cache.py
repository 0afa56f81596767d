"""Legs kept for another run: only of the same commit, as whoever wrote the code could have kept anything."""

import os
from pathlib import Path

import pytest

from entrypoint.launching import cache
from tests.entrypoint.launch.bench import Bench
from tests.entrypoint.launch.test_container import IMAGE, mounts, options

ONE, OTHER = "1" * 40, "2" * 40


def checked_out(bench: Bench, commit: str) -> None:
    (bench.workspace / ".git").mkdir(exist_ok=True)
    (bench.workspace / ".git" / "HEAD").write_text(f"{commit}\n")


def test_a_container_is_given_the_folder_of_its_own_commit_and_no_other(bench: Bench) -> None:
    bench.docker()
    folder = bench.root / "kept"
    for commit in (ONE, OTHER):
        checked_out(bench, commit)
        assert bench.launch(**IMAGE, cache=str(folder)).code == 0
    for call, commit in zip(bench.calls(), (ONE, OTHER), strict=True):
        assert set(mounts(call["argv"])) == {"/src", "/out", "/cache"}
        assert mounts(call["argv"])["/cache"] == {"type": "bind", "source": str(folder / commit), "target": "/cache"}
        argv = call["argv"]
        assert argv[argv.index("r/i:1") :] == ["r/i:1", "run", "parity.yml", "--cache", "/cache", "--out", "/out"]
        (image,) = [one for one in options(argv, "--env") if one.startswith("PARITY_IMAGE=")]
        assert image != "PARITY_IMAGE="


def test_without_an_input_there_is_no_cache(bench: Bench) -> None:
    bench.docker()
    checked_out(bench, ONE)
    assert bench.launch(**IMAGE).code == 0
    (call,) = bench.calls()
    assert "/cache" not in mounts(call["argv"])
    assert "--cache" not in call["argv"]


def test_legs_of_an_unknown_commit_get_none(bench: Bench) -> None:
    bench.docker()
    done = bench.launch(**IMAGE, cache=str(bench.root / "kept"))
    assert "cache: not used, as nobody can tell which commit is checked out" in done.out
    (call,) = bench.calls()
    assert "/cache" not in mounts(call["argv"])
    assert not (bench.root / "kept").exists()


def test_legs_that_nothing_isolates_get_none(bench: Bench) -> None:
    checked_out(bench, ONE)
    done = bench.launch(isolation="process", cache=str(bench.root / "kept"))
    assert "cache: not used, as legs that nothing isolates could fill it for other commits" in done.out
    assert not (bench.root / "kept").exists()


@pytest.mark.parametrize("given", ["kept", "{workspace}/kept", "{workspace}", "{root}/into", "{workspace}/out"])
def test_a_folder_that_the_repository_may_hold_is_refused(bench: Bench, given: str) -> None:
    bench.docker()
    checked_out(bench, ONE)
    (bench.root / "into").symlink_to(bench.workspace)
    (bench.workspace / "out").symlink_to(bench.root)
    done = bench.launch(**IMAGE, cache=given.format(workspace=bench.workspace, root=bench.root))
    assert (done.code, bench.calls()) == (2, [])
    assert "give the full path of a folder elsewhere than in the repository" in done.err


def test_links_go_and_what_is_too_much_and_the_oldest_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MOST_COMMITS", 2)
    monkeypatch.setattr(cache, "MOST_BYTES", 100)
    for age, name in enumerate(("a", "b", "c")):
        (tmp_path / (name * 40)).mkdir()
        (tmp_path / (name * 40) / "entry.zip").write_bytes(b"x" * 10)
        os.utime(tmp_path / (name * 40), (1e9 - age, 1e9 - age))
    (tmp_path / "mine").mkdir()
    own = tmp_path / ("b" * 40)
    (own / "link.zip").symlink_to("/etc/passwd")
    cache.close(own)
    assert sorted(path.name[0] for path in tmp_path.iterdir()) == ["a", "b", "m"]
    assert [path.name for path in own.iterdir()] == ["entry.zip"]
    (own / "large.zip").write_bytes(b"x" * 91)
    cache.close(own)
    assert not own.exists()
