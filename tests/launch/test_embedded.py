"""Legs whose ranks are forked from the process that has imported torch."""

import itertools
import json
import math
import re
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from parity.launch import Event, LegFinished, LegProgress, LegStarted, TorchImported, embedded
from tests.launch.conftest import Bench

pytestmark = pytest.mark.slow


def test_side_by_side__ports_differ_and_ranks_meet(bench: Bench) -> None:
    ends = bench.run(bench.plan("a", 2, "ok"), bench.plan("b", 3, "ok"))
    assert {name: end.status for name, end in ends.items()} == {"a": "finished", "b": "finished"}
    assert list(ends) == ["a", "b"]
    started = {event.name: event for event in bench.events if isinstance(event, LegStarted)}
    assert started["a"].port != started["b"].port
    for name, ranks in (("a", 2), ("b", 3)):
        for rank in range(ranks):
            assert bench.read(f"rank-{rank}.log", name) == (f"sum {ranks}.0 on port {started[name].port}\n")
        assert ends[name].last_steps == dict.fromkeys(range(ranks), 2)
        assert ends[name].exit_code == 0
        assert ends[name].device_seconds == pytest.approx(ranks * ends[name].seconds)
    assert [event.threads for event in bench.events if isinstance(event, TorchImported)] == [1]
    assert {event.name for event in bench.events if isinstance(event, LegProgress)} == {"a", "b"}
    assert {event.end.name for event in bench.events if isinstance(event, LegFinished)} == {"a", "b"}


def test_a_leg_that_fails_does_not_stop_the_others(bench: Bench) -> None:
    ends = bench.run(bench.plan("bad", 2, "crash"), bench.plan("good", 2, "ok"), slots=2)
    assert ends["bad"].status == "failed"
    assert ends["good"].status == "finished"


@pytest.mark.parametrize(
    ("mode", "code", "error", "cause"),
    [
        ("crash", 1, "ValueError: rank 1 has had enough", "crashed"),
        ("crash_recorded", 1, "ValueError: noted before the end", "crashed"),
        ("killed", -9, "killed by signal 9 (SIGKILL)", "crashed"),
        ("exit3", 3, "exit code 3", "crashed"),
        ("memory", 1, "MemoryError", "out of memory"),
    ],
)
def test_the_first_failing_rank_is_named_and_not_its_victims(
    bench: Bench, mode: str, code: int, error: str, cause: str
) -> None:
    end = bench.run_one(3, mode)
    assert (end.status, end.failing_rank, end.exit_code) == ("failed", 1, code)
    assert end.cause == cause
    assert end.error is not None
    assert end.error.startswith(error)
    assert "\n" not in end.error


def test_main_that_returns_a_code(bench: Bench) -> None:
    end = bench.run_one(2, "exit_code")
    assert (end.status, end.failing_rank, end.exit_code) == ("failed", 0, 3)


def test_survivors_that_hang_are_ended(bench: Bench) -> None:
    end = bench.run_one(3, "survivors_hang", peer_grace=0.5, timeout=300)
    assert (end.status, end.failing_rank, end.exit_code) == ("failed", 1, 1)
    assert end.error is not None
    assert "rank 1 leaves alone" in end.error


def test_time_limit__ranks_that_ignore_sigterm_too(bench: Bench) -> None:
    hanging = partial(bench.says, "now hanging", "rank-0.log", "rank-1.log")
    end = bench.run_late(bench.plan("leg", 2, "stubborn"), when=hanging)["leg"]
    assert (end.status, end.exit_code) == ("timed out", None)
    assert end.last_steps == {0: 4, 1: 5}
    assert end.cause == "timed out"
    assert end.error is not None
    assert re.fullmatch(
        r"no end after its time limit of 300 s; rank 0 in hang \(__main__.py:\d+\) after step 4,"
        r" rank 1 in hang \(__main__.py:\d+\) after step 5",
        end.error,
    )
    log = bench.read("rank-1.log")  # tells where it hung
    assert "now hanging" in log
    assert "in hang" in log


def test_time_limit__ranks_in_a_collective_that_one_never_comes_to(bench: Bench) -> None:
    since: list[float] = []

    def waiting() -> bool:
        if bench.says("now waiting", "rank-0.log", "rank-2.log") and bench.says("now stuck", "rank-1.log"):
            since.append(time.monotonic())
        return bool(since) and since[-1] - since[0] > 5.0  # from the last words into the collective

    end = bench.run_late(bench.plan("leg", 3, "hang_in_collective"), when=waiting)["leg"]
    assert (end.status, end.cause) == ("timed out", "hung in a collective")
    assert end.error is not None
    assert re.fullmatch(
        r"hung in a collective: no end after its time limit of 300 s; rank 0 in all_reduce after step 3,"
        r" rank 2 in all_reduce after step 5, rank 1 in stuck_elsewhere \(__main__.py:\d+\) after step 4",
        end.error,
    )


def test_a_leg_that_hangs_after_its_end_is_ended_and_says_so(bench: Bench) -> None:
    end = bench.run_one(2, "teardown", end_grace=1.0, timeout=300)
    assert (end.status, end.cause) == ("timed out", "hung at teardown")
    assert end.error is not None
    assert end.error.startswith(
        "hung at teardown: every rank had recorded its end, and 1 s later the leg still ran; "
    )
    assert end.last_steps == {0: 2, 1: 2}


def test_a_rank_that_the_kernel_killed_for_memory_is_told_from_one_that_somebody_killed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter([7, 8])
    monkeypatch.setattr("parity.launch.leg.oom_kills", lambda: next(kills))
    monkeypatch.setattr("parity.launch.left.oom_kills", lambda: next(kills))
    end = bench.run_one(2, "killed")
    assert (end.status, end.cause, end.failing_rank) == ("failed", "out of memory", 1)
    assert end.error == "killed by signal 9 (SIGKILL): the kernel had no memory left"


def test_a_clock_that_jumps_changes_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = itertools.cycle((0.0, 1e9, 4e9))
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    ends = bench.run(
        bench.plan("ends", 2, "ok"), bench.plan("crashes", 2, "crash"), bench.plan("hangs", 1, "hang", timeout=2)
    )
    assert [end.status for end in ends.values()] == ["finished", "failed", "timed out"]
    assert (ends["crashes"].failing_rank, ends["crashes"].cause) == (1, "crashed")
    assert all(0 < end.seconds < 100 for end in ends.values())


def test_a_daemon_in_its_own_session_is_found_and_ended(bench: Bench) -> None:
    end = bench.run_one(2, "daemon")
    assert (end.status, end.exit_code, end.leftovers) == ("finished", 0, 2)


def test_logs_are_whole(bench: Bench) -> None:
    bench.run(bench.plan("big", 2, "big"), bench.plan("torn", 2, "no_newline"))
    for rank in range(2):
        assert bench.read(f"rank-{rank}.log", "big") == "x" * (1 << 20) + f"\nend of {rank}\n"
        assert bench.read(f"rank-{rank}.log", "torn") == f"out of {rank}errout child"


def test_a_loss_that_is_not_a_number_is_told(bench: Bench) -> None:
    assert bench.run_one(1, "nan").status == "finished"
    losses = [event.loss for event in bench.events if isinstance(event, LegProgress)]
    assert len(losses) == 1
    assert losses[0] is not None
    assert math.isnan(losses[0])


def test_environment_and_working_folder(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    bench.run_one(2, "environment", cwd=folder, env={"MINE": "yes", "OMP_NUM_THREADS": "2"})
    for rank in range(2):
        seen = json.loads(bench.read(f"rank-{rank}.log"))
        assert seen["cwd"] == str(folder)
        wanted = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "PARITY_RUN_ID": bench.run_id,
            "PARITY_LEG": "leg",
            "PARITY_RECORD_DIR": str(tmp_path / "leg"),
            "MINE": "yes",
            "OMP_NUM_THREADS": "2",
        }
        assert {name: seen[name] for name in wanted} == wanted
        assert ("PARITY_STORE_FD" in seen) == (rank == 0)


def test_an_earlier_runs_records_are_not_taken_for_this_ones(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "leg").mkdir()
    (tmp_path / "leg" / "rank-1.jsonl").write_text('{"step": 999}\n')
    assert bench.run_one(2, "ok").last_steps == {0: 2, 1: 2}


def test_a_module_that_does_not_exist(bench: Bench) -> None:
    end = bench.run_one(1, module="no.such.trainer")
    assert (end.status, end.exit_code) == ("failed", 1)
    assert end.error == "ModuleNotFoundError: No module named 'no'"


def test_torch_that_cannot_be_imported_is_one_line(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so is missing')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    ends = bench.run(bench.plan("a", 1, "ok"), bench.plan("b", 1, "ok"), bench.plan("c", 1, command="true"))
    for name in ("a", "b"):
        assert ends[name].status == "failed"
        assert ends[name].error == "cannot import torch: ImportError: libtorch.so is missing"
    assert ends["c"].status == "finished"


def test_the_warm_process_is_replaced_when_it_is_killed(bench: Bench) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, LegStarted) and event.name == "hit":
            for child in psutil.Process().children():
                if any("parity.launch.warm" in argument for argument in child.cmdline()):
                    child.kill()

    ends = bench.run(bench.plan("hit", 3, "hang"), bench.plan("later", 2, "ok"), slots=4, listen=listen)
    assert ends["hit"].status == "failed"
    assert ends["hit"].error == "the process that starts ranks ended (-9): without a word"
    assert ends["later"].status == "finished"


def test_legs_end_and_others_go_on_when_the_warm_process_has_stopped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "FORKING", 2.0)

    def listen(event: Event) -> None:
        if isinstance(event, LegFinished) and event.end.name == "first":
            for child in psutil.Process().children():
                if any("parity.launch.warm" in argument for argument in child.cmdline()):
                    child.suspend()

    plans = [bench.plan("first", 4, "ok"), bench.plan("hit", 3, "ok"), bench.plan("later", 2, "ok")]
    ends = bench.run(*plans, slots=4, listen=listen)
    assert [end.status for end in ends.values()] == ["finished", "failed", "finished"]
    assert ends["hit"].error == "the process that starts ranks has started none for 2 s"
