"""Run legs with the toy trainer, and look for what they leave behind."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import psutil
import pytest

from parity.launch import Event, LegEnd, LegPlan, marker, run_legs
from parity.launch.leg import Leg
from parity.schedule import Slots

TOY = "tests.launch.toy"
ROOT = Path(__file__).parents[2]


class Bench:
    """One run: plans are made under `root`, its processes are found by `run_id`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run_id = f"test-{uuid.uuid4().hex}"
        self.events: list[Event] = []

    def plan(self, name: str, ranks: int, *argv: str, **more: Any) -> LegPlan:
        """A leg of the toy trainer, or of a command where one is given."""
        if "command" not in more:
            more = {"module": TOY, "argv": argv, **more}
        return LegPlan(name, ranks, self.root / name, **{"timeout": 300.0, **more})

    def run(
        self,
        *plans: LegPlan,
        slots: int = 16,
        gpus: tuple[str, ...] = (),
        identities: Mapping[str, str] = MappingProxyType({}),
        listen: Callable[[Event], None] = lambda event: None,
    ) -> dict[str, LegEnd]:
        """Run to the end and hold that nothing is left."""

        def on_event(event: Event) -> None:
            self.events.append(event)
            listen(event)

        ends = run_legs(plans, slots=Slots(slots, gpus, identities=identities), run_id=self.run_id, on_event=on_event)
        assert self.alive() == []
        return ends

    def run_one(self, ranks: int, *argv: str, **more: Any) -> LegEnd:
        return self.run(self.plan("leg", ranks, *argv, **more))["leg"]

    def run_late(self, plan: LegPlan, *others: LegPlan, when: Callable[[], bool]) -> dict[str, LegEnd]:
        """Run legs, the first of which is out of time once `when` holds, however long it took to get there."""
        in_time = Leg._too_late
        held = False

        def too_late(leg: Leg, now: float) -> str:
            nonlocal held
            if leg.plan.name == plan.name and when():
                held = True
                leg._started = now - leg.plan.timeout - 1.0
            return in_time(leg, now)

        with mock.patch.object(Leg, "_too_late", too_late):
            ends = self.run(plan, *others)
        assert held
        return ends

    def read(self, name: str, leg: str = "leg") -> str:
        return (self.root / leg / name).read_text()

    def says(self, words: str, *names: str, leg: str = "leg") -> bool:
        """Whether each of these files of a leg has these words by now."""
        paths = [self.root / leg / name for name in names]
        return all(path.exists() and words in path.read_text() for path in paths)

    def alive(self) -> list[psutil.Process]:
        """Processes of this run, found by nothing but their environment."""
        return marker.members(self.run_id, None)

    def wait_until_gone(self) -> None:
        wait_for(lambda: not self.alive())


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for something that other processes do."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    marker.send(made.alive(), 9)
