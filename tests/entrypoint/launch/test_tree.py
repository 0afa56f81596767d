"""Whatever was committed to the output folder or written there by legs, nothing leads out of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoint.launching import tree
from tests.entrypoint.launch.bench import ROOT, Bench

IMAGE = {"isolation": "docker", "image": "r/i:1", "gpus": "none"}


def deep(top: Path, levels: int) -> None:
    """Folders in folders, each with a link."""
    folder = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.symlink("/etc/passwd", "link", dir_fd=folder)
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)


def links(top: Path) -> list[str]:
    return [path for path in subprocess.check_output(["find", top, "-type", "l"], text=True).splitlines() if path]


@pytest.fixture
def planted(bench: Bench) -> Bench:
    """A checkout whose author has put into the output folder what an upload would follow, and a forged note."""
    out = bench.workspace / "parity-out"
    (out / "run" / "legs").mkdir(parents=True)
    (bench.root / "secret").write_text("s")
    for place in (out, out / "run", out / "run" / "legs"):
        (place / "leak").symlink_to(bench.root / "secret")
    (out / "launch.json").write_text('{"format": "parity.launch/1", "how": "finished"}')
    (out / "run" / "suite.json").write_text("{}")
    deep(out, 1200)
    bench.docker()
    return bench


@pytest.mark.parametrize(
    ("words", "inputs", "code"),
    [
        ((), {}, 0),
        ((), {"suite": "nothing.yml"}, 2),
        ((), {"isolation": "jail"}, 2),
        ((), {"image": "-"}, 2),
        (("destroy",), {}, 2),
        (("preflight",), {}, 0),
        (("cleanup",), {}, 0),
        (("cleanup",), {"timeout": "never"}, 2),
    ],
)
def test_no_committed_link_is_left_however_it_ends(
    words: tuple[str, ...], inputs: dict[str, str], code: int, planted: Bench
) -> None:
    done = planted.launch(*words, **{**IMAGE, **inputs})
    assert done.code == code, done.err
    assert links(done.folder) == []
    assert "Traceback" not in done.err
    if not words:
        assert sorted(os.listdir(done.folder)) == ["launch.json", "run"]
        assert (done.note["run_id"], done.note["run_attempt"]) == ("77", "2")
        assert bool(done.note["error"]) == bool(code)
    if words == ("cleanup",) and not code:
        assert not (done.folder / "launch.json").exists(), "no launch of this run has written it"


def test_a_link_on_the_way_is_removed(bench: Bench) -> None:
    (bench.root / "home" / "out").mkdir(parents=True)
    (bench.root / "home" / "out" / "key").write_text("k")
    (bench.workspace / "a").symlink_to(bench.root / "home")
    bench.docker()
    assert bench.launch(**IMAGE, out="a/out").code == 2
    assert os.listdir(bench.workspace / "a" / "out") == ["launch.json"]
    assert os.listdir(bench.root / "home" / "out") == ["key"]


@pytest.mark.parametrize("out", [".", "..", ".git", ".git/parity"])
def test_the_repository_itself_is_no_output_folder(out: str, bench: Bench) -> None:
    (bench.workspace / ".git").mkdir()
    (bench.workspace / ".git" / "HEAD").write_text("ab" * 20)
    (bench.workspace / "launch.json").write_text("{}")
    bench.docker()
    done = bench.launch(**IMAGE, out=out)
    assert (done.code, bench.calls()) == (2, [])
    assert "give a folder of its own" in done.err
    assert (bench.workspace / "parity.yml").exists()
    assert (bench.workspace / ".git" / "HEAD").exists()
    assert (bench.workspace / "launch.json").exists() == (out != ".")


def test_cleanup_keeps_the_note_of_this_run(bench: Bench) -> None:
    bench.docker()
    assert bench.launch(**IMAGE).code == 0
    (bench.workspace / "parity-out" / "run" / "leak").symlink_to("/etc/passwd")
    done = bench.launch("cleanup")
    assert (done.code, links(done.folder)) == (0, [])
    assert done.note["how"] == "finished"
    bench.env["GITHUB_RUN_ATTEMPT"] = "3"
    assert not (bench.launch("cleanup").folder / "launch.json").exists()


@pytest.mark.parametrize("version", ["3.9", "3.11"])
def test_a_leg_cannot_go_too_deep_for_the_sweep(version: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    deep(tmp_path / "run", 1200)
    pythons = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    python = pythons[0] if pythons else Path(sys.executable)
    code = "import sys; sys.path.insert(0, sys.argv[1])\nfrom entrypoint.launching import tree\n"
    code += "tree.sweep(tree.Path(sys.argv[2]))"
    subprocess.run([python, "-I", "-c", code, ROOT, tmp_path / "run"], check=True)
    assert links(tmp_path) == []
    depth = subprocess.check_output(["find", tmp_path / "run", "-type", "d"], text=True).count("\n") - 1
    assert depth == tree.DEEPEST - 1
    deep(tmp_path, 0)
    code = code.replace("tree.sweep(tree.Path(sys.argv[2]))", "tree.remove(sys.argv[2])")
    subprocess.run([python, "-I", "-c", code, ROOT, tmp_path / "run"], check=True)
    assert os.listdir(tmp_path) == []


def test_what_is_removed_whole_may_be_deep(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    deep(tmp_path / "run", 3000)
    (tmp_path / "kept").write_text("k")
    tree.remove(tmp_path / "nothing")
    tree.remove(tmp_path / "run")
    assert os.listdir(tmp_path) == ["kept"]


def test_more_than_can_be_uploaded_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MOST", 10)
    for one in "abcd":
        (tmp_path / one).mkdir()
        for two in "abcd":
            (tmp_path / one / two).write_text("x")
            (tmp_path / one / f"{two}{two}").mkdir()
    counts = tree.sweep(tmp_path)
    assert sum(1 for _ in tmp_path.rglob("*")) <= 10
    assert (counts.removed > 0, counts.files) == (True, sum(path.is_file() for path in tmp_path.rglob("*")))


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can be somebody else")
def test_what_was_closed_to_its_owner_is_opened(tmp_path: Path) -> None:
    """As somebody who is not root, whom closed folders stop."""
    (tmp_path / "run" / "legs").mkdir(parents=True)
    (tmp_path / "run" / "legs" / "file").write_text("x")
    (tmp_path / "run" / "legs" / "link").symlink_to("/etc/passwd")
    for path in (tmp_path, tmp_path / "run", tmp_path / "run" / "legs", tmp_path / "run" / "legs" / "file"):
        os.chown(path, 65534, 65534)
    for path in (tmp_path / "run" / "legs" / "file", tmp_path / "run" / "legs", tmp_path / "run"):
        path.chmod(0)
    for parent in tmp_path.parents[:3]:
        parent.chmod(0o755)
    code = "import sys; sys.path.insert(0, sys.argv[1])\n"
    code += "from pathlib import Path\nfrom entrypoint.launching import tree\n"
    code += "print(tree.sweep(Path(sys.argv[2]))); open(sys.argv[2] + '/run/legs/file').read()\n"
    code += "import os; os.chmod(sys.argv[2] + '/run', 0); tree.remove(sys.argv[2] + '/run')"
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", code, ROOT, tmp_path],
        user=65534,
        group=65534,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "Counts(files=1, bytes=1, removed=1, renamed=0)\n"), done.stderr
    assert os.listdir(tmp_path) == []


def test_names_that_an_upload_refuses_are_changed(tmp_path: Path) -> None:
    names = [
        'a"b',
        "a:b",
        "a<b",
        "a>b",
        "a|b",
        "a*b",
        "a?b",
        "a\rb",
        "a\nb",
        "a\\b",
        "a\x1bb",
        os.fsdecode(b"a\xffb"),
    ]
    for name in [*names, "plain-name_1.jsonl", "größe", "x:" + "y" * 240]:
        (tmp_path / name).write_text("x")
    (tmp_path / "d?").mkdir()
    (tmp_path / "d?" / "e?").write_text("x")
    (tmp_path / tree.safe_name("a:b")).write_text("there already")
    counts = tree.sweep(tmp_path)
    found = [path.name for path in tmp_path.rglob("*")]
    assert counts.renamed == len(names) + 3
    assert counts.files == len(names) + 5
    assert {"plain-name_1.jsonl", "größe"} <= set(found)
    assert all(tree.safe_name(name) == name for name in found)
    assert (tmp_path / tree.safe_name("a:b")).read_text() == "there already"


def test_paths_that_no_program_opens_are_removed(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("n" * 250, dir_fd=folder)
        inner = os.open("n" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    tree.sweep(tmp_path)
    assert max(len(str(path.relative_to(tmp_path))) for path in tmp_path.rglob("*")) <= tree.LONGEST


def test_a_sweep_that_fails_leaves_nothing_to_upload(bench: Bench) -> None:
    bench.docker()
    code = "import runpy, sys\nsys.argv = sys.argv[1:]\nsys.path.insert(0, sys.argv[1])\n"
    code += "from entrypoint.launching import tree\n"
    code += "def fails(top): raise RecursionError\n"
    code += "tree.sweep = fails\n"
    code += "from entrypoint import launch\n"
    code += "sys.exit(launch.main([]))"
    env = {**bench.env, **{f"INPUT_{name.upper()}": value for name, value in IMAGE.items()}}
    done = subprocess.run(
        [sys.executable, "-c", code, "x", ROOT],
        env=env,
        cwd=bench.workspace,
        capture_output=True,
        text=True,
        check=False,
    )
    out = bench.workspace / "parity-out"
    assert done.returncode == 4, done.stderr
    assert os.listdir(out) == ["launch.json"]
    assert "cannot be swept" in json.loads((out / "launch.json").read_text())["error"]


def test_what_was_renamed_is_told(bench: Bench) -> None:
    bench.docker()
    text = (bench.bin / "docker").read_text()
    more = '        open(parts["source"] + "/a:b", "w").close()\n'
    more += '        os.symlink("/etc/passwd", parts["source"] + "/l")\n'
    (bench.bin / "docker").write_text(
        text.replace('os.unlink(root + "/container")\nsys.exit', more + 'os.unlink(root + "/container")\nsys.exit')
    )
    done = bench.launch(**IMAGE)
    assert done.code == 0, done.out
    assert done.note["output"] == {"files": 2, "bytes": 2, "removed": 1, "renamed": 1}
    assert "out: 1 links and the like removed, 1 files renamed for the upload" in done.out
