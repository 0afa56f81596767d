"""What a run directory is judged to be, by how its legs ended and what files they left."""

import json
from pathlib import Path
from typing import Any

import pytest

from parity.judge import judge_run
from parity.result import LegResult, Result
from parity.rundir import RunDirectory, Snapshot
from parity.suite import Suite, digest

RUN = "20260101T000000Z-00000000"

SUITE: dict[str, Any] = {
    "name": "drawn",
    "steps": 6,
    "trainer": {"command": "train {nproc}"},
    "legs": {"a": {}, "b": {"layout": {"tp": 2}}},
    "compare": [{"baseline": "a", "candidate": "b"}],
    "layout": "unproven",
}


def run_directory(tmp_path: Path, **changes: object) -> RunDirectory:
    (tmp_path / "run").mkdir()
    directory = RunDirectory(tmp_path / "run")
    suite = Suite.model_validate({**SUITE, **changes})
    snapshot = Snapshot(run_id=RUN, reproduce="parity run x", device="cpu", suite=suite)
    directory.write("suite.json", snapshot.model_dump_json())
    return directory


def leave(
    directory: RunDirectory,
    name: str,
    status: Any = "finished",
    steps: int = 6,
    *,
    run_id: str = RUN,
    wrote: tuple[str, str] | None = None,
    ended: bool = True,
    stale: bool = False,
    factor: float = 1.0,
    perturbed: list[int | None] | None = None,
    suite: Suite | None = None,
    **more: Any,
) -> None:
    """A leg's folder.

    Args:
        wrote: the run and leg that its record names.
        perturbed: what each rank says of itself; without it there is a curve, and nothing that counts as a record.
        suite: as it was read, where many legs are left.
    """
    suite = suite or directory.read_snapshot().suite
    directory.write_leg(
        LegResult(
            name=name,
            run_id=run_id,
            digest="stale" if stale else digest(suite, name, "cpu"),
            status=status,
            source=f"legs/{name}/rank-0.jsonl",
            **more,
        )
    )
    owner = wrote or (run_id, name)
    for rank, moved in enumerate(perturbed or [None]):
        start: dict[str, Any] = {"kind": "start", "format": "parity.record/1", "run_id": owner[0], "leg": owner[1]}
        start |= {"rank": rank, **({} if perturbed is None else {"world_size": len(perturbed)})}
        rows = [{**start, "environment": {} if moved is None else {"perturbed": moved}}]
        rows += [
            {"kind": "step", "step": s, "loss": (6 - s / 7) * factor, "grad_norm": 2 + s / 11} for s in range(steps)
        ]
        rows += [{"kind": "end", "steps": steps}] if ended else []
        directory.write(f"legs/{name}/rank-{rank}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def judged(directory: RunDirectory) -> Result:
    return judge_run(directory)


@pytest.mark.parametrize(
    ("leg", "verdict", "said"),
    [
        ({}, "pass", ""),
        ({"factor": 1.1}, "fail", "before any update"),
        ({"steps": 3}, "inconclusive", "lacks loss at 3 of 6 steps"),
        (
            {"status": "failed", "steps": 3, "ended": False, "error": "ValueError: x"},
            "error",
            "b failed: ValueError: x",
        ),
        ({"status": "failed", "error": "killed by signal 6"}, "pass", "wrote its whole curve and then failed"),
        ({"status": "timed out", "error": "no end"}, "pass", "wrote its whole curve and then timed out"),
        ({"status": "failed", "ended": False}, "error", "b failed"),
        ({"status": "interrupted"}, "error", "b interrupted"),
        ({"status": "not started"}, "error", "b not started"),
        ({"status": "no curve", "error": "wrote none"}, "error", "b no curve: wrote none"),
        ({"steps": 0, "ended": False}, "error", "holds no step"),
        ({"stale": True}, "inconclusive", "were others when it ran"),
        ({"wrote": (RUN, "a")}, "error", f"was written by leg a of run {RUN}"),
        ({"wrote": ("another", "b")}, "error", "was written by leg b of run another"),
        ({"run_id": "earlier"}, "pass", "b is from the earlier run earlier"),
    ],
)
def test_how_a_leg_ended_and_what_it_left(tmp_path: Path, leg: dict[str, Any], verdict: str, said: str) -> None:
    directory = run_directory(tmp_path)
    leave(directory, "a")
    leave(directory, "b", **leg)
    result = judged(directory)
    assert result.verdict == verdict, result.summary
    assert said in " ".join([result.summary, *result.notes])


@pytest.mark.parametrize("file", ["legs/a/rank-0.jsonl", "legs/b/../a/rank-0.jsonl", "/legs/b/x", "suite.json"])
def test_a_leg_is_judged_by_no_other_leg_s_files(tmp_path: Path, file: str) -> None:
    directory = run_directory(tmp_path)
    leave(directory, "a")
    for key in ("source", "logs"):
        leave(directory, "b")
        at = directory.leg("b") / "leg.json"
        at.write_text(json.dumps(json.loads(at.read_text()) | {key: file if key == "source" else [file]}))
        result = judged(directory)
        assert (result.verdict, "which is not below the leg's own folder" in result.summary) == ("error", True)


def test_the_peak_memory_that_a_leg_recorded_is_in_its_result(tmp_path: Path) -> None:
    directory = run_directory(tmp_path)
    for name in ("a", "b"):
        leave(directory, name, perturbed=[None], peak_memory=1)  # whatever leg.json says
    record = directory.leg("b") / "rank-0.jsonl"
    record.write_text(record.read_text().replace('"end",', '"end", "peak_memory": 3000,'))
    assert [leg.peak_memory for leg in judged(directory).legs] == [None, 3000]


def test_a_leg_that_was_never_run_is_inconclusive_and_named(tmp_path: Path) -> None:
    directory = run_directory(tmp_path)
    leave(directory, "a")
    result = judged(directory)
    assert (result.verdict, result.summary) == ("inconclusive", "b not run.")


def test_a_broken_leg_that_no_comparison_names_is_an_error_all_the_same(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, legs={**SUITE["legs"], "c": {}})
    for name in ("a", "b"):
        leave(directory, name)
    leave(directory, "c", "failed", 2, ended=False, error="ValueError: c")
    result = judged(directory)
    assert (result.verdict, result.summary) == ("error", "c failed: ValueError: c")


FLOOR: dict[str, Any] = {"control": ["c"], "repeat": ["r"], "perturbed": ["p"], "reference": "x"}
FLOOR_LEGS: dict[str, Any] = {
    **SUITE["legs"],
    "c": {"layout": {"tp": 3}},
    "r": {},
    "p": {"env": {"PARITY_PERTURB": "1"}},
    "x": {},
}


# Neither moved weights nor float64 leave a run as it is.
ROUNDING = {"p": 1 + 1e-7, "x": 1 - 1e-7}


def with_floor(tmp_path: Path) -> RunDirectory:
    compare = [{"baseline": "a", "candidate": "b", **FLOOR}]
    directory = run_directory(tmp_path, legs=FLOOR_LEGS, compare=compare)
    for name in FLOOR_LEGS:
        leave(directory, name, perturbed=[1] if name == "p" else None, factor=ROUNDING.get(name, 1.0))
    return directory


def test_legs_that_measure_noise_are_judged_by_their_roles(tmp_path: Path) -> None:
    result = judged(with_floor(tmp_path))
    assert result.verdict == "pass", result.summary
    (one,) = result.comparisons
    assert (one.controls, one.repeats, one.perturbed, one.reference) == (["c"], ["r"], ["p"], "x")


@pytest.mark.parametrize("name", ["c", "r", "p", "x"])
@pytest.mark.parametrize(
    ("leg", "verdict", "said"),
    [
        (
            {"status": "failed", "steps": 2, "ended": False, "error": "ValueError: x"},
            "error",
            "failed: ValueError: x",
        ),
        ({"steps": 0}, "error", "no curve: "),
        ({"stale": True}, "inconclusive", "were others when it ran"),
    ],
)
def test_a_noise_leg_that_broke_or_is_absent_is_no_pass_and_the_rest_is_judged(
    tmp_path: Path, name: str, leg: dict[str, Any], verdict: str, said: str
) -> None:
    directory = with_floor(tmp_path)
    leave(directory, name, perturbed=[1] if name == "p" else None, **leg)
    result = judged(directory)
    assert result.verdict == verdict, result.summary
    assert said in result.summary
    assert "Of what there is: " in result.summary
    (one,) = result.comparisons
    assert {outcome.check for outcome in one.outcomes if outcome.status == "pass"} >= {"forward", "loss"}


@pytest.mark.parametrize(
    ("perturbed", "said"),
    [
        (None, "p was not perturbed: its recorder is too old or start() got no model."),
        ([None], "p was not perturbed: its recorder is too old or start() got no model."),
        ([1, None], "p was not perturbed on all ranks, but on 1 of 2."),
    ],
)
def test_a_perturbed_leg_that_was_not_moved_measures_nothing(
    tmp_path: Path, perturbed: list[int | None] | None, said: str
) -> None:
    directory = with_floor(tmp_path)
    leave(directory, "p", perturbed=perturbed)
    result = judged(directory)
    assert result.verdict == "error"
    assert result.summary.startswith(said), result.summary
    named = {leg.name: leg for leg in result.legs}
    assert named["p"].error == said.removeprefix("p ").removesuffix(".")


def test_a_rank_of_a_perturbed_leg_that_left_no_record_may_not_have_been_moved(tmp_path: Path) -> None:
    directory = with_floor(tmp_path)
    leave(directory, "p", perturbed=[1, 1])
    assert "perturbed" not in judged(directory).summary
    (directory.leg("p") / "rank-1.jsonl").unlink()
    assert "p was not perturbed on all ranks, but on 1 of 2" in judged(directory).summary


@pytest.mark.parametrize("name", ["a", "b", "c", "r", "x"])
def test_any_other_leg_that_was_moved_is_an_error(tmp_path: Path, name: str) -> None:
    directory = with_floor(tmp_path)
    leave(directory, name, perturbed=[1])
    result = judged(directory)
    assert result.verdict == "error"
    assert f"{name} was perturbed, which only a leg named `perturbed:` may be" in result.summary


def test_a_perturbed_leg_that_failed_is_told_with_its_own_error(tmp_path: Path) -> None:
    directory = with_floor(tmp_path)
    leave(directory, "p", "failed", 2, ended=False, error="UsageError: start: no model")
    assert "p failed: UsageError: start: no model" in judged(directory).summary


def test_of_two_comparisons_the_worse_decides(tmp_path: Path) -> None:
    compare = [{"baseline": "a", "candidate": "b"}, {"baseline": "a", "candidate": "c"}]
    directory = run_directory(tmp_path, legs={**SUITE["legs"], "c": {"layout": {"tp": 3}}}, compare=compare)
    for name in ("a", "b"):
        leave(directory, name)
    leave(directory, "c", factor=1.01)
    result = judged(directory)
    assert [one.verdict for one in result.comparisons] == ["pass", "fail"]
    assert result.verdict == "fail"
    assert result.summary.startswith("c against a, forward: ")


def test_a_snapshot_written_and_read_is_the_same_suite(tmp_path: Path) -> None:
    trainer = {"embedded": "qwen3", "layers": 3}
    legs = {"a": {}, "b": {"layout": {"tp": 2}, "trainer": {"sequence_parallel": True}}}
    directory = run_directory(tmp_path, trainer=trainer, legs=legs)
    again = directory.read_snapshot()
    assert again.format == "parity.suite/1"
    original = Suite.model_validate({**SUITE, "trainer": trainer, "legs": legs})
    assert [digest(again.suite, name, "cpu") for name in legs] == [digest(original, name, "cpu") for name in legs]


def test_a_log_of_metrics_stands_beside_what_ranks_recorded(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, source={"file": "{out}/log.jsonl"})
    environment = {"dtype": "bf16", "device": "cpu"}
    for name in ("a", "b"):
        leave(directory, name)
        leg = directory.read_leg(name)
        assert leg is not None
        directory.write_leg(leg.model_copy(update={"source": f"legs/{name}/log.jsonl"}))
        rows = [{"step": step, "loss": 6 - step / 7, "grad_norm": 2 + step / 11} for step in range(6)]
        directory.write(f"legs/{name}/log.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        start = {"kind": "start", "format": "parity.record/1", "run_id": RUN, "leg": name, "rank": 0, "world_size": 1}
        recorded = [
            {**start, "environment": environment},
            {"kind": "watched", "unseen": ["weights"]},
            *({"kind": "step", "step": step, "lr": 0.1} for step in range(6)),
            {"kind": "end", "steps": 6},
        ]
        directory.write(f"legs/{name}/rank-0.jsonl", "".join(json.dumps(row) + "\n" for row in recorded))
    result = judged(directory)
    assert result.comparisons[0].profile == "bf16"
    assert [leg.notes[-1] for leg in result.legs] == ["not seen: weights"] * 2
    assert result.legs[0].environment["dtype"] == "bf16"


def tampered(folder: Path, how: str) -> None:
    """A leg that has its own idea of what its folder is for."""
    file = folder / "leg.json"
    file.unlink()
    match how:
        case "garbage":
            file.write_bytes(b"\xff{]")
        case "folder":
            file.mkdir()
            (file / "x").touch()
        case "link":
            file.symlink_to("/etc/passwd")
        case "other":
            file.write_text('{"name": "a", "status": "finished"}')


@pytest.mark.parametrize("how", ["garbage", "folder", "link", "other"])
def test_what_a_leg_does_to_its_own_folder_harms_that_leg_alone(tmp_path: Path, how: str) -> None:
    directory = run_directory(
        tmp_path,
        legs={"a": {}, "b": {"layout": {"tp": 2}}, "c": {"layout": {"dp": 2}}},
        compare=[{"baseline": "a", "candidate": "b"}, {"baseline": "a", "candidate": "c"}],
    )
    for name in ("a", "b", "c"):
        leave(directory, name)
    tampered(directory.leg("b"), how)
    result = judged(directory)
    assert [one.verdict for one in result.comparisons] == ["error", "pass"]
    assert result.verdict == "error"
    assert "b not run: " in result.summary
