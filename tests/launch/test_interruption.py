"""The supervising process is told to stop, or is killed: no rank survives."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from parity.launch import Event, LegFinished, LegStarted, leg, run_legs
from parity.schedule import Slots
from tests.launch.conftest import ROOT, TOY, Bench, wait_for

pytestmark = pytest.mark.slow

SUPERVISOR = """
import dataclasses, json, signal, sys
from pathlib import Path
from parity.launch import LegPlan, LegProgress, leg, run_legs
from parity.schedule import Slots

leg.GRACE = float(sys.argv[5])
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and stays so
root = Path(sys.argv[1])
plans = [
    LegPlan("embedded", 2, root / "embedded", module=sys.argv[3], argv=("daemon_hang",), timeout=300),
    LegPlan("command", 2, root / "command", command=sys.argv[4], timeout=300),
    LegPlan("waiting", 2, root / "waiting", module=sys.argv[3], argv=("ok",)),
]
ends = run_legs(plans, slots=Slots(4), run_id=sys.argv[2], on_event=print)
print(json.dumps({name: end.status for name, end in ends.items()}))
"""
COMMAND = (
    "trap '' TERM INT; setsid sh -c 'trap \"\" TERM; sleep 600; true' & touch $PARITY_RECORD_DIR/up; sleep 600; true"
)


def start(bench: Bench, patience: float = leg.GRACE) -> "subprocess.Popen[str]":
    """A real supervisor with an embedded leg, a command and daemons of both, all of which run when this returns.

    Args:
        patience: seconds from SIGTERM to SIGKILL.
    """
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(bench.root), bench.run_id, TOY, COMMAND, str(patience)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    logs = [bench.root / "embedded" / f"rank-{rank}.log" for rank in range(2)]
    wait_for(lambda: all(log.exists() and "hanging" in log.read_text() for log in logs))
    wait_for((bench.root / "command" / "up").exists)
    return supervisor


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stop__every_process_ends(bench: Bench, signum: int) -> None:
    supervisor = start(bench)
    assert len(bench.alive()) > 8
    supervisor.send_signal(signum)
    out, _ = supervisor.communicate(timeout=120)
    assert bench.alive() == []
    assert supervisor.returncode == 0
    assert "Interrupted(signal=" in out
    assert json.loads(out.splitlines()[-1]) == {
        "embedded": "interrupted",
        "command": "interrupted",
        "waiting": "not started",
    }


def test_stop__a_second_signal_kills_at_once(bench: Bench) -> None:
    supervisor = start(bench, patience=600.0)
    supervisor.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert len(bench.alive()) > 3  # those that ignore it
    supervisor.send_signal(signal.SIGINT)
    supervisor.communicate(timeout=120)
    assert bench.alive() == []
    assert supervisor.returncode == 0


def test_kill__nothing_outlives_the_supervisor(bench: Bench) -> None:
    supervisor = start(bench)
    supervisor.kill()
    supervisor.communicate(timeout=120)
    bench.wait_until_gone()


def test_stop__while_torch_is_still_imported(bench: Bench) -> None:
    before = signal.getsignal(signal.SIGINT)

    def interrupt() -> None:
        wait_for(lambda: signal.getsignal(signal.SIGINT) != before)
        os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(interrupt)
        end = bench.run_one(2, "hang")
        asked.result()
    assert end.status == "not started"


def test_stop__when_the_last_leg_has_ended(bench: Bench) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, LegFinished):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        bench.run(bench.plan("leg", 1, command="true"), listen=listen)
    assert bench.alive() == []


def test_handlers_are_given_back(bench: Bench) -> None:
    before = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    bench.run_one(1, command="true")
    assert [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_listener_that_raises_leaves_no_ranks(bench: Bench) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, LegStarted):
            raise RuntimeError("the live view broke")

    with pytest.raises(RuntimeError, match="the live view broke"):
        run_legs(
            [bench.plan("a", 2, "stubborn"), bench.plan("b", 1, command="sleep 600")],
            slots=Slots(4),
            run_id=bench.run_id,
            on_event=listen,
        )
    assert bench.alive() == []


def test_no_descriptor_and_no_child_is_kept(bench: Bench, tmp_path: Path) -> None:
    descriptors = os.listdir("/proc/self/fd")
    bench.run(bench.plan("a", 2, "ok"), bench.plan("b", 1, command="true"))
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
