"""Run directories of several jobs, put together and judged as one run."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from parity.errors import UsageError
from parity.judge import judge_run
from parity.merging import merge
from parity.result import LegResult
from parity.rundir import RunDirectory, Snapshot
from parity.suite import Suite
from tests.test_cli import parity

SUITE: dict[str, Any] = {
    "name": "spread",
    "steps": 6,
    "trainer": {"command": "train {nproc} {leg}"},
    "legs": {"a": {}, "b": {"layout": {"tp": 2}}, "c": {"layout": {"tp": 4}}},
    "compare": [{"baseline": "a", "candidate": "b", "control": "c"}],
}


def part(tmp_path: Path, *legs: str, device: Any = "cpu", **more: Any) -> Path:
    """The run directory of a job that ran these legs."""
    path = tmp_path / "-".join(legs)
    directory, _ = RunDirectory.create(path, keep=False, legs=[])
    reproduce = "parity run parity.yml --steps 6"
    snapshot = Snapshot(
        run_id=f"run-{legs[0]}", reproduce=reproduce, device=device, suite=Suite.model_validate({**SUITE, **more})
    )
    directory.write("suite.json", snapshot.model_dump_json())
    for leg in legs:
        directory.write_leg(LegResult(name=leg, run_id=f"run-{legs[0]}", status="finished"))
        directory.write(f"legs/{leg}/rank-0.log", f"of {leg}")
    return path


def test_the_legs_of_all_are_in_one_and_the_command_is_that_of_all(tmp_path: Path) -> None:
    directory, moved = merge([part(tmp_path, "a"), part(tmp_path, "b", "c")], tmp_path / "out")
    assert moved is None
    assert [leg.name for name in "abc" if (leg := directory.read_leg(name))] == ["a", "b", "c"]
    assert (directory.leg("c") / "rank-0.log").read_text() == "of c"
    snapshot = directory.read_snapshot()
    assert snapshot.merged == ("run-a", "run-b")
    assert snapshot.reproduce == "parity run parity.yml --steps 6"
    assert (tmp_path / "a" / "legs" / "a" / "leg.json").exists()


def test_what_was_put_together_can_be_put_together_again(tmp_path: Path) -> None:
    merge([part(tmp_path, "a"), part(tmp_path, "b")], tmp_path / "some")
    directory, _ = merge([tmp_path / "some", part(tmp_path, "c")], tmp_path / "all")
    assert directory.read_snapshot().merged[:2] == ("run-a", "run-b")
    assert directory.read_snapshot().merged[-1] == "run-c"


def test_links_are_left_where_they_are(tmp_path: Path) -> None:
    one = part(tmp_path, "a")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("mine")
    (one / "legs" / "a" / "key.log").symlink_to(secret / "key")
    (one / "legs" / "a" / "torchrun").symlink_to(secret)
    os.mkfifo(one / "legs" / "a" / "pipe")
    directory, _ = merge([one, part(tmp_path, "b")], tmp_path / "out")
    assert sorted(path.name for path in directory.leg("a").iterdir()) == ["leg.json", "rank-0.log"]


def test_a_leg_that_is_none_any_more_is_put_beside_the_others_and_judged_so(tmp_path: Path) -> None:
    one = part(tmp_path, "a")
    (one / "legs" / "a" / "leg.json").write_text("{}")
    directory, _ = merge([one, part(tmp_path, "b")], tmp_path / "out")
    found = {leg.name: leg for leg in judge_run(directory).legs}
    assert (found["a"].status, "leg.json" in (found["a"].error or "")) == ("not run", True)
    assert found["b"].run_id is not None


@pytest.mark.parametrize(
    ("more", "legs", "said"),
    [
        ({"steps": 7}, ["b"], "b: was run under another suite than "),
        ({"device": "cuda"}, ["b"], "b: ran on cuda, and "),
        ({}, ["b", "a"], "b-a: has the leg a, and so has "),
    ],
)
def test_what_is_not_one_run_is_refused_before_anything_is_written(
    tmp_path: Path, more: dict[str, Any], legs: list[str], said: str
) -> None:
    first, second = part(tmp_path, "a"), part(tmp_path, *legs, **more)
    with pytest.raises(UsageError, match=said):
        merge([first, second], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_none_of_the_runs_is_moved_aside_for_the_new_one(tmp_path: Path) -> None:
    first, second = part(tmp_path, "a"), part(tmp_path, "b")
    (tmp_path / "same").symlink_to(first)
    for out in (first, tmp_path / "same"):
        with pytest.raises(UsageError, match="is one of the runs that are put together; give another --out"):
            merge([first, second], out)
    assert (first / "legs" / "a" / "leg.json").exists()


@pytest.mark.slow
def test_legs_run_one_by_one_come_to_the_verdict_of_one_run(tmp_path: Path) -> None:
    record = (
        "import json,math,sys; f=open(sys.argv[1],'w');"
        "[print(json.dumps({'step':s,'loss':6-s/13,'grad_norm':2+math.sin(s)/7}),file=f) for s in range(20)]"
    )
    (tmp_path / "train.py").write_text(record)
    content = {
        **SUITE,
        "steps": 20,
        "trainer": {"command": "python3 train.py {out}/m.jsonl {tp}"},
        "source": "{out}/m.jsonl",
        "layout": "unproven",
    }
    (tmp_path / "parity.yml").write_text(yaml.safe_dump(content))
    for leg in ("a", "b", "c"):
        done = parity("run", "--only", leg, "--out", f"job-{leg}", cwd=tmp_path)
        assert done.returncode == 3, done.stdout + done.stderr  # alone, there is nothing to compare it with
    done = parity("compare", "job-a", "job-b", "job-c", "--out", "all", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "all" / "result.json").read_text())
    assert (result["verdict"], result["notes"], result["reproduce"]) == ("pass", [], "parity run parity.yml")
    done = parity("compare", "job-a", "job-b", "--out", "some", cwd=tmp_path)
    assert (done.returncode, "c not run" in done.stdout) == (3, True)
    done = parity("compare", "job-a", "job-b", "--k", "3", cwd=tmp_path)
    assert (done.returncode, "--k: only for logs" in done.stderr) == (2, True)
