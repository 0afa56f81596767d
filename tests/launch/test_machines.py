"""Legs on several machines, each with a parity of its own: here they are processes of one machine."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from parity.errors import UsageError
from parity.launch import Event, LegEnd, LegPlan, LegStarted, Machines, Torchrun, machines, run_legs
from parity.rundir import RunDirectory
from parity.schedule import Slots
from tests.launch.conftest import ROOT, TOY, Bench, wait_for

pytestmark = pytest.mark.slow

RUN = "20300101T000000Z-00000000"


def lead(bench: Bench, *plans: LegPlan, started: Callable[[], None] = lambda: None) -> dict[str, LegEnd]:
    """Run legs as machine 0 of two; `started` is called when all parts of a leg run."""

    def listen(event: Event) -> None:
        if isinstance(event, LegStarted):
            started()

    others = Machines(bench.root, 0, 2)
    others.begin(bench.run_id)
    ends = run_legs(plans, slots=Slots(8), run_id=bench.run_id, on_event=listen, machines=others)
    assert bench.alive() == []
    return ends


@contextmanager
def follower(bench: Bench, *plans: LegPlan) -> Iterator["subprocess.Popen[str]"]:
    """Machine 1, in a process of its own."""
    legs = {plan.name: (plan.ranks, plan.command, plan.launcher) for plan in plans}
    script = f"""
import sys
from pathlib import Path
from parity.launch import LegPlan, Machines, Torchrun, run_legs
from parity.schedule import Slots

root = Path(sys.argv[1])
others = Machines(root, 1)
run_id = others.wait()
others.begin(run_id)
plans = []
for name, (ranks, command, launcher) in {legs!r}.items():
    runs = {{"command": command}} if command else {{"module": {TOY!r}, "argv": ("ok",)}}
    plans.append(LegPlan(name, ranks, root / name, **runs, launcher=launcher, timeout=300, peer_grace=0.5))
ends = run_legs(plans, slots=Slots(8), run_id=run_id + ".1", on_event=lambda event: None, machines=others)
print({{name: end.status for name, end in ends.items()}})
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(bench.root)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
        wait_for(lambda: process.poll() is not None)
        assert parts(bench) == []
    finally:
        process.kill()
        process.communicate()


def parts(bench: Bench) -> list[int]:
    """Processes of machine 1's parts."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environ = path.read_bytes()
        except OSError:
            continue
        if bench.run_id.encode() in environ and b"PARITY_NODE=1" in environ:
            found.append(int(path.parent.name))
    return found


def shared(bench: Bench, name: str, command: str | None = None) -> LegPlan:
    """A leg of four ranks on both machines."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    launcher = Torchrun(2, f"127.0.0.1:{port}", f"{bench.run_id}-{name}")
    if command is None:
        return bench.plan(name, 4, "ok", launcher=launcher, timeout=300)
    return bench.plan(name, 4, command=command, launcher=launcher, peer_grace=0.5)


def test_a_leg_on_two_machines_leaves_every_rank_s_output(bench: Bench) -> None:
    plan = shared(bench, "leg")
    with follower(bench, plan) as other:
        end = lead(bench, plan)["leg"]
        assert other.communicate(timeout=120)[0] == "{'leg': 'finished'}\n"
    assert (end.status, end.error) == ("finished", None)
    assert all(bench.read(f"rank-{rank}.log").startswith("sum 4.0 on port") for rank in range(4))
    assert end.last_steps == {0: 2, 1: 2, 2: 2, 3: 2}


def test_a_part_that_fails_is_named_and_the_others_end(bench: Bench) -> None:
    plans = [shared(bench, "bad", 'test "$PARITY_NODE" != 1 || exit 3; sleep 600'), shared(bench, "good", "true")]
    with follower(bench, *plans) as other:
        ends = lead(bench, *plans)
        assert other.communicate(timeout=120)[0] == "{'bad': 'failed', 'good': 'finished'}\n"
    assert (ends["bad"].status, ends["good"].status) == ("failed", "finished")
    assert ends["bad"].error == f"exit code 3 (node 1, {socket.gethostname()})"


def test_a_leg_out_of_time_ends_everywhere(bench: Bench) -> None:
    plan = shared(bench, "leg", "sleep 600")
    with follower(bench, plan) as other:
        end = lead(bench, LegPlan(**{**vars(plan), "timeout": 1.0}))["leg"]
        assert other.communicate(timeout=120)[0] == "{'leg': 'failed'}\n"
    assert (end.status, end.error) == ("timed out", "no end after its time limit of 1 s")


def test_a_machine_that_never_comes_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "JOINING", 1.0)
    end = lead(bench, shared(bench, "leg", "sleep 600"))["leg"]
    assert end.status == "failed"
    assert end.error is not None
    assert end.error.startswith("nothing was heard of machine 1 for 1 s: start parity there with --node-rank")


def test_a_machine_that_falls_silent_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "SILENT", 3.0)
    plan = shared(bench, "leg", "sleep 600")
    with follower(bench, plan) as other:
        end = lead(bench, plan, started=other.kill)["leg"]
    assert (end.status, end.error) == ("failed", "nothing was heard of machine 1 for 3 s")


def test_a_follower_ends_when_machine_0_is_told_to_stop(bench: Bench) -> None:
    plan = shared(bench, "leg", "sleep 600")
    with follower(bench, plan) as other:
        end = lead(bench, plan, started=lambda: os.kill(os.getpid(), signal.SIGTERM))["leg"]
        assert end.status == "interrupted"
        assert other.communicate(timeout=120)[0] == "{'leg': 'failed'}\n"


def test_a_follower_of_no_one_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "JOINING", 1.0)
    Machines(tmp_path, 0, 2).begin(RUN)  # an earlier run's file, which does not change
    with pytest.raises(UsageError, match=r"machine 0 has begun no run in .* for 1 s: start it with --node-rank 0"):
        Machines(tmp_path, 1).wait()


# One of them fails at once, where no source says what it left.
SHORT = {"one": {"command": "true"}, "tp4": {"layout": {"tp": 4}}}


def write_suite(folder: Path, **more: object) -> None:
    content = {
        "name": "over-machines",
        "steps": 6,
        "device": "cpu",
        "launcher": {"torchrun": {"nnodes": 2, "rdzv_endpoint": "localhost:29413"}},
        "trainer": {"embedded": "qwen3"},
        "floor": "perturbed",
        "legs": {"one": {}, "tp4": {"layout": {"tp": 4}}},
        "compare": [{"baseline": "one", "candidate": "tp4"}],
        **more,
    }
    (folder / "parity.yml").write_text(yaml.safe_dump(content))


def parity(folder: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "parity", "run", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_an_embedded_suite_passes_over_two_machines(tmp_path: Path) -> None:
    write_suite(tmp_path)
    with parity(tmp_path, "--node-rank", "1") as other, parity(tmp_path, "--node-rank", "0") as first:
        said = first.communicate(timeout=500)[0]
        assert first.returncode == 0, said
        assert other.wait(120) == 0
    assert "parity: pass · over-machines" in said
    leg = RunDirectory(tmp_path / "parity-out").read_leg("tp4")
    assert leg is not None
    assert {f"legs/tp4/{name}.log" for name in ("node-0", "node-1", "rank-0", "rank-3")} <= set(leg.logs)


def test_nobody_waits_for_a_machine_that_has_too_few_devices(tmp_path: Path) -> None:
    write_suite(tmp_path, trainer={"command": "sleep 600"}, source="{out}/log.jsonl", floor=None, legs=SHORT)
    with parity(tmp_path, "--node-rank", "1", "--slots", "1") as other, parity(tmp_path, "--node-rank", "0") as first:
        told, said = other.communicate(timeout=300)[0], first.communicate(timeout=300)[0]
    assert other.returncode == 4
    assert "tp4: needs 2 ranks, this machine has room for 1" in told
    assert "tp4: failed" in said
    assert "machine 1 has ended its run" in said


def test_no_machine_moves_the_weights_of_its_parts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_suite(tmp_path)
    monkeypatch.setenv("PARITY_PERTURB", "1")
    with parity(tmp_path, "--node-rank", "1") as process:
        out = process.communicate(timeout=300)[0]
    assert (process.returncode, len(out.splitlines())) == (2, 1)
    assert out.startswith("PARITY_PERTURB: is set here")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "launcher: torchrun: say which machine this is, with --node-rank 0 on the first"),
        (("--node-rank", "2"), "--node-rank 2: no leg of the suite takes so many machines"),
    ],
)
def test_a_wrong_number_is_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    write_suite(tmp_path)
    with parity(tmp_path, *words) as process:
        out = process.communicate(timeout=300)[0]
    assert process.returncode == 2
    assert out.startswith(said)
    assert len(out.splitlines()) == 1
