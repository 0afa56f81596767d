"""Legs that are a command, torchrun among them."""

import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from parity.errors import DeviceError
from parity.launch import Event, LegEnd, LegEnding, LegProgress, torchrun
from parity.launch.files import Follower
from tests.launch.conftest import ROOT, Bench, wait_for

TORCHRUN = f"{sys.executable} -m torch.distributed.run --nproc-per-node 2 -m tests.launch.toy"


def test_output_is_whole(bench: Bench) -> None:
    end = bench.run_one(1, command="echo out; echo err >&2; printf torn")
    assert (end.status, end.exit_code, end.error) == ("finished", 0, None)
    assert bench.read("command.log") == bench.read("rank-0.log") == "out\nerr\ntorn"


def test_torchrun__a_log_of_holes_takes_no_time_to_keep(tmp_path: Path) -> None:
    folder = tmp_path / "torchrun" / "id" / "attempt_0" / "0"
    folder.mkdir(parents=True)
    with (folder / "stdout.log").open("wb") as log:
        log.write(b"begun")
        log.truncate(1 << 40)
        log.seek((1 << 39) + 7)
        log.write(b"between")
    (folder / "stderr.log").write_bytes(b"err\n" * (1 << 19))
    assert torchrun.collect_logs(tmp_path) == [0]
    kept = tmp_path / "rank-0.log"
    assert kept.stat().st_size == (1 << 40) + 1 + (4 << 19)
    with kept.open("rb") as log:
        assert log.read(6) == b"begun\0"
        log.seek((1 << 39) + 7)
        assert log.read(8) == b"between\0"
        log.seek((1 << 40) - 1)
        assert log.read() == b"\0\n" + b"err\n" * (1 << 19)


def test_arguments_are_not_read_by_a_shell(bench: Bench) -> None:
    assert bench.run_one(1, command=("echo", "a b", "$HOME", ";")).status == "finished"
    assert bench.read("command.log") == "a b $HOME ;\n"


def test_environment(bench: Bench, tmp_path: Path) -> None:
    script = 'echo "$PARITY_RUN_ID $PARITY_LEG $PARITY_RECORD_DIR $MINE $PWD"; test "$MASTER_PORT" -gt 1023'
    assert bench.run_one(1, command=script, env={"MINE": "x"}, cwd=tmp_path).status == "finished"
    assert bench.read("command.log") == f"{bench.run_id} leg {tmp_path / 'leg'} x {tmp_path}\n"


def test_gpus__each_leg_sees_its_own(bench: Bench) -> None:
    show = "echo $CUDA_VISIBLE_DEVICES"
    plans = [bench.plan(name, 2, command=show, cuda=True) for name in ("a", "b")]
    bench.run(*plans, gpus=("0", "1", "4", "6"))
    assert (bench.read("command.log", "a"), bench.read("command.log", "b")) == ("0,1\n", "4,6\n")


def test_gpus__a_leg_on_the_cpu_sees_none_unless_it_asks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    show = 'echo "[$CUDA_VISIBLE_DEVICES]"'
    asks = bench.plan("asks", 1, command=show, env={"CUDA_VISIBLE_DEVICES": "1"})
    bench.run(bench.plan("none", 1, command=show), asks, gpus=("0", "1"))
    assert (bench.read("command.log", "none"), bench.read("command.log", "asks")) == ("[]\n", "[1]\n")


def test_progress__a_step_of_401_digits_does_not_end_the_run(bench: Bench) -> None:
    lines = [
        {"step": 10**400, "loss": 1.0},
        {"step": 7, "loss": 10**400},
        {"kind": "error", "type": "ValueError", "message": "mine", "time": 10**400},
    ]
    text = "\n".join(map(json.dumps, lines))
    write = (sys.executable, "-c", f"open('rank-0.jsonl', 'w').write({text + chr(10)!r}); exit(1)")
    bad = bench.plan("bad", 1, command=write, cwd=bench.root / "bad")
    (bench.root / "bad").mkdir()
    ends = bench.run(bad, bench.plan("good", 1, command="true"))
    assert (ends["bad"].error, ends["good"].status) == ("ValueError: mine", "finished")
    assert ends["bad"].last_steps == {0: 7}
    assert [(e.step, e.loss) for e in bench.events if isinstance(e, LegProgress)] == [(7, float("inf"))]


def test_an_error_of_ours_while_a_leg_is_watched_ends_that_leg_only(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(self: Follower) -> str:
        if "bad" in str(self._path):
            raise OverflowError("too large")
        return ""

    monkeypatch.setattr(Follower, "read", read)
    ends = bench.run(
        bench.plan("bad", 1, command="trap '' TERM; sleep 600; true"), bench.plan("good", 1, command="sleep 0.3")
    )
    assert (ends["bad"].status, ends["bad"].exit_code) == ("failed", None)
    assert ends["bad"].error == "an error in parity, not in the leg: OverflowError: too large"
    assert "Traceback" in bench.read("parity-error.log", "bad")
    assert ends["good"].status == "finished"
    assert [event.name for event in bench.events if isinstance(event, LegEnding)] == ["bad"]


def test_an_error_of_ours_while_a_leg_starts_ends_that_leg_only(bench: Bench) -> None:
    ends = bench.run(bench.plan("bad", 1, command="true", env={"X": "a\0b"}), bench.plan("good", 1, command="true"))
    assert ends["bad"].status == "failed"
    assert ends["bad"].error is not None
    assert "null byte" in ends["bad"].error
    assert ends["good"].status == "finished"


def test_prepare__nothing_of_an_earlier_run_is_taken_for_this_ones(bench: Bench, tmp_path: Path) -> None:
    old = tmp_path / "leg" / "torchrun" / "id" / "attempt_0" / "0"
    old.mkdir(parents=True)
    (old / "stdout.log").write_text("old\n")
    (tmp_path / "leg" / "rank-3.log").mkdir()
    (tmp_path / "leg" / "rank-1.jsonl").symlink_to(tmp_path / "gone")
    assert bench.run_one(1, command="echo new").status == "finished"
    assert bench.read("rank-0.log") == "new\n"
    assert sorted(path.name for path in (tmp_path / "leg").iterdir()) == ["command.log", "rank-0.log"]


def test_prepare__a_link_in_place_of_the_folder_is_not_emptied(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "rank-0.log").write_text("precious")
    (tmp_path / "leg").symlink_to(tmp_path / "mine")
    end = bench.run_one(1, command="true")
    assert (end.status, end.error) == ("failed", f"{tmp_path / 'leg'} is a link: links are not followed")
    assert (tmp_path / "mine" / "rank-0.log").read_text() == "precious"


def test_logs__links_that_the_leg_planted_are_not_read(bench: Bench, tmp_path: Path) -> None:
    secret = tmp_path / "secret" / "attempt_0" / "0"
    secret.mkdir(parents=True)
    (secret / "stdout.log").write_text("token")
    plant = (
        "cd $PARITY_RECORD_DIR; mkdir -p torchrun/a/attempt_0/0 torchrun/b/attempt_²/1 torchrun/b/attempt_0/²;"
        f"ln -s {tmp_path / 'secret'} torchrun/link; ln -s {secret / 'stdout.log'} torchrun/a/attempt_0/0/stdout.log;"
        "echo fine > torchrun/b/attempt_²/1/stdout.log; echo no > torchrun/b/attempt_0/²/stdout.log;"
        f"mkfifo torchrun/b/attempt_²/1/stderr.log; ln -s {tmp_path / 'secret'} rank-0.log"
    )
    assert bench.run_one(2, command=plant).status == "finished"
    assert (bench.read("rank-0.log"), bench.read("rank-1.log")) == ("", "fine\n")


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        ("exit 3", 3, "exit code 3"),
        ("echo no space left; exit 3", 3, "exit code 3, last output: no space left"),
        ("kill -9 $$", -9, "killed by signal 9 (SIGKILL)"),
        (("no-such-trainer", "x"), 127, "no such command: no-such-trainer"),
        (("/",), 126, "not allowed to run: /"),
        ("sh -c 'kill -ABRT $$'; exit $?", 134, "exit code 134 (SIGABRT), last output: Aborted"),
        ((sys.executable, "-c", "raise KeyError('lr')"), 1, "KeyError: 'lr'"),
    ],
)
def test_failure_is_one_line(bench: Bench, command: str | tuple[str, ...], code: int, error: str) -> None:
    end = bench.run_one(1, command=command)
    assert (end.status, end.exit_code, end.error) == ("failed", code, error)


def test_command_that_the_shell_does_not_find(bench: Bench) -> None:
    end = bench.run_one(1, command="no-such-trainer --steps 3")
    assert (end.status, end.exit_code) == ("failed", 127)
    assert end.error is not None
    assert end.error.startswith("no such command (exit code 127): ")
    assert "no-such-trainer" in end.error


@pytest.mark.parametrize("more", [{"command": "true"}, {"module": "tests.launch.toy"}])
def test_working_folder_that_does_not_exist(bench: Bench, tmp_path: Path, more: dict[str, str]) -> None:
    end = bench.run_one(1, cwd=tmp_path / "gone", **more)
    assert (end.status, end.exit_code) == ("failed", None)
    assert end.error == f"no such working folder: {tmp_path / 'gone'}"


def test_too_few_slots__nothing_starts(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"legs.big: needs 5 ranks, this machine has room for 4"):
        bench.run(bench.plan("small", 1, command="true"), bench.plan("big", 5, command="true"), slots=4)
    assert not (tmp_path / "small").exists()
    assert bench.events == []


@pytest.mark.slow
def test_leftovers__a_daemon_of_a_command_that_ended(bench: Bench) -> None:
    daemon = "trap '' TERM HUP; sleep 600 & : > there; wait"
    command = f'cd "$PARITY_RECORD_DIR"; setsid sh -c "{daemon}" >/dev/null & until test -e there; do sleep 0.1; done'
    end = bench.run_one(1, command=command)
    assert (end.status, end.exit_code) == ("finished", 0)
    assert end.leftovers == 2  # the shell and its sleep


@pytest.mark.slow
def test_leftovers__a_daemon_that_cleared_its_environment(bench: Bench) -> None:
    end = bench.run_one(1, command="env -i setsid sleep 613 & sleep 0.2")
    assert end.status == "finished"
    assert [p.pid for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "613"]] == []


@pytest.mark.slow
def test_time_limit__whatever_session_it_moved_to(bench: Bench) -> None:
    end = bench.run_one(1, command="trap '' TERM; setsid sleep 600 & sleep 600; sleep 600", timeout=0.5)
    assert end.status == "timed out"
    assert end.error == "no end after its time limit of 0.5 s"
    assert end.cause == "timed out"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "code", "error"),
    [
        ("crash", 1, "ValueError: rank 1 has had enough"),
        ("killed", -9, "killed by signal 9 (SIGKILL)"),
        ("exit3", 3, "exit code 3"),
    ],
)
def test_torchrun__each_rank_has_a_log_and_the_culprit_is_named(
    bench: Bench, mode: str, code: int, error: str
) -> None:
    end = run_torchrun(bench, mode)
    assert (end.status, end.failing_rank, end.exit_code) == ("failed", 1, code)
    assert end.error is not None
    assert end.error.startswith(error)
    assert end.leftovers == 0
    assert "ChildFailedError" in bench.read("command.log")
    if mode == "crash":
        assert "rank 1 has had enough" in bench.read("rank-1.log")
        assert "rank 1 has had enough" not in bench.read("rank-0.log")


@pytest.mark.slow
def test_torchrun__output_of_every_rank_is_whole(bench: Bench) -> None:
    command = TORCHRUN.replace("--nproc", "--standalone --nproc")
    assert bench.run_one(2, command=f"{command} big", cwd=ROOT).status == "finished"
    for rank in range(2):
        assert bench.read(f"rank-{rank}.log") == "x" * (1 << 20) + f"\nend of {rank}\n"


@pytest.mark.slow
def test_torchrun__workers_in_their_own_sessions_are_ended(bench: Bench) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, LegProgress) and event.step >= 4:  # whichever rank came first, both have to be there
            wait_for(lambda: all(recorded(bench, rank, 4 + rank) for rank in range(2)))
            os.kill(os.getpid(), signal.SIGTERM)

    end = bench.run(bench.plan("leg", 2, command=f"{TORCHRUN} stubborn", cwd=ROOT), listen=listen)["leg"]
    assert (end.status, end.exit_code, end.cause) == ("interrupted", None, "cancelled")
    assert end.error == "the run was ended by SIGTERM"
    assert end.last_steps == {0: 4, 1: 5}
    assert "now hanging" in bench.read("rank-1.log")


@pytest.mark.slow
def test_torchrun__ranks_with_a_recorder_tell_where_they_hang(bench: Bench) -> None:
    plan = bench.plan("leg", 2, command=f"{TORCHRUN} recorder_hangs", cwd=ROOT)
    end = bench.run_late(plan, when=lambda: bench.read("command.log").count("now stuck") == 2)["leg"]
    assert (end.status, end.cause) == ("timed out", "timed out")
    assert end.error is not None
    assert "ranks 0-1 in stuck_elsewhere (__main__.py:" in end.error


@pytest.mark.slow
def test_time_limit__a_process_without_a_handler_is_not_ended_by_the_question_where_it_is(bench: Bench) -> None:
    plan = bench.plan("leg", 1, command="trap 'echo asked to end; exit 3' TERM; echo there; sleep 600 & wait")
    end = bench.run_late(plan, when=lambda: bench.says("there", "command.log"))["leg"]
    assert (end.status, end.cause) == ("timed out", "timed out")
    assert bench.read("command.log") == "there\nasked to end\n"


def recorded(bench: Bench, rank: int, step: int) -> bool:
    name = f"rank-{rank}.jsonl"
    return (bench.root / "leg" / name).exists() and f'"step": {step}' in bench.read(name)


def run_torchrun(bench: Bench, mode: str) -> LegEnd:
    return bench.run_one(2, command=f"{TORCHRUN} {mode}", cwd=ROOT)


def test_torchrun_failures__root_cause_first() -> None:
    output = """\
Failures:
[1]:
  time      : 2026-01-01_00:00:01
  host      : h
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 10)
  error_file: <N/A>
------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : h
  rank      : 2 (local_rank: 2)
  exitcode  : -9 (pid: 12)
"""
    assert list(torchrun.failures(output).items()) == [(2, -9), (0, 1)]


def test_torchrun_s_report_tells_which_ranks_its_node_has() -> None:
    output = "  rank      : 7 (local_rank: 3)\n  exitcode  : -9 (pid: 12)\n"
    assert torchrun.lowest_rank(output) == 4
    assert torchrun.lowest_rank("[rank7/3]: rank is 7 (local_rank: 3)\n") is None


def test_torchrun_failures__a_rank_of_5000_digits_is_none() -> None:
    assert torchrun.failures(f"  rank : {'9' * 5000} (local_rank: 0)\n  exitcode : 1 (pid: 1)\n") == {}


def test_torchrun_failures__empty_lines_take_no_minutes() -> None:
    assert torchrun.failures("\n" * (1 << 18)) == {}  # in square time it would be past the test's limit
