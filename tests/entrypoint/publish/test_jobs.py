"""What several jobs left, each with some of the legs: published as if one had run all."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from entrypoint import plan
from entrypoint.inputs import InputError, Inputs
from entrypoint.jobs import put_together
from entrypoint.launched import Launched, read
from entrypoint.launching.process import legs
from entrypoint.launching.record import Launch
from parity.rundir import RunDirectory
from tests.entrypoint.gate.conftest import outputs
from tests.test_judge import leave, run_directory

SHA = "a" * 40


def job(out: Path, *legs: str, **launch: Any) -> Path:
    """The folder that one job uploaded: it ran these legs of a suite of `a` and `b`."""
    folder = out / f"parity-out-{'-'.join(legs)}"
    folder.mkdir(parents=True)
    directory = run_directory(folder)
    for leg in legs:
        leave(directory, leg)
    given: dict[str, Any] = {"isolation": "docker", "how": "finished", "exit_code": 3, "tested_sha": SHA}
    Launch(suite="parity.yml", **{"run_id": "7", **given, **launch}).write(folder)
    return folder


def together(out: Path) -> Launched:
    put_together(out)
    return read(out)


def test_legs_of_two_jobs_are_in_one_run_whose_verdict_is_that_of_all(tmp_path: Path) -> None:
    job(tmp_path, "a", ended="2026-01-01T00:00:00Z")
    job(tmp_path, "b", ended="2026-01-02T00:00:00Z", isolation="process")
    launched = together(tmp_path)
    assert (launched.how, launched.exit_code, launched.problems()) == ("finished", 0, [])
    # As little isolated as any, and ended as late.
    assert (launched.isolation, launched.ended) == ("process", "2026-01-02T00:00:00Z")
    assert (launched.tested_sha, launched.run_id) == (SHA, "7")
    directory = RunDirectory(tmp_path / "run")
    assert [name for name in "ab" if directory.read_leg(name)] == ["a", "b"]


def test_what_one_job_left_stays_as_it_is(tmp_path: Path) -> None:
    shutil.move(job(tmp_path / "parts", "a", "b"), tmp_path / "out")
    before = (tmp_path / "out" / "launch.json").read_bytes()
    job(tmp_path / "out", "a")
    put_together(tmp_path / "out")
    assert (tmp_path / "out" / "launch.json").read_bytes() == before
    put_together(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    put_together(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ({"tested_sha": "b" * 40}, f"the jobs are of several commits: {SHA}, {'b' * 40}"),
        ({"run_id": "8"}, "the jobs are of several workflow runs: 7, 8"),
        ({"error": "legs: killed", "how": "timed out", "exit_code": None}, "legs: killed"),
    ],
)
def test_jobs_that_do_not_belong_together_or_went_wrong_are_never_green(
    tmp_path: Path, launch: dict[str, Any], said: str
) -> None:
    job(tmp_path, "a")
    job(tmp_path, "b", **launch)
    assert together(tmp_path).problems() == [said]


@pytest.mark.parametrize(
    ("launch", "verdict"), [({"exit_code": 4}, "error"), ({"isolation": None}, "error"), ({}, "pass")]
)
def test_the_worst_of_any_job_is_that_of_all(tmp_path: Path, launch: dict[str, Any], verdict: str) -> None:
    job(tmp_path, "a", **launch)
    job(tmp_path, "b")
    assert together(tmp_path).worst().value == verdict


def test_a_leg_that_two_jobs_have_is_told(tmp_path: Path) -> None:
    job(tmp_path, "a")
    job(tmp_path, "b", "a")
    (problem,) = together(tmp_path).problems()
    assert problem.startswith("the jobs' runs cannot be put together: ")
    assert "has the leg a, and so has" in problem


def test_a_note_that_is_none_is_told(tmp_path: Path) -> None:
    job(tmp_path, "a")
    (job(tmp_path, "b") / "launch.json").write_text("[]")
    (problem,) = together(tmp_path).problems()
    assert "launch.json" in problem


def test_links_are_no_jobs(tmp_path: Path) -> None:
    elsewhere = job(tmp_path / "elsewhere", "b")
    out = tmp_path / "out"
    job(out, "a")
    (out / "parity-out-b").symlink_to(elsewhere)
    together(out)
    assert RunDirectory(out / "run").read_leg("b") is None


def test_a_link_is_no_run(tmp_path: Path) -> None:
    elsewhere = job(tmp_path / "elsewhere", "b") / "run"
    out = tmp_path / "out"
    job(out, "a")
    run = job(out, "b") / "run"
    shutil.rmtree(run)
    run.symlink_to(elsewhere)
    (problem,) = together(out).problems()
    assert problem.endswith("parity-out-b/run: is no folder; links are not followed")


def test_the_only_job_that_left_something_is_judged_without_the_others(tmp_path: Path) -> None:
    job(tmp_path, "a")
    assert together(tmp_path).problems() == []
    directory = RunDirectory(tmp_path / "run")
    assert [name for name in "ab" if directory.read_leg(name)] == ["a"]


def planned(tmp_path: Path, suite: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str], str]:
    env = {"GITHUB_WORKSPACE": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "output"), "INPUT_SUITE": suite}
    (tmp_path / "output").touch()
    code = plan.main({**env, "PATH": "/usr/bin:/bin", "INPUT_MODE": "plan"})
    return code, outputs(tmp_path / "output"), capsys.readouterr().out


def test_the_matrix_of_a_suite_is_an_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, given, _ = planned(tmp_path, "embedded/tensor-parallel", capsys)
    assert code == 0
    legs = {one["leg"]: one["ranks"] for one in json.loads(given["matrix"])["include"]}
    assert legs == {"tp1": 1, "tp3": 3, "tp4": 4, "tp1.perturbed": 1}


@pytest.mark.parametrize("suite", ["absent.yml", "--help", "bad.yml"])
def test_a_suite_that_cannot_be_read_is_an_error_in_one_line(
    tmp_path: Path, suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.yml").write_text("name: x\nlegs: ['::error::mine']\n")
    code, given, said = planned(tmp_path, suite, capsys)
    assert (code, given) == (2, {})
    assert said.startswith("::error::")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("given", ["tp1,tp2", " tp1  tp2 "])
def test_a_job_runs_only_the_legs_that_it_names(given: str) -> None:
    assert Inputs.from_env({"INPUT_ONLY": given}).only == ("tp1", "tp2")
    assert Inputs.from_env({}).only == ()


@pytest.mark.parametrize("given", ["--out", "tp1,../x", "a b$c"])
def test_what_is_no_name_of_a_leg_never_reaches_a_command_line(given: str) -> None:
    with pytest.raises(InputError, match=r"only: .* is no name of a leg"):
        Inputs.from_env({"INPUT_ONLY": given})


def test_the_legs_of_a_process_are_named_on_its_command_line(tmp_path: Path) -> None:
    words = legs("python3", ["parity.yml", "--only", "tp1"], tmp_path / "run", "", tmp_path)
    assert words[1:] == ["-P", "-m", "parity", "run", "parity.yml", "--only", "tp1", "--out", str(tmp_path / "run")]
