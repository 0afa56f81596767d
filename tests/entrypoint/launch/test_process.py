"""The legs as processes, for real: what they see, and that nothing of them is left."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.entrypoint.launch.bench import ROOT, SECRET, Bench, end_by, processes, shell_suite, wait_for

# Leaves its process group and its session, forgets who started it and what it was told, and stays.
ESCAPE = (
    "import os, sys, time\n"
    "if os.fork(): sys.exit()\n"
    "os.setsid()\n"
    "if os.fork(): sys.exit()\n"
    "os.execve(sys.executable, [sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]], {})\n"
)


@pytest.fixture
def process(bench: Bench) -> Iterator[Bench]:
    """A runner without Docker, whose Python has parity."""
    bench.env |= {
        "INPUT_ISOLATION": "process",
        "PARITY_PYTHON": sys.executable,
        "PATH": f"{bench.bin}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "CUDA_VISIBLE_DEVICES": "3",
    }
    yield bench
    for pid in processes(str(bench.root)):  # of a test that failed
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def homes(bench: Bench) -> list[Path]:
    """Temporary folders that launches took down, and that are still there."""
    notes = (bench.temp / f"parity-launch-{os.getuid()}").glob("*.json")
    return [home for note in notes if (home := Path(json.loads(note.read_text())["home"])).exists()]


def sleeping(bench: Bench) -> Path:
    """A suite whose leg starts something that gets away, says so by a file, and sleeps."""
    started = bench.root / "started"
    (bench.workspace / "escape.py").write_text(ESCAPE)
    command = f"{sys.executable} escape.py '{bench.root}/escaped'; touch '{started}'; sleep 600"
    (bench.workspace / "parity.yml").write_text(shell_suite(command))
    return started


@pytest.mark.slow
def test_a_suite_is_run(process: Bench) -> None:
    done = process.launch()
    assert (done.code, done.err) == (0, "")
    assert "legs: run as processes, not isolated, as the input says isolation: process" in done.out
    assert (done.folder / "run" / "result.json").exists()
    note = done.note
    assert (note["isolation"], note["how"], note["image"], note["engine"]) == ("process", "finished", None, None)
    assert note["output"]["files"] > 8
    assert processes(str(process.root)) == []
    assert list((process.temp / f"parity-launch-{os.getuid()}").iterdir()) == []


@pytest.mark.slow
def test_legs_see_nothing_of_the_runner(process: Bench) -> None:
    (process.workspace / "parity.yml").write_text(shell_suite("env"))
    log = process.launch().log()
    assert SECRET not in log
    names = {line.partition("=")[0] for line in log.splitlines()}
    assert not [name for name in names if name.startswith(("GITHUB_", "ACTIONS_", "INPUT_", "AWS_", "HTTPS_"))]
    allowed = {"CI", "PATH", "HOME", "TMPDIR", "USER", "LOGNAME", "PYTHONUNBUFFERED", "CUDA_VISIBLE_DEVICES"}
    assert allowed <= names
    # What parity itself tells a leg.
    assert {name for name in names - allowed if not name.startswith(("PARITY_", "PET_", "MASTER_"))} <= {
        *("OMP_NUM_THREADS", "PWD", "OLDPWD", "SHLVL", "_"),
        *("LANG", "LC_ALL", "LC_CTYPE"),
    }
    assert "PARITY_TOKEN" not in names


def test_an_environment_is_hidden_from_processes_of_the_same_user() -> None:
    code = "import sys, time; sys.path.insert(0, sys.argv[1])\n"
    code += "from entrypoint.launching.linux import hide_environment\n"
    code += "if sys.argv[2] == 'hide': hide_environment()\n"
    code += "print(flush=True); time.sleep(60)"
    user = 65534 if os.geteuid() == 0 else None  # root reads everything
    python = ["/usr/bin/python3"] if user else [sys.executable]
    for word, readable in (("show", True), ("hide", False)):
        hidden = subprocess.Popen([*python, "-c", code, ROOT, word], user=user, cwd="/", stdout=subprocess.PIPE)
        assert hidden.stdout is not None
        assert hidden.stdout.readline() == b"\n"
        seen = subprocess.run(["cat", f"/proc/{hidden.pid}/environ"], user=user, capture_output=True, check=False)
        hidden.kill()
        hidden.communicate()
        assert (b"PATH" in seen.stdout) == readable


@pytest.mark.slow
def test_the_home_of_the_legs_is_removed(process: Bench) -> None:
    (process.workspace / "parity.yml").write_text(shell_suite('echo "$HOME"; echo x > "$HOME/x"'))
    home = Path(process.launch().log().strip())
    assert home.name.startswith("parity-")
    assert not home.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_signal_leaves_no_process(signum: int, code: int, process: Bench) -> None:
    started = sleeping(process)
    launcher = process.start()
    wait_for(started.exists)
    assert processes(f"{process.root}/escaped")
    end_by(launcher, signum)
    wait_for(lambda: processes(str(process.root)) == [] and not homes(process))
    done = process.end(launcher)
    assert done.code == code
    if code > 0:
        assert done.note["how"] == "interrupted"
        assert (done.folder / "run" / "legs" / "one" / "leg.json").exists(), "how far it came"


@pytest.mark.slow
def test_cleanup_ends_what_a_killed_launcher_could_not(process: Bench) -> None:
    started = sleeping(process)
    launcher = process.start()
    wait_for(started.exists)
    # Not even the keeper can do anything.
    (note,) = (process.temp / f"parity-launch-{os.getuid()}").glob("*.json")
    keeper = int(note.read_text().partition('"keeper": [')[2].partition(",")[0])
    os.kill(keeper, signal.SIGSTOP)
    end_by(launcher, signal.SIGKILL)
    done = process.launch("cleanup")
    assert done.code == 0
    assert "cleanup: ended the legs of process" in done.out
    wait_for(lambda: processes(str(process.root)) == [])
    assert not note.exists()
    process.end(launcher)


@pytest.mark.slow
def test_a_timeout_ends_everything(process: Bench) -> None:
    started = sleeping(process)
    done = process.launch(timeout="8")
    assert started.exists()
    assert done.code == 0, "there is a run to judge, of legs that were interrupted"
    assert done.note["how"] == "timed out"
    assert "legs: timed out after" in done.out
    assert processes(str(process.root)) == []


@pytest.mark.slow
def test_setup_installs_for_the_legs_alone(process: Bench) -> None:
    process.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{process.env['PATH']}"
    (process.workspace / "theirs").mkdir()
    (process.workspace / "theirs" / "__init__.py").write_text("")
    (process.workspace / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='theirs', version='1', packages=['theirs'])\n"
    )
    command = "cd / && python -c 'import theirs, numpy; print(theirs.__file__)'"
    (process.workspace / "parity.yml").write_text(shell_suite(command))
    done = process.launch(
        setup="python -m pip install --no-build-isolation --no-deps --no-index --quiet .\necho done >&2"
    )
    assert done.code == 0, done.err
    assert "/setup/lib/python" in done.log()
    assert shutil.which("theirs") is None
    assert not list(process.workspace.glob("*.egg-info"))


@pytest.mark.slow
def test_a_setup_that_fails_runs_no_leg(process: Bench) -> None:
    done = process.launch(setup="echo one; false; echo two")
    assert done.code == 4
    assert "setup: the command ended with exit code 1" in done.out
    assert "two" not in done.out
    assert "setup: failed after" in done.err


@pytest.mark.slow
def test_a_wrong_suite_is_wrong_usage(process: Bench) -> None:
    (process.workspace / "parity.yml").write_text("name: x\n")
    done = process.launch()
    assert done.code == 2
    assert "legs: ended after" in done.err
    assert done.note["exit_code"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "isolation", "warned"), [("all", "auto", 1), ("all", "process", 0), ("run", "auto", 0)]
)
def test_legs_beside_a_token_that_nothing_isolates(mode: str, isolation: str, warned: int, process: Bench) -> None:
    process.env["PYTHONPATH"] = str(process.workspace)
    (process.workspace / "theirs.py").write_text("print('found')")
    (process.workspace / "parity.yml").write_text(shell_suite(f"cd / && {sys.executable} -m theirs"))
    done = process.launch(mode=mode, isolation=isolation, docker="no-docker")
    assert done.out.count("::warning title=parity::the legs run as processes of a job that has a token") == warned
    assert "found" in done.log(), "legs keep a PYTHONPATH of theirs"


def test_a_python_without_parity(process: Bench) -> None:
    process.env["PARITY_PYTHON"] = "/usr/bin/false"
    done = process.launch()
    assert done.code == 2
    assert done.err.startswith(
        "PARITY_PYTHON: /usr/bin/false cannot import parity: install it there, with Python 3.11"
    )
    del process.env["PARITY_PYTHON"]
    process.env["PATH"] = str(process.bin)
    done = process.launch()
    assert done.code == 4
    assert "python: no python3 here can import parity: install it with Python 3.11 or newer, as in" in done.err
    assert done.note["preflight"][-1]["name"] == "python"


def test_a_token_that_checkout_left_is_refused(process: Bench) -> None:
    (process.workspace / ".git").mkdir()
    (process.workspace / ".git" / "config").write_text(
        '[includeIf "gitdir:/w/.git"]\n\tpath = /t/git-credentials-1.config\n'
    )
    done = process.launch()
    assert done.code == 2
    assert "source: .git/config holds a token or leads to one" in done.err


def test_gpus_that_are_not_there(process: Bench) -> None:
    assert process.launch(gpus="all").code == 4
    process.env["PATH"] = str(process.bin)
    done = process.launch(gpus="0")
    assert done.err.startswith("gpus: nvidia-smi is missing")
