"""Two runs on one machine: a device is never theirs at the same time."""

from pathlib import Path

import pytest

from parity.launch import DevicesHeld, Event, LegStarted
from parity.schedule import DeviceLocks, locks
from tests.launch.conftest import Bench

GPUS = {"0": "CUDA-GPU-a", "1": "CUDA-GPU-b"}


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeviceLocks:
    """Another run, which holds the first device."""
    monkeypatch.setattr(locks, "FOLDER", tmp_path)
    held = DeviceLocks({"GPU-a": "CUDA-GPU-a", "GPU-b": "CUDA-GPU-b"})
    assert held.take(["GPU-a"]) == ("GPU-a",)
    return held


def started(bench: Bench) -> list[tuple[str, tuple[str, ...]]]:
    return [(event.name, event.gpus) for event in bench.events if isinstance(event, LegStarted)]


def test_legs_run_on_what_the_other_run_leaves(bench: Bench, other: DeviceLocks) -> None:
    plans = [bench.plan(name, 1, cuda=True, command="true") for name in ("one", "two")]
    ends = bench.run(*plans, gpus=("0", "1"), identities=GPUS)
    assert {end.status for end in ends.values()} == {"finished"}
    assert [gpus for _, gpus in started(bench)] == [("1",), ("1",)]
    assert other.take(["GPU-b"]) == ("GPU-b",)


def test_a_leg_that_needs_what_another_run_holds_waits_and_says_so(bench: Bench, other: DeviceLocks) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, DevicesHeld):
            assert list(event.holders) == ["0"]
            assert started(bench) == [("cpu", ())]
            other.give_back(["GPU-a"])
        if isinstance(event, LegStarted) and event.gpus:
            assert other.take(["GPU-a", "GPU-b"]) == ()

    plans = [bench.plan("gpus", 2, cuda=True, command="true"), bench.plan("cpu", 1, command="true")]
    ends = bench.run(*plans, gpus=("0", "1"), identities=GPUS, listen=listen)
    assert {end.status for end in ends.values()} == {"finished"}
    assert started(bench) == [("cpu", ()), ("gpus", ("0", "1"))]
    assert sum(isinstance(event, DevicesHeld) for event in bench.events) == 1


def test_a_run_that_waits_for_devices_can_be_ended(bench: Bench, other: DeviceLocks) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, DevicesHeld):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run(bench.plan("gpu", 1, cuda=True, command="true"), gpus=("0",), identities=GPUS, listen=listen)
    other.give_back(["GPU-a"])
    assert other.take(["GPU-a", "GPU-b"]) == ("GPU-a", "GPU-b")
