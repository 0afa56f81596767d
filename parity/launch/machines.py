"""Several machines that run one suite together, each by a parity of its own, over a folder that all of them see.

Each writes a file that no other writes: how its part of each leg is, and a number that grows while it lives.
Machine 0 begins legs, and hears all others; these follow it, and hear it alone.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parity.errors import UsageError
from parity.launch import marker
from parity.launch.events import Event, LegStarted
from parity.launch.failure import Symptom
from parity.launch.files import json_lines, tail
from parity.launch.leg import GRACE
from parity.launch.nodes import NodesLeg
from parity.launch.plan import LegPlan, Status, Torchrun
from parity.untrusted import write_whole

__all__ = ["MachineLeg", "Machines"]

BEAT = 1.0  # seconds between two numbers
SILENT = 60.0  # seconds without a new number after which a machine is given up: caches of network disks take a while
JOINING = 600.0  # seconds that machines wait for one another


@dataclass
class _Other:
    """What is known of another machine: its last words, and when they were new."""

    words: dict[str, Any] = field(default_factory=dict)
    since: float = field(default_factory=time.monotonic)


class Machines:
    """What the machines of a run tell each other.

    Args:
        directory: the run directory.
        node: this machine.
        count: how many there are; only machine 0 needs to know.
    """

    def __init__(self, directory: Path, node: int, count: int = 0) -> None:
        self.node = node
        self._folder = directory.absolute() / "machines"
        self._others = {other: _Other() for other in (range(1, count) if node == 0 else [0])}
        self.run_id = ""
        self._legs: dict[str, MachineLeg] = {}
        self._states: dict[str, str] = {}
        self._beat = 0
        self._next = 0.0

    def wait(self) -> str:
        """Wait for machine 0 to begin a run; returns its id.

        Raises:
            UsageError: it does not.
        """
        deadline = time.monotonic() + JOINING
        old = self._read(0)
        while time.monotonic() < deadline:
            new = self._read(0)
            if new not in (old, {}) and not new.get("over"):  # a file that does not change is an earlier run's
                return str(new["run_id"])
            time.sleep(BEAT / 4)
        raise UsageError(
            f"machine 0 has begun no run in {self._folder.parent} for {JOINING:g} s: start it with --node-rank 0, and"
            " let --out name a folder that all machines see"
        )

    def begin(self, run_id: str) -> None:
        """Be heard from now on, and hear."""
        self.run_id = run_id
        self._folder.mkdir(exist_ok=True)
        self._write()

    def add(self, leg: "MachineLeg") -> None:
        """Tell of this part too."""
        self._legs[leg.plan.name] = leg

    def confer(self) -> None:
        """Tell how this machine's parts are, and hear how the others' are. Called all the time."""
        states = {name: leg.state() for name, leg in self._legs.items()}
        now = time.monotonic()
        if states == self._states and now < self._next:
            return
        self._states, self._next = states, now + BEAT
        with contextlib.suppress(UsageError):  # a full disk, say: if it lasts, this machine counts as silent
            self._write()
        for node, other in self._others.items():
            words = self._read(node)
            if words != other.words and words.get("run_id") == self.run_id:
                other.words, other.since = words, now

    def leave(self) -> None:
        """Say that this machine does no more; what runs elsewhere is ended."""
        self._states = {name: leg.state() for name, leg in self._legs.items()}
        with contextlib.suppress(UsageError):
            self._write(over=True)

    def over(self) -> bool:
        """Whether one of the others has ended its run."""
        return any(other.words.get("over") for other in self._others.values())

    def states(self, leg: str) -> dict[int, str]:
        """How the others' parts of a leg are: as `MachineLeg.state` says; empty for one that has not begun."""
        return {node: str(other.words.get("legs", {}).get(leg, "")) for node, other in self._others.items()}

    def lost(self, leg: str, nodes: int) -> str:
        """Why one of the first `nodes` machines is not to be waited for any more; empty if there is none. Where its
        part of the leg has ended, nothing is waited for.
        """
        parts = self.states(leg)
        for node, other in self._others.items():
            if node >= nodes or parts[node] not in ("", "running"):
                continue
            if other.words.get("over"):
                return f"machine {node} has ended its run"
            if other.words and time.monotonic() - other.since > SILENT:
                return f"nothing was heard of machine {node} for {SILENT:g} s"
        return ""

    def _path(self, node: int) -> Path:
        return self._folder / f"{node}.json"

    def _read(self, node: int) -> dict[str, Any]:
        return next(json_lines(tail(self._path(node))), {})

    def _write(self, over: bool = False) -> None:
        self._beat += 1
        words = {"run_id": self.run_id, "beat": self._beat, "over": over, "legs": self._states}
        write_whole(self._path(self.node), json.dumps(words) + "\n")


class MachineLeg(NodesLeg):
    """This machine's part of a leg. What it prints is in `node-<k>.log`.

    The leg's time begins when every machine has begun its part.
    """

    def __init__(
        self, plan: LegPlan, run_id: str, gpus: tuple[str, ...], emit: Callable[[Event], None], machines: Machines
    ) -> None:
        assert isinstance(plan.launcher, Torchrun)
        super().__init__(plan, run_id, gpus, emit, plan.launcher.nodes)
        self._machines = machines
        machines.add(self)
        self._meeting = plan.launcher
        self._give_up = math.inf
        self._failed_first: tuple[int, int | None] | None = None  # see `first_node`

    @property
    def _command_log(self) -> Path:
        return self._node_log(self._machines.node)

    def start(self) -> None:
        if self._machines.node == 0:
            self.prepare()
        self.plan.directory.mkdir(parents=True, exist_ok=True)
        self._give_up = time.monotonic() + JOINING
        rendezvous = {
            "PET_RDZV_ENDPOINT": self._meeting.endpoint,
            "PET_RDZV_ID": self._meeting.name,
            "PET_RDZV_CONF": f"is_host={self._machines.node == 0},join_timeout={JOINING:.0f}",
        }
        self.spawn(self.on_node("{PARITY_NODE:-0}", "(hostname)"), {**self.variables(), **rendezvous})

    def environment(self) -> dict[str, str]:
        added = super().environment() | {marker.RUN: self._machines.run_id}
        return added | {marker.NODE: str(self._machines.node)} if self._machines.node else added

    def state(self) -> str:
        """What the other machines are told: `running`, `finished`, `failed`, or as `failed 3` with an exit code."""
        code = None if self._process is None else self._process.poll()
        if self.ending_since is None and code not in (None, 0):
            return f"failed {code}"
        if self.ending_since is not None or (self.end is not None and self.end.status != "finished"):
            return "failed"
        return "running" if code is None else "finished"

    def poll(self) -> bool:
        gone = super().poll()
        states = {node: state for node, state in self._machines.states(self.plan.name).items() if node < self.nodes}
        if self._started is None and all(states.values()):
            self.running()
            self.emit(LegStarted(self.plan.name, self.plan.ranks, self.gpus, 0))
        if self._failed_first is None:
            self._failed_first = self._failed_part(states)
        if any(state.startswith("failed") for state in states.values()):
            self.failed()
        if gone and self._machines.node == 0 and not self._machines.lost(self.plan.name, self.nodes):
            # A part that finished early waits for others to begin; after one that failed they do not.
            awaited = ("running", "") if self.state() == "finished" else ("running",)
            gone = not any(state in awaited for state in states.values())
        if self.ending_since is None and not gone:
            self._look_for_the_others(states)
        return gone

    def _failed_part(self, states: dict[int, str]) -> tuple[int, int | None] | None:
        """The first machine whose part has failed by itself, and its exit code."""
        parts = {self._machines.node: self.state()} | states
        code = next(((node, state.split()[1]) for node, state in parts.items() if state.startswith("failed ")), None)
        return None if code is None else (code[0], int(code[1]))

    def first_node(self) -> tuple[int, int | None] | None:
        return self._failed_first

    def failure(self) -> Symptom | None:
        found = super().failure()
        if self._status == "failed" and self._why and (found is None or found.echo):
            return Symptom(None, None, 0.0, self._why, echo=False)  # what its own ranks say is our doing
        return found

    def _look_for_the_others(self, states: dict[int, str]) -> None:
        missing = [str(node) for node, state in states.items() if not state]
        if why := self._machines.lost(self.plan.name, self.nodes):
            self.stop("failed", why)
        elif missing and time.monotonic() > self._give_up:
            how = f"--node-rank, the same suite, and --out {self.plan.directory.parent.parent}"
            self.stop(
                "failed",
                f"nothing was heard of machine {', '.join(missing)} for {JOINING:g} s: start parity there with {how}",
            )

    def stop(self, status: Status, why: str, grace: float = GRACE) -> None:
        if self._started is None and not self.gone and self._process is not None:
            self.running()  # it waits for the others, and its process is to be ended
        super().stop(status, why, grace)

    def collect_logs(self) -> None:
        if self._machines.node == 0:
            super().collect_logs()
