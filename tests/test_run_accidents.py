"""What happens to a run whose disk, output or logs go wrong: one line, nothing lost of what has finished."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parity.errors import UsageError
from parity.prepare import finished_before
from parity.result import LegResult
from parity.rundir import RunDirectory, Snapshot, last_lines, log_lines
from parity.suite import Bounds, BoundsByMetric, Suite, digest, load
from tests.test_cli import parity
from tests.test_run import command, result_of, suite

PYTHON = f"{sys.executable} -m parity"


def status_of(out: Path, leg: str) -> str:
    status: str = json.loads((out / "legs" / leg / "leg.json").read_text())["status"]
    return status


def in_small_disk(script: str, folder: Path, megabytes: int) -> "subprocess.CompletedProcess[str]":
    """Run shell lines where `$disk` is a file system of its own, of so many megabytes, that goes with them."""
    (folder / "disk").mkdir()
    mount = f"disk={folder}/disk; mount -t tmpfs -o size={megabytes}m none $disk"
    words = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f"{mount} || exit 99; cd {folder}; {script}",
    ]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here, to mount a small disk")
    done = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)
    if done.returncode == 99 or "unshare failed" in done.stderr:
        pytest.skip(f"this user may not mount a small disk: {done.stderr.strip()}")
    return done


FILL = """\
import sys, time
with open(sys.argv[1] + "/junk", "wb") as file:
    while True:
        file.write(bytes(1 << 20))
        file.flush()
        time.sleep(0.002)
"""
RUN_TWICE = f"""
{PYTHON} run --out $disk/out >said 2>&1
echo $? >code
pgrep -xf 'sleep 6133|.*fill.py [^ ]*tp3' >left
cp -r $disk/out/legs/tp1 tp1
cp $disk/out/legs/tp3/leg.json tp3.json
rm $disk/out/legs/tp3/junk
touch mended
{PYTHON} run --resume --out $disk/out >again 2>&1
echo $? >code2
"""


@pytest.mark.slow
def test_a_full_disk_ends_the_run_in_one_line_and_keeps_what_has_finished(tmp_path: Path) -> None:
    (tmp_path / "fill.py").write_text(FILL)
    train = f"{sys.executable} trainer.py {{out}}/metrics.jsonl {{steps}} {{tp}}"
    until = "until grep -q finished {out}/../tp1/leg.json; do sleep 0.1; done"
    fills = f"test -e mended || ({until}; exec {sys.executable} fill.py {{out}}) && exec {train}"
    waits = f"test -e mended || exec sleep 6133; exec {train}"
    legs = {"tp1": {}, "tp3": {"layout": {"tp": 3}, "command": fills}, "tp4": {"layout": {"tp": 4}, "command": waits}}
    suite(tmp_path, legs, "tp4")
    done = in_small_disk(RUN_TWICE, tmp_path, 40)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said").read_text()
    assert (tmp_path / "code").read_text() == "4\n", said
    assert said.splitlines()[-1].endswith("make room, then parity run --resume runs what is missing")
    assert "Traceback" not in said
    assert (tmp_path / "left").read_text() == ""
    assert json.loads((tmp_path / "tp1" / "leg.json").read_text())["status"] == "finished"
    assert len((tmp_path / "tp1" / "metrics.jsonl").read_text().splitlines()) == 20
    failed = json.loads((tmp_path / "tp3.json").read_text())
    assert failed["status"] == "failed"
    assert failed["error"].endswith("; the disk was full")
    again = (tmp_path / "again").read_text()
    assert (tmp_path / "code2").read_text() == "0\n", again
    assert "finished already: tp1" in again


@pytest.mark.slow
def test_an_output_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    suite(tmp_path, {"tp1": {}, "tp3": {"layout": {"tp": 3}}})
    done = in_small_disk(f"mount -o remount,ro $disk; {PYTHON} run --out $disk/out; echo $? >code", tmp_path, 1)
    assert (tmp_path / "code").read_text() == "2\n"
    assert done.stderr == f"{tmp_path}/disk/out: cannot be written: Read-only file system\n"


LOUD = """\
import os, sys
os.truncate(sys.argv[1] + "/command.log", 5 << 30)
print("\\nloud")
raise ValueError("at its end")
"""
# Runs a command, then prints the most memory that it or any process below it has held.
PEAK = """\
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


@pytest.mark.slow
def test_a_log_of_five_gigabytes_is_kept_and_judged_in_little_memory(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    loud = {"command": f"{sys.executable} loud.py {{out}}", "evidence": {"must_match": ["tensor parallel"]}}
    path = suite(tmp_path, {"tp1": {}, "tp3": {"layout": {"tp": 3}, **loud}})
    words = [sys.executable, "-c", PEAK, *PYTHON.split(), "run", str(path), "--out", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 4, done.stdout + done.stderr
    assert (tmp_path / "out" / "legs" / "tp3" / "command.log").stat().st_size > 5 << 30
    leg = result_of(tmp_path / "out")["legs"][1]
    assert (leg["error"], leg["cause"]) == ("ValueError: at its end", "crashed")
    assert leg["tails"][0]["lines"][-1] == "ValueError: at its end"
    assert int(done.stdout.split()[-1]) < 400 << 10  # in KiB


@pytest.mark.slow
def test_a_leg_that_prints_binary_is_reported_in_print(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_text(
        "import sys\nsys.stdout.buffer.write(bytes(range(256)) * 4096 + b'\\x1b]0;title\\x07\\xff\\xfe')\n"
        "sys.stdout.flush()\nraise ValueError('after \\x1b[31m\\x00 all')\n"
    )
    legs = {"tp1": {}, "tp3": {"layout": {"tp": 3}, "command": f"{sys.executable} binary.py"}}
    done = parity("run", suite(tmp_path, legs), "--out", tmp_path / "out")
    assert done.returncode == 4
    for text in (
        done.stdout,
        (tmp_path / "out" / "report.md").read_text(),
        (tmp_path / "out" / "result.json").read_text(),
    ):
        assert "ValueError: after all" in text.replace("  ", " ")
        assert "\x1b" not in text
        assert "\x00" not in text
    assert status_of(tmp_path / "out", "tp1") == "finished"


@pytest.mark.slow
def test_resume__only_what_is_missing_runs_and_is_judged_with_the_rest(tmp_path: Path) -> None:
    legs: dict[str, Any] = {"tp1": {}, "tp3": {"layout": {"tp": 3}}, "tp4": {"layout": {"tp": 4}, **command("crash")}}
    path, out = suite(tmp_path, legs, "tp4"), tmp_path / "out"
    assert parity("run", path, "--out", out).returncode == 4
    first = json.loads((out / "legs" / "tp1" / "leg.json").read_text())["run_id"]
    # What crashed is mended, and of one leg the suite says something else.
    legs["tp4"] = {"layout": {"tp": 4}}
    legs["tp3"]["env"] = {"OTHER": "1"}
    done = parity("run", suite(tmp_path, legs, "tp4"), "--resume", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finished already: tp1\n" in done.stdout
    assert "tp1: started" not in done.stdout
    assert "tp3: started" in done.stdout
    assert "tp4: started" in done.stdout
    assert f"tp1 is from the earlier run {first}" in result_of(out)["notes"]
    done = parity("run", path, "--resume", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finished already: tp1, tp3, tp4\n" in done.stdout
    assert "started" not in done.stdout
    assert not (tmp_path / "out.1").exists()
    done = parity("run", path, "--resume", "--only", "tp1", "--steps", 10, "--out", out)
    assert "tp1: started" in done.stdout
    assert "tp3: started" not in done.stdout


@pytest.mark.slow
def test_resume__a_leg_whose_metrics_are_to_be_found_elsewhere_runs_again(tmp_path: Path) -> None:
    legs: dict[str, Any] = {"tp1": {}, "tp3": {"layout": {"tp": 3}}}
    assert parity("run", suite(tmp_path, legs), "--out", tmp_path / "out").returncode == 0
    legs["tp3"]["source"] = "{out}/evaluation.jsonl"
    done = parity("run", suite(tmp_path, legs), "--resume", "--out", tmp_path / "out")
    assert "finished already: tp1\n" in done.stdout
    assert (done.returncode, status_of(tmp_path / "out", "tp3")) == (4, "no curve")


def left(tmp_path: Path, ended: Suite) -> Path:
    """What a run left of which one leg finished and the other was ended early."""
    directory, _ = RunDirectory.create(tmp_path / "out", keep=False, legs=[])
    snapshot = Snapshot(run_id="earlier", reproduce="", device="cpu", suite=ended)
    directory.write("suite.json", snapshot.model_dump_json())
    for name, status in {"tp1": "finished", "tp3": "stopped"}.items():
        source = f"legs/{name}/rank-0.jsonl"
        leg = {"name": name, "digest": digest(ended, name, "cpu"), "status": status, "source": source}
        directory.write_leg(LegResult.model_validate(leg))
        directory.write(source, "{}")
    return directory.path


def test_resume__a_leg_whose_metrics_are_gone_runs_again(tmp_path: Path) -> None:
    one = load(suite(tmp_path, {"tp1": {}, "tp3": {"layout": {"tp": 3}}}))
    out = left(tmp_path, one)
    assert [*finished_before(one, ["tp1", "tp3"], "cpu", out)] == ["tp1", "tp3"]
    (out / "legs" / "tp1" / "rank-0.jsonl").unlink()
    assert [*finished_before(one, ["tp1", "tp3"], "cpu", out)] == ["tp3"]


def test_resume__a_leg_that_was_ended_early_runs_again_where_its_baseline_or_its_bounds_are_others(
    tmp_path: Path,
) -> None:
    legs: dict[str, Any] = {"tp1": {}, "tp3": {"layout": {"tp": 3}}}
    one = load(suite(tmp_path, legs))
    out = left(tmp_path, one)
    wider = one.model_copy(update={"bounds": BoundsByMetric(loss=Bounds(first_rtol=1.0))})
    assert [*finished_before(wider, ["tp1", "tp3"], "cpu", out)] == ["tp1"]
    legs["tp1"] = {"env": {"OTHER": "1"}}
    assert [*finished_before(load(suite(tmp_path, legs)), ["tp1", "tp3"], "cpu", out)] == []


@pytest.mark.slow
def test_resume__nothing_is_there_yet(tmp_path: Path) -> None:
    path = suite(tmp_path, {"tp1": {}, "tp3": {"layout": {"tp": 3}}})
    done = parity("run", path, "--resume", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    done = parity("run", path, "--resume", "--out", tmp_path / "mine")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_create__a_file_system_without_locks_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(number, "not here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert RunDirectory.create(tmp_path / "out", keep=False, legs=["a"])[0].path == tmp_path / "out"


def test_create__a_run_that_could_write_nothing_is_in_nobodys_way(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "legs").mkdir(parents=True)
    directory, moved = RunDirectory.create(out, keep=False, legs=["a"])
    os.close(directory.lock)
    assert moved is None
    (out / "legs" / "a").mkdir()
    with pytest.raises(UsageError, match="holds files that are not from a run"):
        RunDirectory.create(out, keep=False, legs=["a"])


def test_create__two_runs_at_a_time_are_refused(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "out", keep=False, legs=["a"])
    with pytest.raises(UsageError, match="another run writes there now; give another --out"):
        RunDirectory.create(tmp_path / "out", keep=True, legs=["b"])


def test_reserve__is_given_back(tmp_path: Path) -> None:
    directory, _ = RunDirectory.create(tmp_path / "out", keep=False, legs=["a"])
    directory.reserve()
    (held,) = [path for path in (tmp_path / "out").iterdir() if path.is_file()]
    assert held.stat().st_blocks * 512 >= 16 << 20
    directory.release()
    assert not held.exists()
    directory.release()


def test_last_lines__of_a_log_of_any_length(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"")
    assert last_lines(log, tmp_path, 3) == [""]
    log.write_bytes(b"a\nb\xff\n")
    assert last_lines(log, tmp_path, 3) == ["a", "b\ufffd"]
    log.write_bytes(b"".join(b"%d\n" % n for n in range(100_000)) + b"end")
    assert last_lines(log, tmp_path, 2) == ["99999", "end"]
    log.write_bytes(b"x" * 100_000)
    assert [len(line) for line in last_lines(log, tmp_path, 2)] == [10_000]


def test_log_lines__of_more_than_a_gigabyte_the_first(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\nsecond\n")
    with log.open("r+b") as file:
        file.truncate(3 << 30)
    lines = log_lines(log, tmp_path)
    assert [next(lines), next(lines)] == ["first", "second"]
    assert sum(1 for _ in lines) < 1 << 18


@pytest.mark.slow
def test_a_leg_that_hangs_after_its_last_step_is_judged_by_its_curve(tmp_path: Path) -> None:
    hangs = f"{sys.executable} trainer.py {{out}}/metrics.jsonl {{steps}} {{tp}} && sleep 6134"
    legs = {"tp1": {}, "tp3": {"layout": {"tp": 3}, "command": hangs, "timeout": "15s"}}
    done = parity("run", suite(tmp_path, legs), "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    result = result_of(tmp_path / "out")
    assert [leg["cause"] for leg in result["legs"]] == [None, "hung at teardown"]
    assert any(note.startswith("tp3 wrote its whole curve and then timed out") for note in result["notes"])


@pytest.mark.slow
def test_a_cause_that_the_status_does_not_tell_is_in_the_summary(tmp_path: Path) -> None:
    runs_out = [sys.executable, "-c", "raise MemoryError('of tp3')"]
    legs = {"tp1": {}, "tp3": {"layout": {"tp": 3}, "command": runs_out}}
    done = parity("run", suite(tmp_path, legs), "--out", tmp_path / "out")
    assert done.returncode == 4
    assert "tp3 failed (out of memory): MemoryError: of tp3" in done.stdout
    assert result_of(tmp_path / "out")["legs"][1]["cause"] == "out of memory"


def test_where_the_output_folder_is_a_link_it_stays_one(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    link = tmp_path / "out"
    link.symlink_to(tmp_path / "large" / "runs")
    for _ in range(2):
        directory, moved = RunDirectory.create(link, keep=False, legs=[])
        directory.write("suite.json", "{}")
        os.close(directory.lock)
    assert moved == tmp_path / "large" / "runs.1"
    assert link.is_symlink()
    assert sorted(path.name for path in (tmp_path / "large").iterdir()) == ["runs", "runs.1"]


def test_an_output_folder_that_is_a_link_to_itself_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "out")
    with pytest.raises(UsageError, match="out: is a link that leads to itself; give another --out"):
        RunDirectory.create(tmp_path / "out", keep=False, legs=[])
