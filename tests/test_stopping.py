"""Candidates that are ended because their first step is wrong already."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from parity.launch import Event, LegEnd, LegFinished, LegProgress
from parity.result import LegResult
from parity.rundir import RunDirectory, Snapshot
from parity.stopping import Stopping
from parity.suite import Suite
from tests.test_cli import parity
from tests.test_judge import leave, run_directory

RUN = "run"
# With all digits, which tell how finely they are written. fp32-cpu allows 1e-6 at the first step.
RIGHT, LITTLE, WRONG = 5.012345678901234, 5.012345678901234 * (1 + 2e-6), 5.123456789012345

SUITE: dict[str, Any] = {
    "name": "drawn",
    "steps": 6,
    "stop": "first-divergence",
    "profile": "fp32-cpu",
    "trainer": {"command": "train {nproc}"},
    "source": "{out}/m.jsonl",
    "legs": {"a": {}, "b": {"layout": {"tp": 2}}, "c": {"layout": {"tp": 4}}},
    "compare": [{"baseline": "a", "candidate": "b"}],
}


def stopping(tmp_path: Path, losses: dict[str, float], earlier: tuple[str, ...] = (), **changes: Any) -> Stopping:
    """A run of which each leg has written its first loss; `earlier` ones did not run, but were there before."""
    suite = Suite.model_validate({**SUITE, **changes})
    directory, _ = RunDirectory.create(tmp_path / "out", keep=False, legs=[])
    for name, loss in losses.items():
        directory.write(f"legs/{name}/m.jsonl", json.dumps({"step": 0, "loss": loss}) + "\n")
    snapshot = Snapshot(run_id=RUN, reproduce="", device="cpu", suite=suite)
    sources = {name: f"legs/{name}/m.jsonl" for name in losses}
    there = {
        name: LegResult(name=name, run_id="another", status="finished", source=sources.pop(name)) for name in earlier
    }
    return Stopping(directory, snapshot, sources, there)


def begun(name: str, loss: float | None = 1.0) -> Event:
    return LegProgress(name, 0, loss)


def ended(watch: Stopping, *events: Event) -> list[str]:
    for event in events:
        watch.take(event)
    return list(watch.ending)


def test_a_candidate_whose_first_loss_is_wrong_is_ended_as_soon_as_its_baseline_has_one(tmp_path: Path) -> None:
    watch = stopping(tmp_path, {"a": RIGHT, "b": WRONG})
    assert ended(watch, begun("b")) == []
    assert ended(watch, begun("a", None)) == []
    assert ended(watch, begun("a")) == ["b"]
    assert watch.ending["b"].startswith("the loss already differs by 0.0222 at step 0, before any update")


def test_a_baseline_that_has_ended_will_do_and_one_that_failed_will_not(tmp_path: Path) -> None:
    watch = stopping(tmp_path, {"a": RIGHT, "b": WRONG})
    assert ended(watch, begun("b"), LegFinished(LegEnd("a", "failed"))) == []
    assert ended(watch, LegFinished(LegEnd("a", "finished"))) == ["b"]


@pytest.mark.parametrize(
    ("losses", "changes", "expected"),
    [
        ({"a": RIGHT, "b": RIGHT}, {}, []),
        ({"a": RIGHT, "b": LITTLE}, {}, ["b"]),
        ({"a": RIGHT, "b": float("nan")}, {}, []),
        ({"a": RIGHT, "b": WRONG}, {"stop": None}, []),
        # Nothing says in which dtype they compute, and bfloat16 would be allowed more.
        ({"a": RIGHT, "b": WRONG}, {"profile": "auto"}, []),
        ({"a": RIGHT, "b": WRONG}, {"bounds": {"loss": {"first_rtol": 0.1}}}, []),
        # b's metrics may be an earlier run's, for they are elsewhere.
        ({"a": RIGHT}, {}, []),
    ],
)
def test_a_candidate_goes_on_unless_it_is_known_to_fail(
    tmp_path: Path, losses: dict[str, float], changes: dict[str, Any], expected: list[str]
) -> None:
    assert ended(stopping(tmp_path, losses, **changes), begun("a"), begun("b")) == expected


@pytest.mark.parametrize(("loss", "expected"), [(LITTLE, []), (RIGHT * (1 + 5e-6), ["b"])])
def test_what_a_perturbed_leg_could_still_excuse_goes_on(tmp_path: Path, loss: float, expected: list[str]) -> None:
    legs = {"a": {}, "b": {"layout": {"tp": 2}}, "p": {"env": {"PARITY_PERTURB": "1"}}}
    compare = [{"baseline": "a", "candidate": "b", "perturbed": "p"}]
    watch = stopping(tmp_path, {"a": RIGHT, "b": loss}, legs=legs, compare=compare)
    assert ended(watch, begun("a"), begun("b")) == expected


def test_a_leg_that_has_another_role_goes_on(tmp_path: Path) -> None:
    compare = [{"baseline": "a", "candidate": "b"}, {"baseline": "a", "candidate": "c", "control": "b"}]
    watch = stopping(tmp_path, {"a": RIGHT, "b": WRONG, "c": WRONG}, compare=compare)
    assert ended(watch, *map(begun, "abc")) == ["c"]


def test_a_candidate_of_two_comparisons_is_ended_when_it_is_wrong_in_both(tmp_path: Path) -> None:
    compare = [{"baseline": "a", "candidate": "c"}, {"baseline": "b", "candidate": "c"}]
    watch = stopping(tmp_path / "1", {"a": RIGHT, "b": RIGHT, "c": WRONG}, compare=compare)
    assert ended(watch, begun("a"), begun("c")) == []
    assert ended(watch, begun("b")) == ["c"]
    watch = stopping(tmp_path / "2", {"a": RIGHT, "b": WRONG, "c": WRONG}, compare=compare)
    assert ended(watch, *map(begun, "abc")) == []


def test_a_leg_that_says_it_was_stopped_and_is_not_wrong_never_passes(tmp_path: Path) -> None:
    from parity.judge import judge_run

    directory = run_directory(tmp_path)
    leave(directory, "a")
    leave(directory, "b", "stopped", steps=5, ended=False, seconds=2.0)
    result = judge_run(directory)
    assert result.verdict == "inconclusive"
    assert "The candidate was ended early, and what there is of it is not wrong." in result.summary


TRAINER = """\
import json, sys, time
out, tp = sys.argv[1], int(sys.argv[2])
with open(out, "w") as log:
    for step in range(6):
        loss = 5.012345678901234 - step / 9 + (0.1 if tp == 2 else 0)
        log.write(json.dumps({"step": step, "loss": loss, "grad_norm": 1 + step / 7}) + "\\n")
        log.flush()
        time.sleep(120 if tp == 2 and step == 1 else 0.2)
"""


@pytest.mark.slow
def test_a_run_ends_a_wrong_candidate_and_says_what_that_saved(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    content = {
        **SUITE,
        "trainer": {"command": f"{sys.executable} train.py {{out}}/m.jsonl {{tp}}"},
        "layout": "unproven",
    }
    (tmp_path / "parity.yml").write_text(yaml.safe_dump(content))
    done = parity("run", cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "b: stopped" in done.stdout
    assert "b was ended early, as it was wrong at its first step: about " in done.stdout
    out = tmp_path / "parity-out"
    result = json.loads((out / "result.json").read_text())
    assert result["comparisons"][0]["deciding"][0] == "forward"
    a, b, _ = result["legs"]
    assert (a["status"], b["status"], b["exit_code"]) == ("finished", "stopped", None)
    assert b["saved_device_seconds"] == pytest.approx(2 * max(0, a["seconds"] - b["seconds"]), abs=0.01)
    for report in ("report.md", "report.html"):
        assert "device-seconds saved" in (out / report).read_text()
    assert 'errors="0"' in (out / "junit.xml").read_text()
    again = parity("compare", "parity-out", cwd=tmp_path)
    assert again.returncode == 1


def test_a_baseline_that_was_there_before_the_run_is_one_to_be_held_against(tmp_path: Path) -> None:
    watch = stopping(tmp_path, {"a": RIGHT, "b": WRONG}, earlier=("a",))
    assert ended(watch, begun("b")) == ["b"]
