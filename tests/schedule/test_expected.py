"""How long legs will likely take."""

import json
from pathlib import Path

import pytest
import yaml

from parity.result import LegResult
from parity.rundir import RunDirectory, Snapshot
from parity.schedule.expected import expected
from parity.suite import Suite, load


def suite(tmp_path: Path, steps: int = 10) -> Suite:
    content = {
        "name": "x",
        "steps": steps,
        "trainer": {"embedded": "qwen3"},
        "legs": {"tp1": {}, "tp2": {"layout": {"tp": 2}}, "tp4": {"layout": {"tp": 4}}},
        "compare": [{"baseline": "tp1", "candidate": "tp2", "control": "tp4"}],
    }
    path = tmp_path / "parity.yml"
    path.write_text(yaml.safe_dump(content))
    return load(path)


def earlier(tmp_path: Path, steps: int = 10, **legs: LegResult) -> Path:
    out = tmp_path / "out"
    directory, _ = RunDirectory.create(out, keep=False, legs=[])
    snapshot = Snapshot(run_id="r", reproduce="", device="cpu", suite=suite(tmp_path, steps))
    directory.write("suite.json", snapshot.model_dump_json())
    for leg in legs.values():
        directory.write_leg(leg)
    return out


def leg(name: str, ranks: int, seconds: float, status: str = "finished") -> LegResult:
    return LegResult.model_validate({"name": name, "status": status, "ranks": ranks, "seconds": seconds})


NAMES = ["tp1", "tp2", "tp4"]


def test_without_an_earlier_run_a_leg_takes_its_ranks_times_its_steps(tmp_path: Path) -> None:
    for folder in (None, tmp_path / "absent"):
        times = expected(suite(tmp_path), NAMES, folder)
        assert (times.times, times.unit) == ({"tp1": 10, "tp2": 20, "tp4": 40}, "rank-steps")
        assert "no earlier run" in times.source


def test_a_leg_takes_as_long_as_it_did(tmp_path: Path) -> None:
    out = earlier(tmp_path, a=leg("tp1", 1, 2.0), b=leg("tp2", 2, 7.0), c=leg("tp4", 4, 5.0))
    times = expected(suite(tmp_path), NAMES, out)
    assert (times.times, times.unit) == ({"tp1": 2, "tp2": 7, "tp4": 5}, "s")
    assert times.source == f"from {out}"


def test_of_other_legs_it_is_as_many_seconds_for_each_rank(tmp_path: Path) -> None:
    """A leg that failed took no time that says anything, nor did one of another size."""
    out = earlier(tmp_path, a=leg("tp1", 1, 3.0), b=leg("tp2", 2, 0.1, "failed"), c=leg("tp4", 8, 99.0))
    times = expected(suite(tmp_path), NAMES, out)
    assert times.times == {"tp1": 3, "tp2": 6, "tp4": 12}
    assert times.source.endswith("; by ranks: tp2, tp4")


def test_of_another_number_of_steps_it_is_as_many_seconds_for_each_step(tmp_path: Path) -> None:
    out = earlier(tmp_path, steps=40, a=leg("tp1", 1, 8.0))
    assert expected(suite(tmp_path), ["tp1"], out).times == {"tp1": 2}


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "1e300", "-1.0"])
def test_what_no_leg_can_have_taken_says_nothing(tmp_path: Path, seconds: str) -> None:
    out = earlier(tmp_path, a=leg("tp1", 1, 8.0))
    file = out / "legs" / "tp1" / "leg.json"
    file.write_text(file.read_text().replace('"seconds": 8.0', f'"seconds": {seconds}'))
    assert expected(suite(tmp_path), NAMES, out).unit == "rank-steps"


def test_a_folder_that_holds_anything_is_no_earlier_run(tmp_path: Path) -> None:
    out = earlier(tmp_path, a=leg("tp1", 1, 8.0))
    (out / "legs" / "tp1" / "leg.json").write_text("{")
    assert expected(suite(tmp_path), NAMES, out).unit == "rank-steps"
    (out / "suite.json").write_text(json.dumps({"format": "parity.suite/1"}))
    assert expected(suite(tmp_path), NAMES, out).unit == "rank-steps"
