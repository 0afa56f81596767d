"""Whatever a leg's processes do to hide, they go with it; whatever is not a leg's stays."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from parity.launch import Event, LegFinished, marker
from tests.launch.conftest import ROOT, Bench, wait_for

SUPERVISOR = """
import sys
from pathlib import Path
from parity.launch import LegPlan, run_legs
from parity.schedule import Slots

def listen(event):
    print(type(event).__name__, flush=True)

plan = LegPlan("leg", 1, Path(sys.argv[1]) / "leg", command=sys.argv[3], timeout=300)
run_legs([plan], slots=Slots(4), run_id=sys.argv[2], on_event=listen)
"""


def sleepers(seconds: str) -> list[psutil.Process]:
    """Processes that no mark of ours is on, found by what they are called with."""
    return [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", seconds]]


def reused(process: psutil.Process) -> psutil.Process:
    """What is known of an earlier process, if `process` has got its id."""
    earlier = psutil.Process(process.pid)
    earlier._ident = (process.pid, 1.0)  # type: ignore[attr-defined]
    return earlier


@pytest.mark.slow
def test_kill__a_daemon_without_environment_session_and_parent_goes_too(bench: Bench) -> None:
    hide = "(env -i setsid sleep 6131 &); sleep 600; true"
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(bench.root), bench.run_id, hide],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert supervisor.stdout is not None
    seconds = 0
    while seconds < 3:
        seconds += supervisor.stdout.readline() == "Tick\n"
    assert len(sleepers("6131")) == 1
    supervisor.kill()
    supervisor.communicate(timeout=120)
    wait_for(lambda: not sleepers("6131"))
    bench.wait_until_gone()


@pytest.mark.slow
def test_time_limit__a_daemon_that_hid_goes_with_its_leg_and_not_with_the_run(bench: Bench) -> None:
    left: list[int] = []

    def listen(event: Event) -> None:
        if isinstance(event, LegFinished) and event.end.name == "hides":
            left.append(len(sleepers("6132")))

    hide = "sh -c 'env -i setsid sleep 6132 & sleep 3' & sleep 600"
    ends = bench.run(
        bench.plan("hides", 1, command=hide, timeout=6), bench.plan("other", 1, command="sleep 12"), listen=listen
    )
    assert (ends["hides"].status, ends["other"].status) == ("timed out", "finished")
    assert left == [0]


def test_a_later_process_of_the_same_id_is_neither_found_nor_ended(bench: Bench) -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger:
        try:
            found = marker.members(bench.run_id, "leg", [psutil.Process(stranger.pid)])
            assert [one.pid for one in found] == [stranger.pid]
            earlier = reused(psutil.Process(stranger.pid))
            assert marker.members(bench.run_id, "leg", [earlier]) == []
            marker.send([earlier], signal.SIGKILL)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_note_tells_a_process_from_a_later_one_of_the_same_id() -> None:
    me = psutil.Process()
    line = marker.note(me)
    assert marker.recall(line) == me
    assert marker.recall(f"{os.getpid()} {int(line.split()[1]) - 1}") is None
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert marker.recall(f"{gone.pid} 1") is None


def test_port__no_one_else_is_given_it_and_the_leg_can_listen_there(bench: Bench, tmp_path: Path) -> None:
    listen = (
        "import os, socket; socket.create_server(('127.0.0.1', int(os.environ['MASTER_PORT']))); print('listens')"
    )
    two = [bench.plan(name, 1, command=(sys.executable, "-c", listen)) for name in ("a", "b")]
    assert {end.status for end in bench.run(*two).values()} == {"finished"}
    assert bench.read("command.log", "a") == "listens\n"


def test_rendezvous__each_leg_has_an_id_of_its_own(bench: Bench) -> None:
    bench.run(*(bench.plan(name, 1, command="echo $PET_RDZV_ID") for name in ("a", "b")))
    assert [bench.read("command.log", name) for name in ("a", "b")] == [f"{bench.run_id}-{one}\n" for one in "ab"]
