"""Training scripts that know nothing of the recorder, run for real and recorded all the same."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from parity.cli import main as parity

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "scripts" / "train.py"

RANKS = {"plain": 1, "ddp": 2, "fsdp": 2, "tp": 2, "pp": 2}

# Now and then a thread of torch's Gloo process group aborts a process that has done everything: 9 of 112 runs of the
# script alone, without a recorder, on two busy cores.
ABORTED = "terminate called without an active exception"


def run(folder: Path, *command: str, ranks: int = 0, **env: str) -> "subprocess.CompletedProcess[str]":
    """A command's result; by torchrun if it has ranks."""
    starter = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks else []
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PARITY_")}
    given = {**kept, "OMP_NUM_THREADS": "1", **env}
    return subprocess.run(
        [sys.executable, *starter, *command],
        cwd=folder,
        env=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


def trained(folder: Path, layout: str, *options: str, by_itself: bool = False, **env: str) -> list[list[Any]]:
    """What each rank recorded: its lines."""
    out = folder / ("calls" if by_itself else "zero")
    own = ["--three-calls"] if by_itself else []
    command = [str(SCRIPT), "--layout", layout, "--metrics", str(out) + ".jsonl", *options, *own]
    if not by_itself:
        command = ["-m", "parity.record", "--", *command]
    ranks = RANKS[layout] if RANKS[layout] > 1 else 0
    for _ in range(5):
        done = run(folder, *command, ranks=ranks, PARITY_RECORD_DIR=str(out), **env)
        if done.returncode == 0 or ABORTED not in done.stderr:
            break
    assert done.returncode == 0, done.stderr[-2000:]
    files = [out / f"rank-{rank}.jsonl" for rank in range(RANKS[layout])]
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What one rank records where the script calls the recorder."""
    (lines,) = trained(tmp_path_factory.mktemp("plain"), "plain", by_itself=True)
    return lines


def measured(lines: list[Any], kinds: tuple[str, ...] = ("model", "gradients", "update", "final")) -> list[Any]:
    """The lines that hold what was computed; random states apart, which are looked at at another moment."""
    return [{**line, "rng": None, "read": None} for line in lines if line["kind"] in kinds]


def the(kind: str, lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.parametrize("layout", ["plain", "ddp", "fsdp", "tp", "pp"])
def test_the_record_is_that_of_the_three_calls(tmp_path: Path, plain: list[Any], layout: str) -> None:
    by_itself = [plain] if layout == "plain" else trained(tmp_path, layout, by_itself=True)
    for zero, calls in zip(trained(tmp_path, layout), by_itself, strict=True):
        assert measured(zero) == measured(calls)
        assert len(the("gradients", zero)) == 4
        if layout != "pp":
            assert the("batch", zero) == the("batch", calls)
        assert [line["lr"] for line in the("step", zero)] == [0.01] * 4
        assert the("end", zero)[0]["steps"] == 4


def test_gradients_are_read_before_clipping_and_its_norm_is_taken(tmp_path: Path) -> None:
    (lines,) = trained(tmp_path, "plain", "--clip")
    assert {line["read"] for line in the("gradients", lines)} == {"before clipping"}
    for gradients, step in zip(the("gradients", lines), the("step", lines), strict=True):
        whole = sum(norm**2 for norm in gradients["norms"]) ** 0.5
        assert step["grad_norm"] == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("how", ["--evaluate", "--checkpoint", "--two-optimizers", "--by-parts"])
def test_a_step_is_one_whatever_else_the_loop_does(tmp_path: Path, plain: list[Any], how: str) -> None:
    (lines,) = trained(tmp_path, "plain", how)
    (line,) = the("model", lines)
    assert [part["name"] for part in line["parameters"]] == [
        part["name"] for part in the("model", plain)[0]["parameters"]
    ]
    assert [one["norms"] for one in the("gradients", lines)] == [one["norms"] for one in the("gradients", plain)]
    assert [one["norms"] for one in the("update", lines)] == [one["norms"] for one in the("update", plain)]
    assert len(the("step", lines)) == 4
    if how != "--by-parts":
        assert the("batch", lines) == the("batch", plain)


def test_weights_are_moved_before_the_first_call_computes(tmp_path: Path) -> None:
    (moved,) = trained(tmp_path, "plain", PARITY_PERTURB="1")
    (expected,) = trained(tmp_path, "plain", by_itself=True, PARITY_PERTURB="1")
    assert measured(moved) == measured(expected)
    assert moved[0]["environment"]["perturbed"] == 1


SUITE = """
name: zero-code
steps: 4
device: cpu
trainer:
  command: >-
    {python} -m torch.distributed.run --standalone --nproc-per-node {{nproc}} -m parity.record --
    {script} --layout $LAYOUT --metrics {{out}}/log.jsonl --steps {{steps}}
source: {{file: "{{out}}/log.jsonl"}}
legs:
  plain: {{env: {{LAYOUT: plain}}}}
  ddp: {{layout: {{dp: 2}}, env: {{LAYOUT: ddp}}}}
  pp: {{layout: {{pp: 2}}, env: {{LAYOUT: pp}}}}
compare:
  - {{baseline: plain, candidate: ddp}}
  - {{baseline: plain, candidate: pp}}
"""

FAULT = """
import os, sys
if os.environ.get("LAYOUT") == "ddp":
    import parity.record.importing as importing
    def plant():
        from torch.optim.optimizer import register_optimizer_step_pre_hook
        def double(optimizer, args, kwargs):
            for parameter in optimizer.param_groups[0]["params"]:
                if tuple(parameter.shape) == (16, 32):  # both layers' down.weight
                    parameter.grad.mul_(2)
                    break
        register_optimizer_step_pre_hook(double)
    importing.when_imported("torch", plant)
"""


def judged(folder: Path) -> Any:
    (folder / "parity.yml").write_text(SUITE.format(python=sys.executable, script=SCRIPT))
    CliRunner().invoke(parity, ["run", str(folder / "parity.yml"), "--out", str(folder / "out")])
    return json.loads((folder / "out" / "result.json").read_text())


def outcomes(comparison: Any) -> dict[str, tuple[str, str]]:
    return {one["check"]: (one["status"], one["reason"]) for one in comparison["outcomes"]}


def test_a_suite_judges_records_beside_the_scripts_own_log(tmp_path: Path) -> None:
    result = judged(tmp_path)
    assert [one["verdict"] for one in result["comparisons"]] == ["pass", "pass"], result["summary"]
    for comparison in result["comparisons"]:
        found = outcomes(comparison)
        for check in ("initial_state", "same_data", "layout", "gradients", "update", "replicas", "loss"):
            assert found[check][0] == "pass", (check, found[check])
        assert comparison["profile"] == "fp32-cpu"


def test_a_fault_of_an_optimizer_hook_is_found_by_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(FAULT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), str(Path(__file__).parents[2])]))
    ddp, pp = judged(tmp_path)["comparisons"]
    assert ddp["verdict"] == "fail"
    status, reason = outcomes(ddp)["gradients"]
    assert (status, "layers.0.down.weight" in reason) == ("fail", True), reason
    assert pp["verdict"] == "pass"
