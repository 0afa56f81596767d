"""Whole runs: real ranks, real files, real signals."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
import yaml

from parity.checks.words import number
from parity.schemas import FOLDER
from tests.test_cli import parity

pytestmark = pytest.mark.slow

# A trainer of somebody else: no recorder, writes its own metrics; what it does wrong is an argument.
TRAINER = """\
import json, math, os, sys, time
out, steps, tp = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
mode = sys.argv[4] if len(sys.argv) > 4 else "good"
print(f"tensor parallel over {tp} ranks" if tp > 1 else "no parallelism", flush=True)
if mode == "nothing":
    sys.exit(0)
if mode == "crash":
    raise ValueError("heads 16 do not divide by 3")
with open(out, "w") as log:
    for step in range(steps):
        if mode == "die" and step == 5:
            os.abort()
        loss = 6 - step / 13 + (1e-3 if mode == "wrong" and step > 3 else 0)
        log.write(json.dumps({"step": step, "loss": loss, "grad_norm": 2 + math.sin(step) / 7}) + "\\n")
        log.flush()
        if mode == "slow":
            time.sleep(60)
if mode == "teardown":
    os.abort()
"""


def suite(tmp_path: Path, legs: dict[str, Any], control: str | None = None, **more: object) -> Path:
    (tmp_path / "trainer.py").write_text(TRAINER)
    names = list(legs)
    compare = {"baseline": names[0], "candidate": names[1], **({"control": control} if control else {})}
    content = {
        "name": "somebody-s",
        "steps": 20,
        "trainer": {"command": f"{sys.executable} trainer.py {{out}}/metrics.jsonl {{steps}} {{tp}}"},
        "source": "{out}/metrics.jsonl",
        "legs": legs,
        "compare": [compare],
        "layout": "unproven",
        **more,
    }
    path = tmp_path / "parity.yml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def command(mode: str, out: str = "{out}/metrics.jsonl") -> dict[str, str]:
    return {"command": f"{sys.executable} trainer.py {out} {{steps}} {{tp}} {mode}"}


def result_of(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    jsonschema.validate(result, json.loads((FOLDER / "result.schema.json").read_text()))
    return result


def outcome_of(folder: Path, check: str, comparison: int = 0) -> dict[str, Any]:
    outcomes: list[dict[str, Any]] = result_of(folder)["comparisons"][comparison]["outcomes"]
    return next(one for one in outcomes if one["check"] == check)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the embedded suite, for several tests to look at."""
    folder = tmp_path_factory.mktemp("embedded")
    done = parity("run", "embedded/tensor-parallel", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "parity: pass · uneven-tensor-parallel" in done.stdout
    assert "worst step" in done.stdout
    return folder / "parity-out"


def test_the_embedded_suite_leaves_the_run_directory_of_the_design(embedded: Path) -> None:
    found = {str(path.relative_to(embedded)) for path in embedded.rglob("*") if path.is_file()}
    expected = {"result.json", "report.md", "report.html", "junit.xml", "curves.csv", "suite.json"}
    for leg, ranks in (("tp1", 1), ("tp3", 3), ("tp4", 4), ("tp1.perturbed", 1)):
        expected |= {f"legs/{leg}/leg.json"}
        expected |= {f"legs/{leg}/rank-{rank}.{kind}" for rank in range(ranks) for kind in ("log", "jsonl")}
    assert found == expected


def test_the_embedded_suite_passes_every_check_on_every_metric(embedded: Path) -> None:
    comparison = result_of(embedded)["comparisons"][0]
    statuses = {one["check"]: one["status"] for one in comparison["outcomes"]}
    assert statuses.pop("reference") == "not run"  # the suite has none
    assert set(statuses.values()) == {"pass"}
    curves = {"complete", "finite", "trained", "forward", "loss", "grad_norm", "drift", "control"}
    records = {"initial_state", "same_data", "layout", "norm_consistent", "gradients", "update", "replicas"}
    assert statuses.keys() == curves | records
    assert comparison["profile"] == "fp32-cpu"
    assert comparison["profile_reason"] == "from dtype fp32 on CPU"
    for metric in comparison["metrics"]:
        assert metric["worst_step"] in [row["step"] for row in metric["window"]]
        assert metric["worst_step"] in [row["step"] for row in metric["sample"]]


def test_the_report_has_its_parts_in_order(embedded: Path) -> None:
    text = (embedded / "report.md").read_text()
    parts = ["## ✅ parity: pass", "Reproduce:", "Worst steps", "Checks: ", "Whole run, sampled", "Legs: "]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "parity run embedded/tensor-parallel" in text


def records_of(folder: Path, leg: str, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    text = (folder / "legs" / leg / f"rank-{rank}.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


def losses(folder: Path, leg: str) -> list[float]:
    return [line["loss"] for line in records_of(folder, leg, "step")]


def hashes(folder: Path, leg: str) -> list[str]:
    (model,) = records_of(folder, leg, "model")
    return [part["hash"] for part in model["parameters"]]


def test_the_perturbed_leg_of_the_embedded_suite_is_the_baseline_with_its_weights_moved(embedded: Path) -> None:
    comparison = result_of(embedded)["comparisons"][0]
    assert (comparison["controls"], comparison["perturbed"]) == (["tp4"], ["tp1.perturbed"])
    plain, moved = (records_of(embedded, leg, "start")[0]["environment"] for leg in ("tp1", "tp1.perturbed"))
    assert moved == {**plain, "perturbed": 1}
    pairs = list(zip(hashes(embedded, "tp1"), hashes(embedded, "tp1.perturbed"), strict=True))
    assert len(pairs) == 25
    assert all(a != b for a, b in pairs)
    gaps = [abs(a / b - 1) for a, b in zip(losses(embedded, "tp1"), losses(embedded, "tp1.perturbed"), strict=True)]
    assert 0 < max(gaps) < 1e-4
    # A snapshot is read as it was written: nothing is made twice.
    assert list(json.loads((embedded / "suite.json").read_text())["suite"]["legs"]) == [
        "tp1", "tp3", "tp4", "tp1.perturbed",
    ]  # fmt: skip


def test_every_kind_of_floor_leg_runs_and_one_can_be_run_again(tmp_path: Path) -> None:
    content = {
        "name": "floors",
        "steps": 4,
        "trainer": {"embedded": "qwen3"},
        "legs": {"tp1": {}, "tp2": {"layout": {"tp": 2}}},
        "floor": {"repeat": 1, "perturbed": 2, "reference": 1},
        "compare": [{"baseline": "tp1", "candidate": "tp2"}],
    }
    (tmp_path / "parity.yml").write_text(yaml.safe_dump(content, sort_keys=False))
    made = ["tp1.repeat", "tp1.perturbed", "tp1.perturbed-2", "tp1.reference"]
    said = parity("validate", cwd=tmp_path).stdout
    assert "6 legs" in said
    assert all(f"\n  {name}: one rank, 1 rank\n" in said for name in made)
    done = parity("run", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    out = tmp_path / "out"
    (comparison,) = result_of(out)["comparisons"]
    assert comparison["repeats"] == made[:1]
    assert comparison["perturbed"] == made[1:3]
    assert comparison["reference"] == made[3]
    assert losses(out, "tp1.repeat") == losses(out, "tp1")
    assert len({*hashes(out, "tp1"), *hashes(out, "tp1.perturbed"), *hashes(out, "tp1.perturbed-2")}) == 75
    assert losses(out, "tp1.perturbed") != losses(out, "tp1.perturbed-2")
    environment = records_of(out, "tp1.reference", "start")[0]["environment"]
    assert environment["dtype"] == "fp64"
    assert all(abs(a / b - 1) < 1e-5 for a, b in zip(losses(out, "tp1.reference"), losses(out, "tp1"), strict=True))
    before = losses(out, "tp1.perturbed-2")
    done = parity("run", "--only", "tp1.perturbed-2", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tp1.perturbed-2: finished" in done.stdout
    assert "tp1: finished" not in done.stdout
    assert losses(out, "tp1.perturbed-2") == before
    done = parity("run", "--only", "tp1.perturbed-3", "--out", "out", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


RECORDED = """\
import sys
import torch
from parity.record import Recorder

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
recorder = Recorder.from_env()
recorder.start(*((model, optimizer) if sys.argv[1] == "model" else ()))
for step in range(6):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step))
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    recorder.step(step, loss=loss, grad_norm=norm, lr=1e-2)
recorder.end(6)
"""


@pytest.mark.parametrize("given", ["model", "nothing"])
def test_a_perturbed_leg_of_a_command_is_moved_by_the_recorder_or_does_not_start(tmp_path: Path, given: str) -> None:
    (tmp_path / "recorded.py").write_text(RECORDED)
    run = {"command": f"{sys.executable} recorded.py {given}"}
    legs = {"a": run, "b": {**run, "env": {"B": 1}}}
    path = suite(tmp_path, legs, steps=6, floor="perturbed", source=None)
    done = parity("run", path, "--out", tmp_path / "out")
    if given == "nothing":
        assert done.returncode == 4, done.stdout + done.stderr
        assert "a.perturbed failed: " in done.stdout
        assert "start: no model; a perturbed leg (PARITY_PERTURB) needs start(model, ...)" in done.stdout
        return
    assert done.returncode == 0, done.stdout + done.stderr
    assert result_of(tmp_path / "out")["comparisons"][0]["perturbed"] == ["a.perturbed"]
    assert losses(tmp_path / "out", "a.perturbed") != losses(tmp_path / "out", "a") == losses(tmp_path / "out", "b")


def test_a_trainer_without_a_recorder_is_not_taken_for_perturbed(tmp_path: Path) -> None:
    done = parity("run", suite(tmp_path, {"tp1": {}, "tp3": {}}, floor="perturbed"), "--out", tmp_path / "out")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "tp1.perturbed was not perturbed: its recorder is too old or start() got no model" in done.stdout


def test_a_shell_that_would_move_every_leg_is_refused(tmp_path: Path) -> None:
    path = suite(tmp_path, {"tp1": {}, "tp3": {"layout": {"tp": 3}}})
    done = parity("run", path, "--out", tmp_path / "out", PARITY_PERTURB="1")
    assert (done.returncode, done.stderr.splitlines()) == (
        2,
        ["PARITY_PERTURB: is set here, and would move the weights of every leg: unset it"],
    )
    assert not (tmp_path / "out").exists()


def test_a_moved_run_directory_can_be_judged_again(embedded: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(embedded, moved)
    done = parity("compare", moved, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    before, after = result_of(embedded), result_of(moved)
    assert before["comparisons"] == after["comparisons"]


def test_a_tampered_run_directory_is_refused_in_one_line(embedded: Path, tmp_path: Path) -> None:
    moved = tmp_path / "tampered"
    shutil.copytree(embedded, moved)
    (moved / "suite.json").write_text("{}")
    done = parity("compare", moved, cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr


def test_a_leg_whose_record_is_a_link_out_of_the_run_directory_is_not_read(embedded: Path, tmp_path: Path) -> None:
    moved = tmp_path / "linked"
    shutil.copytree(embedded, moved)
    record = moved / "legs" / "tp3" / "rank-0.jsonl"
    secret = tmp_path / "secret.jsonl"
    record.rename(secret)
    record.symlink_to(secret)
    assert parity("compare", moved, cwd=tmp_path).returncode == 4


def test_attention_cut_through_its_heads_is_a_wrong_forward(tmp_path: Path) -> None:
    done = parity("run", "embedded/tensor-parallel-cut-by-rows", "--steps", 12, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    report = (tmp_path / "parity-out" / "report.md").read_text()
    assert "❌ parity: fail" in report
    assert "before any update" in report
    assert "the forward is wrong, for weights and data are the same" in report
    outcomes = {one["check"]: one for one in result_of(tmp_path / "parity-out")["comparisons"][0]["outcomes"]}
    assert outcomes["forward"]["status"] == "fail"
    assert outcomes["forward"]["gaps"][0]["worst"] > 1e-3
    # The weights were the same and the cut is the one that was asked for: what is wrong is the computation.
    assert {outcomes[name]["status"] for name in ("initial_state", "same_data", "layout")} == {"pass"}


def test_running_one_leg_again_keeps_the_others_and_a_whole_run_moves_them_aside(
    embedded: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(embedded, out)
    done = parity("run", "embedded/tensor-parallel", "--only", "tp1", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert result_of(out)["verdict"] == "pass"
    assert result_of(out)["reproduce"] == "parity run embedded/tensor-parallel"  # of one leg there is no verdict
    done = parity("run", "embedded/tensor-parallel", "--only", "tp1", "--steps", 3, "--out", tmp_path / "new")
    assert done.returncode == 3
    assert "tp3 not run; tp4 not run" in done.stdout
    done = parity("run", "embedded/tensor-parallel", "--steps", 3, "--out", tmp_path / "new")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "new.1" / "legs" / "tp1" / "rank-0.jsonl").exists()


def test_somebody_s_trainer_by_a_command(tmp_path: Path) -> None:
    path = suite(tmp_path, {"tp1": {}, "tp3": {"layout": {"tp": 3}}, "tp4": {"layout": {"tp": 4}}}, "tp4")
    done = parity("run", path, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    result = result_of(tmp_path / "out")
    assert [leg["format"] for leg in result["legs"]] == ["jsonl"] * 3
    assert "assumed" in result["comparisons"][0]["profile_reason"]


def test_a_layout_that_only_the_log_shows(tmp_path: Path) -> None:
    shown = {"must_match": ["tensor parallel over 3"], "must_not_match": ["no parallelism"]}
    legs = {"tp1": {}, "tp3": {"layout": {"tp": 3}, "evidence": shown}}
    path = suite(tmp_path, legs, layout="proven")
    done = parity("run", path, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    layout = next(
        one for one in result_of(tmp_path / "out")["comparisons"][0]["outcomes"] if one["check"] == "layout"
    )
    assert "tp3 by its log: tensor parallel over 3 ranks" in layout["reason"]
    legs["tp3"] |= {"command": f"{sys.executable} trainer.py {{out}}/metrics.jsonl {{steps}} 1 good"}
    done = parity("run", suite(tmp_path, legs, layout="proven"), "--out", tmp_path / "out")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "tp3: its log never says 'tensor parallel over 3'" in done.stdout


def test_layouts_that_nothing_shows_are_inconclusive(tmp_path: Path) -> None:
    path = suite(tmp_path, {"tp1": {}, "tp3": {"layout": {"tp": 3}}}, layout="proven")
    done = parity("run", path, "--out", tmp_path / "out")
    assert done.returncode == 3
    assert "nothing shows that tp3 ran under the layout asked for" in done.stdout


@pytest.mark.parametrize("mode", ["nothing", "crash"])
def test_an_earlier_run_s_metrics_are_not_taken_for_a_leg_that_wrote_none(tmp_path: Path, mode: str) -> None:
    legs = {"tp1": {}, "tp3": {"layout": {"tp": 3}}}
    assert parity("run", suite(tmp_path, legs), "--out", tmp_path / "out").returncode == 0
    # The same command, which now does nothing.
    (tmp_path / "trainer.py").write_text(f"mode = {mode!r}\nif mode == 'crash': raise ValueError('late')\n")
    done = parity("run", tmp_path / "parity.yml", "--only", "tp3", "--out", tmp_path / "out")
    assert done.returncode == 4, done.stdout


def test_a_leg_that_ran_under_another_suite_is_not_taken_for_today_s(tmp_path: Path) -> None:
    legs: dict[str, Any] = {"tp1": {}, "tp3": {"layout": {"tp": 3}}}
    assert parity("run", suite(tmp_path, legs), "--out", tmp_path / "out").returncode == 0
    legs["tp3"]["layout"]["tp"] = 5
    done = parity("run", suite(tmp_path, legs), "--only", "tp1", "--out", tmp_path / "out")
    assert done.returncode == 3, done.stdout
    assert "tp3 not run: its layout, command, steps, seed, device, environment or source were others" in done.stdout


@pytest.mark.parametrize(
    ("mode", "code", "said"),
    [
        ("wrong", 1, "16 of 20 steps beyond what is allowed, the first at step 4"),
        ("crash", 4, "ValueError: heads 16 do not divide by 3"),
        ("die", 4, "tp3 failed"),
        ("nothing", 4, "the leg wrote no such file"),
        ("teardown", 0, "wrote its whole curve and then failed"),
    ],
)
def test_how_a_leg_ends_and_what_it_wrote_are_told_apart(tmp_path: Path, mode: str, code: int, said: str) -> None:
    path = suite(tmp_path, {"tp1": {}, "tp3": {"layout": {"tp": 3}, **command(mode)}})
    done = parity("run", path, "--out", tmp_path / "out")
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout + (tmp_path / "out" / "report.md").read_text()
    # Whatever became of tp3, tp1 was run and kept.
    assert json.loads((tmp_path / "out" / "legs" / "tp1" / "leg.json").read_text())["status"] == "finished"
    assert (tmp_path / "out" / "report.md").exists()


def test_a_leg_over_its_time_limit_is_an_error_that_names_the_limit(tmp_path: Path) -> None:
    path = suite(tmp_path, {"tp1": {}, "tp3": {**command("slow"), "timeout": "2s"}})
    done = parity("run", path, "--out", tmp_path / "out")
    assert done.returncode == 4
    leg = json.loads((tmp_path / "out" / "legs" / "tp3" / "leg.json").read_text())
    assert leg["status"] == "timed out"
    assert "tp3 timed out" in done.stdout


def test_metrics_written_outside_the_run_directory_are_taken_into_it(tmp_path: Path) -> None:
    legs = {name: {**command("good", f"{name}.jsonl"), "source": f"{name}.jsonl"} for name in ("tp1", "tp3")}
    done = parity("run", suite(tmp_path, legs), "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "out" / "legs" / "tp1" / "source.tp1.jsonl").exists()


def test_a_suite_names_files_beside_it_wherever_it_is_run_from_and_judged_without_them(tmp_path: Path) -> None:
    beside = tmp_path / "the suite's folder"
    (beside / "work").mkdir(parents=True)
    line = f"{sys.executable} {{suite_dir}}/trainer.py {{suite_dir}}/{{leg}}.jsonl {{steps}} {{tp}}"
    listed = [sys.executable, "{suite_dir}/trainer.py", "{suite_dir}/tp3.jsonl", "{steps}", "{tp}"]
    legs = {"tp1": {"command": line, "cwd": "{suite_dir}/work"}, "tp3": {"command": listed}}
    path = suite(beside, legs, source="{suite_dir}/{leg}.jsonl")
    (tmp_path / "elsewhere").mkdir()
    done = parity("run", os.path.relpath(path, tmp_path / "elsewhere"), cwd=tmp_path / "elsewhere")
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "elsewhere" / "parity-out").rename(tmp_path / "moved")
    shutil.rmtree(beside)
    done = parity("compare", tmp_path / "moved")
    assert done.returncode == 0, done.stdout + done.stderr


# An MLflow run's folder: a file for each metric.
STORE = """\
import pathlib, sys
run, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
(run / "metrics").mkdir(parents=True, exist_ok=True)
(run / "meta.yaml").write_text("")
for name, first in (("loss", 6.0), ("grad_norm", 2.0)):
    (run / "metrics" / name).write_text("".join(f"0 {first - step / 13!r} {step}\\n" for step in range(steps)))
"""


def test_run__metrics_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "store.py").write_text(STORE)
    command = f"{sys.executable} store.py {{out}}/mlruns {{steps}}"
    path = suite(tmp_path, {"tp1": {"command": command}, "tp3": {"command": command}}, source="{out}/mlruns")
    assert parity("run", path, "--out", tmp_path / "out").returncode == 0
    legs = {leg["name"]: leg for leg in result_of(tmp_path / "out")["legs"]}
    assert legs["tp3"]["source"] == "legs/tp3/mlruns"
    assert legs["tp3"]["format"] == "mlflow"


def test_run__a_folder_elsewhere_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "store.py").write_text(STORE)
    legs = {leg: {"command": f"{sys.executable} store.py {leg} {{steps}}"} for leg in ("tp1", "tp3")}
    path = suite(tmp_path, legs, source="{leg}")
    done = parity("run", path, "--out", tmp_path / "out")
    assert "is a folder outside of the leg's own: let the trainer write it below {out}" in done.stdout + done.stderr
    done = parity("run", path, "--out", tmp_path / "again")
    assert "is a folder that was there before the leg started" in done.stdout + done.stderr


def test_metrics_left_by_another_run_are_not_taken_for_this_one_s(tmp_path: Path) -> None:
    (tmp_path / "old.jsonl").write_text('{"step": 0, "loss": 6.0}\n')
    os.utime(tmp_path / "old.jsonl", (1e9, 1e9))
    path = suite(tmp_path, {"tp1": {}, "tp3": {"command": "true", "source": "old.jsonl"}})
    done = parity("run", path, "--out", tmp_path / "out")
    assert done.returncode == 4
    assert "was there before the leg started, which did not write to it" in done.stdout


def test_metrics_added_to_another_run_s_are_not_taken_for_this_one_s(tmp_path: Path) -> None:
    whole = "".join(json.dumps({"step": s, "loss": 6 - s / 13}) + "\\n" for s in range(20))
    (tmp_path / "old.jsonl").write_text(whole.replace("\\n", "\n"))
    add = 'echo \'{"step": 0, "loss": 6.0}\' >> old.jsonl'
    path = suite(tmp_path, {"tp1": {}, "tp3": {"command": add, "source": "old.jsonl"}})
    done = parity("run", path, "--out", tmp_path / "out")
    assert done.returncode == 4
    assert "which added to it" in done.stdout


def test_two_runs_do_not_write_in_one_folder(tmp_path: Path) -> None:
    path = suite(tmp_path, {"tp1": command("slow"), "tp3": command("slow")})
    first = subprocess.Popen(
        [sys.executable, "-m", "parity", "run", str(path), "--out", "out"], cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (tmp_path / "out" / "suite.json").exists():
        time.sleep(0.05)
    second = parity("run", path, "--out", "out", cwd=tmp_path)
    first.terminate()
    assert first.wait(timeout=120) == 4
    assert second.returncode == 2
    assert "another run writes there now" in second.stderr


def test_a_run_that_was_killed_is_judged_by_what_it_left(tmp_path: Path) -> None:
    path = suite(tmp_path, {"tp1": {}, "tp3": {"layout": {"tp": 3}, **command("slow")}})
    process = subprocess.Popen(
        [sys.executable, "-m", "parity", "run", str(path), "--out", "out"], cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    finished = tmp_path / "out" / "legs" / "tp1" / "leg.json"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (finished.exists() and '"finished"' in finished.read_text()):
        time.sleep(0.05)
    process.kill()
    process.wait(timeout=120)
    done = parity("compare", tmp_path / "out")
    assert done.returncode == 4
    assert "tp3 interrupted" in done.stdout
    assert result_of(tmp_path / "out")["legs"][0]["status"] == "finished"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_every_rank_and_keeps_what_was_computed(tmp_path: Path, signum: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "parity", "run", "embedded/tensor-parallel", "--steps", "100000", "--out", "out"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    record = tmp_path / "out" / "legs" / "tp3" / "rank-0.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (record.exists() and record.stat().st_size > 1000):
        time.sleep(0.1)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 5
    process.send_signal(signum)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 4, said
    gone, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    assert len(gone) == len(family)
    result = result_of(tmp_path / "out")
    statuses = {leg["name"]: leg["status"] for leg in result["legs"]}
    # On two cores the last one waits for the others' places.
    assert statuses.pop("tp1.perturbed") in ("interrupted", "not started")
    assert set(statuses.values()) == {"interrupted"}
    assert "interrupted" in said


@pytest.mark.parametrize("recipe", ["deepseek-v4-pp2", "deepseek-v4-fsdp2", "qwen3-cp2", "all-axes"])
def test_every_axis_passes_with_layout_evidence_from_the_records(tmp_path: Path, recipe: str) -> None:
    done = parity("run", f"embedded/{recipe}", "--steps", 6, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    for index in range(len(result_of(tmp_path / "out")["comparisons"])):
        for check in ("initial_state", "same_data", "layout", "gradients", "update", "replicas", "norm_consistent"):
            assert outcome_of(tmp_path / "out", check, index)["status"] == "pass"
        assert "by its records" in outcome_of(tmp_path / "out", "layout", index)["reason"]


def test_experts_summed_in_bf16_part_the_whole_gradient_a_thousandfold_and_the_report_says_so(tmp_path: Path) -> None:
    done = parity("run", "embedded/deepseek-v4-ep2", "--steps", 6, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    exact, narrow = (outcome_of(tmp_path / "out", "gradients", index) for index in (0, 1))
    # Published: 5.8e-7 with fp32, 7.5e-4 with bf16, all of it in the experts.
    assert exact["gaps"][0]["first"] < 5e-6
    assert narrow["gaps"][0]["first"] > 50 * exact["gaps"][0]["first"]
    assert narrow["shares"]["experts"] > 0.9
    assert outcome_of(tmp_path / "out", "initial_state")["reason"].endswith("random states equal")
    report = (tmp_path / "out" / "report.md").read_text()
    for one in (exact, narrow):
        assert number(one["gaps"][0]["first"]) in report


def test_expert_parallelism_asked_for_and_not_applied_is_a_fail_of_layout_alone(tmp_path: Path) -> None:
    done = parity("run", "embedded/deepseek-v4-ep2-not-applied", "--out", tmp_path / "out")
    assert done.returncode == 1, done.stdout + done.stderr
    outcomes = result_of(tmp_path / "out")["comparisons"][0]["outcomes"]
    assert [one["check"] for one in outcomes if one["status"] == "fail"] == ["layout"]
    assert "ep2: asked for ep=2, but every rank holds all 8 experts" in done.stdout


def test_a_hash_routed_layer_on_the_second_stage_without_its_token_ids_is_caught(tmp_path: Path) -> None:
    done = parity("run", "embedded/deepseek-v4-pp2-ids-dropped", "--steps", 4, "--out", tmp_path / "out")
    assert done.returncode == 1, done.stdout + done.stderr
    assert outcome_of(tmp_path / "out", "forward")["status"] == "fail"
    named = outcome_of(tmp_path / "out", "layout")
    assert named["status"] == "fail"
    assert (
        "pp2: layers.2.moe.router has experts by score on rank 1, where pp1 has experts by token id"
        in named["reason"]
    )


@pytest.mark.slow
def test_a_leg_s_own_output_is_read_by_a_pattern(tmp_path: Path) -> None:
    code = "for s in range(20): print(f'at {{s}}: loss={6 - s / 13:.12f} norm={2 + s / 7:.12f}')"
    source = {
        "file": "{out}/command.log",
        "pattern": r"at (?P<step>\d+): loss=(?P<loss>\S+) norm=(?P<grad_norm>\S+)",
    }
    legs = {name: {"command": [sys.executable, "-c", f"{name} = 1\n{code}"]} for name in ("tp1", "tp3")}
    path = suite(tmp_path, legs, source=source)
    done = parity("run", path, "--out", tmp_path / "out")
    result = result_of(tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {leg["format"] for leg in result["legs"]} == {"pattern"}
