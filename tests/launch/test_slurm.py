"""Legs that Slurm runs, against a real one (`.ci/slurm`): legs of two nodes with two ranks each."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from parity.launch import Event, LegEnd, LegFinished, LegPlan, LegStarted
from parity.launch.plan import Slurm
from parity.launch.slurm import job_name
from parity.rundir import RunDirectory
from tests.launch.conftest import ROOT, Bench, wait_for

pytestmark = pytest.mark.slow

CONF = os.environ.get("PARITY_TEST_SLURM")


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a Slurm, CI fails and anyone else skips, with the reason."""
    if CONF is not None:
        monkeypatch.setenv("SLURM_CONF", CONF)
        for name in [name for name in os.environ if name.startswith("SLURM_") and name != "SLURM_CONF"]:
            monkeypatch.delenv(name)
        assert ask("sinfo", "--format=%D") == "4\n"
    elif "CI" in os.environ:
        pytest.fail("no Slurm: PARITY_TEST_SLURM is not set; .ci/slurm prints it")
    else:
        pytest.skip("no Slurm: PARITY_TEST_SLURM=$(.ci/slurm) starts one")


def four(bench: Bench, *argv: str, **more: Any) -> LegPlan:
    """A leg of four ranks on two nodes."""
    return bench.plan("leg", 4, *argv, launcher=Slurm(2), **{"timeout": 300.0, **more})


def ask(*command: str) -> str:
    """What squeue or sinfo prints."""
    return subprocess.run([*command, "--noheader"], capture_output=True, text=True, check=True).stdout


def jobs(bench: Bench) -> list[str]:
    """The run's jobs that wait or run, by leg."""
    prefix = job_name(bench.run_id, "")
    return sorted(
        line.removeprefix(prefix) for line in ask("squeue", "--format=%j").split() if line.startswith(prefix)
    )


@contextmanager
def every_node_held(bench: Bench) -> Iterator["subprocess.Popen[bytes]"]:
    """Another job on all four nodes, until its process is ended."""
    name = job_name(bench.run_id, "hold")
    hold = subprocess.Popen(["srun", f"--job-name={name}", "--nodes=4", "--exclusive", "--quiet", "sleep", "600"])
    try:
        wait_for(lambda: name in ask("squeue", "--states=RUNNING", "--format=%j"))
        yield hold
    finally:
        hold.terminate()
        hold.wait(30)


def gone(bench: Bench) -> bool:
    return not jobs(bench) and not tasks(bench)


def tasks(bench: Bench) -> list[str]:
    """Processes on the nodes, which are this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environ = path.read_bytes()
            if bench.run_id.encode() in environ and b"PARITY_NODE=" in environ:
                found.append((path.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def test_a_leg_on_two_nodes_leaves_every_rank_s_output(bench: Bench) -> None:
    end = bench.run(four(bench, "ok"))["leg"]
    assert (end.status, end.exit_code, end.error) == ("finished", 0, None)
    ports = {bench.read(f"rank-{rank}.log").split("on port ")[1] for rank in range(4)}
    assert all(bench.read(f"rank-{rank}.log").startswith("sum 4.0 on port") for rank in range(4))
    assert len(ports) == 1
    assert end.last_steps == {0: 2, 1: 2, 2: 2, 3: 2}
    assert sum(f"[rank{rank}/" in bench.read("node-0.log") for rank in range(4)) == 2
    wait_for(lambda: gone(bench))


def test_a_killed_rank_is_named_with_its_node(bench: Bench) -> None:
    killed_with_its_node(bench.run(four(bench, "killed"))["leg"])
    wait_for(lambda: gone(bench))


def test_a_killed_rank_s_node_is_known_though_no_rank_of_it_said_a_word(bench: Bench) -> None:
    killed_with_its_node(bench.run(four(bench, "killed_in_silence", peer_grace=0.5))["leg"])
    assert "[rank" not in bench.read("node-0.log") + bench.read("node-1.log")
    wait_for(lambda: gone(bench))


def killed_with_its_node(end: LegEnd) -> None:
    assert (end.status, end.failing_rank, end.exit_code) == ("failed", 1, -9)
    assert end.error is not None
    assert end.error.startswith("killed by signal 9 (SIGKILL) (node ")
    assert end.error.endswith((", n0)", ", n1)", ", n2)", ", n3)"))


def test_a_rank_that_raises_is_named_before_those_that_lost_it(bench: Bench) -> None:
    end = bench.run(four(bench, "crash"))["leg"]
    assert (end.failing_rank, end.exit_code) == (1, 1)
    assert end.error is not None
    assert end.error.startswith("ValueError: rank 1 has had enough (node ")


def test_ranks_that_wait_for_a_dead_node_are_ended(bench: Bench) -> None:
    command = 'test "$SLURM_PROCID" = 0 || exit 3; sleep 600'
    end = bench.run(four(bench, command=command, peer_grace=0.5, timeout=300))["leg"]
    assert (end.status, end.failing_rank) == ("failed", None)
    assert end.error is not None
    assert end.error.startswith("exit code 3 (node 1, n")
    wait_for(lambda: gone(bench))


def test_a_leg_that_runs_out_of_time_leaves_no_job(bench: Bench) -> None:
    plan = four(bench, command="trap '' TERM; echo here; sleep 600; true")
    end = bench.run_late(plan, when=lambda: bench.says("here\n", "node-0.log", "node-1.log"))["leg"]
    assert end.status == "timed out"
    assert end.error == "no end after its time limit of 300 s"
    assert bench.read("node-1.log") == "here\n"
    wait_for(lambda: gone(bench))


def test_a_job_that_waits_does_not_use_up_its_leg_s_time(bench: Bench) -> None:
    with every_node_held(bench) as hold, subprocess.Popen(["sh", "-c", f"sleep 13; kill {hold.pid}"]):
        began = time.monotonic()
        end = bench.run(four(bench, command="true", timeout=10.0))["leg"]
        seconds = time.monotonic() - began
    assert seconds > 10.0
    assert end.status == "finished"
    assert end.seconds < seconds - 10.0


def test_a_job_that_waits_is_cancelled_with_its_run(bench: Bench) -> None:
    with every_node_held(bench):
        supervisor = start(bench)
        wait_for(lambda: jobs(bench) == ["a", "b", "hold"])
        supervisor.send_signal(signal.SIGTERM)
        out, _ = supervisor.communicate(timeout=120)
        assert "{'a': 'interrupted', 'b': 'interrupted'}" in out
        assert "the run was ended by SIGTERM while its job waited for nodes" in out
        wait_for(lambda: jobs(bench) == ["hold"])


SUPERVISOR = """
import sys
from pathlib import Path
from parity.launch import LegPlan, run_legs
from parity.launch.plan import Slurm
from parity.schedule import Slots

root, run_id, command = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
plans = [LegPlan(name, 4, root / name, command=command, timeout=300, launcher=Slurm(2)) for name in ("a", "b")]
ends = run_legs(plans, slots=Slots(4), run_id=run_id, on_event=print)
print({name: end.status for name, end in ends.items()})
"""


def start(bench: Bench, command: str = "echo up; trap '' TERM; sleep 600; true") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(bench.root), bench.run_id, command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def up(bench: Bench) -> bool:
    logs = [bench.root / leg / f"node-{node}.log" for leg in ("a", "b") for node in range(2)]
    return all(log.exists() and log.read_text() == "up\n" for log in logs)


def test_sigterm_leaves_no_job_and_no_task(bench: Bench) -> None:
    supervisor = start(bench)
    wait_for(lambda: up(bench))
    assert jobs(bench) == ["a", "b"]
    assert len(tasks(bench)) == 8
    supervisor.send_signal(signal.SIGTERM)
    out, _ = supervisor.communicate(timeout=120)
    assert "{'a': 'interrupted', 'b': 'interrupted'}" in out
    wait_for(lambda: gone(bench))


def test_sigkill_of_the_supervisor_leaves_no_job(bench: Bench) -> None:
    supervisor = start(bench)
    wait_for(lambda: up(bench))
    supervisor.kill()
    supervisor.communicate(timeout=120)
    wait_for(lambda: gone(bench) and not bench.alive())


def test_sigkill_of_the_supervisor_leaves_no_job_that_waits(bench: Bench) -> None:
    with every_node_held(bench):
        supervisor = start(bench)
        wait_for(lambda: jobs(bench) == ["a", "b", "hold"])
        supervisor.kill()
        supervisor.communicate(timeout=120)
        wait_for(lambda: jobs(bench) == ["hold"] and not bench.alive())


def test_legs_are_steps_of_an_allocation_that_there_is(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = job_name(bench.run_id, "allocation")
    subprocess.run(["salloc", "--quiet", "--no-shell", "--nodes=2", f"--job-name={name}"], check=True)
    job = ask("squeue", f"--name={name}", "--format=%i")
    monkeypatch.setenv("SLURM_JOB_ID", job.strip())
    command = 'echo "$SLURM_JOB_ID"; test "$PARITY_LEG" = good || { trap "" TERM; sleep 600; }'
    slow = bench.plan("slow", 2, command=command, launcher=Slurm(2))
    good = bench.plan("good", 2, command=command, launcher=Slurm(2))
    ends = bench.run_late(slow, good, when=lambda: bench.says(job, "node-0.log", "node-1.log", leg="slow"))
    assert (ends["good"].status, ends["slow"].status) == ("finished", "timed out")
    assert bench.read("node-1.log", "good") == bench.read("node-1.log", "slow") == job
    wait_for(lambda: not tasks(bench))
    assert jobs(bench) == ["allocation"]
    subprocess.run(["scancel", f"--name={name}"], check=True)
    wait_for(lambda: gone(bench))


def test_no_more_legs_than_said_are_given_to_slurm_at_a_time(bench: Bench) -> None:
    most = 0
    running: set[str] = set()

    def listen(event: Event) -> None:
        nonlocal most
        if isinstance(event, LegStarted):
            running.add(event.name)
            most = max(most, len(running))
        if isinstance(event, LegFinished):
            running.discard(event.end.name)

    plans = [bench.plan(name, 1, command="sleep 3", launcher=Slurm(1, most=2)) for name in ("a", "b", "c", "d")]
    ends = bench.run(*plans, slots=1, listen=listen)
    assert {end.status for end in ends.values()} == {"finished"}
    assert most == 2


def test_what_srun_refuses_is_said(bench: Bench) -> None:
    end = bench.run(bench.plan("leg", 1, command="true", launcher=Slurm(1, ("--partition=nowhere",))))["leg"]
    assert end.status == "failed"
    assert end.error is not None
    assert "srun: error: Unable to allocate resources: Invalid partition name specified" in end.error


def test_a_node_that_left_nothing_is_said(bench: Bench) -> None:
    end = bench.run(
        bench.plan(
            "leg", 2, command='test "$SLURM_PROCID" = 0 || rm $PARITY_RECORD_DIR/node-1.log', launcher=Slurm(2)
        )
    )["leg"]
    assert end.status == "failed"
    assert end.error is not None
    assert end.error.startswith("nothing came from node 1, n")
    assert "has to be in a file system that all nodes share" in end.error


def test_an_embedded_suite_passes_over_nodes(tmp_path: Path) -> None:
    suite = {
        "name": "over-nodes",
        "steps": 6,
        "device": "cpu",
        "launcher": {"slurm": {"ranks_per_node": 2}},
        "trainer": {"embedded": "qwen3"},
        "floor": "perturbed",
        "legs": {"one": {}, "tp4": {"layout": {"tp": 4}}},
        "compare": [{"baseline": "one", "candidate": "tp4"}],
    }
    (tmp_path / "parity.yml").write_text(yaml.safe_dump(suite))
    command = [sys.executable, "-m", "parity", "run", "--slots", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "parity: pass · over-nodes" in done.stdout
    leg = RunDirectory(tmp_path / "parity-out").read_leg("tp4")
    assert leg is not None
    assert str(leg.command).startswith("srun --nodes=2 --ntasks-per-node=1 torchrun")
    assert {f"legs/tp4/{name}.log" for name in ("node-0", "node-1", "rank-0", "rank-3")} <= set(leg.logs)
