"""What `parity plan` shows, and what of it a run keeps to."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from parity.errors import DeviceError, UsageError
from parity.planning import as_matrix, as_text, needs, planned
from parity.prepare import choose_device
from parity.schedule import Slots
from parity.schedule.devices import ACCELERATORS
from parity.schedule.expected import Expected
from parity.suite import Suite, load
from tests.test_cli import parity

ROCM, ASCEND, XPU = ACCELERATORS[1:]


def suite(tmp_path: Path, **more: Any) -> Suite:
    content = {
        "name": "planned",
        "steps": 10,
        "trainer": {"command": "train {tp} {leg} {out}"},
        "legs": {
            "plain": {},
            "tp2": {"layout": {"tp": 2}},
            "tp3": {"layout": {"tp": 3}},
            "old": {"layout": {"tp": 8}},
        },
        "compare": [{"baseline": "plain", "candidate": "tp2"}, {"baseline": "plain", "candidate": "tp3"}],
        **more,
    }
    path = tmp_path / "parity.yml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return load(path)


SECONDS = Expected({"plain": 2.0, "tp2": 4.0, "tp3": 6.0, "old": 9.0}, "s", "from somewhere")


def test_text__legs_by_slot_and_time(tmp_path: Path) -> None:
    lines = as_text(planned(suite(tmp_path), "cpu", Slots(3), SECONDS)).splitlines()
    assert lines == [
        "planned: 3 legs of 10 steps on cpu, 3 slots for ranks",
        "durations: from somewhere",
        "",
        "leg    ranks  start   end  slots",
        "tp3        3    0.0   6.0  0 1 2",
        "tp2        2    6.0  10.0  0 1",
        "plain      1    6.0   8.0  2",
        "",
        "0 [tp3-------------------------------][tp2-------------------]",
        "1 [tp3-------------------------------][tp2-------------------]",
        "2 [tp3-------------------------------][plain-----]",
        "",
        "ends after 10.0 s; no schedule ends before 9.3 s",
        "all together 28 device-seconds",
        "shared: plain by 2 comparisons",
        "not run, for no comparison needs it: old",
    ]


def test_text__gpus_by_their_names(tmp_path: Path) -> None:
    text = as_text(planned(suite(tmp_path), "npu", Slots(1, ("4", "7", "9"), ASCEND), SECONDS))
    assert "3 legs of 10 steps on npu, 3 NPUs" in text
    assert "tp2        2    6.0  10.0  4 7" in text
    assert "\n9 [tp3" in text


def test_text__legs_on_the_cpu_of_a_machine_that_has_gpus(tmp_path: Path) -> None:
    there = Slots(3, ("4", "7"))
    assert as_text(planned(suite(tmp_path), "cpu", there, SECONDS)) == as_text(
        planned(suite(tmp_path), "cpu", Slots(3), SECONDS)
    )


def test_text__legs_that_run_the_same_are_told(tmp_path: Path) -> None:
    legs = {"a": {}, "b": {}, "tp2": {"layout": {"tp": 2}}, "tp3": {"layout": {"tp": 3}}}
    compare = [{"baseline": "a", "candidate": "tp2"}, {"baseline": "b", "candidate": "tp3"}]
    times = Expected(dict.fromkeys(legs, 1.0), "rank-steps", "")
    text = as_text(planned(suite(tmp_path, legs=legs, compare=compare), "cpu", Slots(8), times))
    assert "the same run twice: a and b; one leg can serve all comparisons" in text
    assert "shared" not in text
    assert "ends after 1 rank-steps" in text


def test_matrix__a_job_for_each_leg_that_is_needed_the_longest_first(tmp_path: Path) -> None:
    include = json.loads(as_matrix(suite(tmp_path), SECONDS))["include"]
    assert include == [{"leg": "tp3", "ranks": 3}, {"leg": "tp2", "ranks": 2}, {"leg": "plain", "ranks": 1}]


def test_matrix__more_jobs_than_github_takes_are_refused(tmp_path: Path) -> None:
    legs = {f"leg-{n}": {"layout": {"tp": n + 1}} for n in range(257)}
    compare = [{"baseline": "leg-0", "candidate": name} for name in list(legs)[1:]]
    times = Expected(dict.fromkeys(legs, 1.0), "s", "")
    with pytest.raises(UsageError, match="257 legs, and a matrix has at most 256 jobs"):
        as_matrix(suite(tmp_path, legs=legs, compare=compare), times)


def test_baselines_start_first_where_candidates_may_be_stopped(tmp_path: Path) -> None:
    def first(**more: str) -> str:
        one = suite(tmp_path, **more)
        return planned(one, "cpu", Slots(3), SECONDS).schedule.places[0].need.name

    assert (first(), first(stop="first-divergence")) == ("tp3", "plain")
    early = needs(suite(tmp_path, stop="first-divergence"), ["plain", "tp2"], "cpu", SECONDS)
    assert [need.early for need in early] == [True, False]


@pytest.mark.parametrize("make", [ROCM, ASCEND, XPU], ids=lambda make: str(make.make))
def test_auto_takes_whatever_accelerator_there_is(tmp_path: Path, make: Any) -> None:
    one = suite(tmp_path)
    assert choose_device(one, one.compared(), Slots(8, ("0", "1", "2"), make)) == (make.device, "")
    device, note = choose_device(one, one.compared(), Slots(8, ("0", "1"), make))
    assert (device, note) == ("cpu", f"2 {make.word}s are too few for a leg of 3 ranks, so all legs run on the CPU")


def test_a_make_that_is_not_there_or_that_the_embedded_trainer_lacks_is_refused(tmp_path: Path) -> None:
    one = suite(tmp_path, device="npu")
    with pytest.raises(
        DeviceError, match="device: npu, but plain, tp2, tp3 needs up to 3 NPUs and this machine offers 0"
    ):
        choose_device(one, one.compared(), Slots(8, ("0", "1", "2")))
    with pytest.raises(DeviceError, match="the embedded trainer of plain takes cpu or cuda"):
        choose_device(
            suite(tmp_path, device="npu", trainer={"embedded": "qwen3"}), ["plain"], Slots(8, ("0",), ASCEND)
        )
    automatic = suite(tmp_path, trainer={"embedded": "qwen3"})
    device, note = choose_device(automatic, ["plain"], Slots(8, ("0",), XPU))
    assert (device, note) == ("cpu", "the embedded trainer takes no XPU device, so all legs run on the CPU")


def test_plan__runs_nothing_and_says_what_would_run(tmp_path: Path) -> None:
    done = parity("plan", "embedded/tensor-parallel", "--slots", 4, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "uneven-tensor-parallel: 4 legs of 40 steps on cpu, 4 slots for ranks" in done.stdout
    assert "estimated as ranks × steps" in done.stdout
    assert list(tmp_path.iterdir()) == []
    assert "needs 4 ranks" in parity("plan", "embedded/tensor-parallel", "--slots", 3, cwd=tmp_path).stderr
    done = parity("plan", "embedded/tensor-parallel", "--matrix", "--slots", 1, cwd=tmp_path)
    assert [one["leg"] for one in json.loads(done.stdout)["include"]] == ["tp4", "tp3", "tp1", "tp1.perturbed"]


@pytest.mark.parametrize("named", ["0-3", "all", "-1,0", "0,00", "GPU-5a,../b", "0\n1", "٣"])
def test_devices__what_is_no_single_device_is_refused_in_one_line(tmp_path: Path, named: str) -> None:
    done = parity("plan", "embedded/tensor-parallel", "--devices", named, cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "is no device's index or uuid; name each, such as 0,1,3" in done.stderr


@pytest.mark.slow
def test_run__leaves_out_what_no_comparison_needs_and_plans_by_what_it_measured(tmp_path: Path) -> None:
    record = 'printf \'{"step": 0, "loss": 1.5}\\n\' > {out}/m.jsonl; sleep 0.{tp}'
    legs = {"plain": {}, "tp2": {"layout": {"tp": 2}}, "old": {"layout": {"tp": 8}}}
    suite(
        tmp_path,
        steps=1,
        trainer={"command": record},
        source="{out}/m.jsonl",
        legs=legs,
        compare=[{"baseline": "plain", "candidate": "tp2"}],
    )
    done = parity("run", "--slots", 2, cwd=tmp_path)
    assert "not run, for no comparison needs it: old" in done.stdout
    legs_ = json.loads((tmp_path / "parity-out" / "result.json").read_text())["legs"]
    assert {one["name"]: one["status"] for one in legs_} == {
        "plain": "finished",
        "tp2": "finished",
        "old": "not run",
    }
    planned_ = parity("plan", "--slots", 2, cwd=tmp_path).stdout
    assert "durations: from parity-out\n" in planned_
    assert re.search(r"ends after [\d.]+ s", planned_)
    done = parity("run", "--only", "old", "--slots", 8, cwd=tmp_path)
    assert "no comparison needs it" not in done.stdout
    assert (tmp_path / "parity-out" / "legs" / "old" / "leg.json").exists()
