"""The workflows to copy: what each may do, and what it runs."""

import re
from pathlib import Path
from typing import Any

import pytest

from .files import ACTION, STARTERS, WORKFLOWS, load

OURS = "org/parity-action@v1"
PERMISSIONS: dict[str, dict[str, dict[str, str]]] = {
    "parity-copy-pr-bot.yml": {
        "run": {"contents": "read", "pull-requests": "read"},
        "publish": {"pull-requests": "write", "statuses": "write"},
    },
    "parity-matrix.yml": {
        "plan": {"contents": "read"},
        "run": {"contents": "read"},
        "publish": {"pull-requests": "write", "statuses": "write"},
    },
    "parity-nightly.yml": {"run": {"contents": "read"}, "publish": {"issues": "write"}},
    "parity-ok-to-test.yml": {
        "gate": {"pull-requests": "write", "statuses": "write"},
        "run": {"contents": "read", "pull-requests": "read"},
        "publish": {"pull-requests": "write", "statuses": "write"},
    },
    "parity-same-repo.yml": {"parity": {"contents": "read", "pull-requests": "write", "statuses": "write"}},
}

starters = pytest.mark.parametrize("path", STARTERS, ids=lambda path: path.stem)


def steps(path: Path) -> list[tuple[str, Any]]:
    return [(name, step) for name, job in load(path)["jobs"].items() for step in job["steps"]]


@starters
def test_each_job_may_do_what_it_needs_and_no_more(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {}
    assert {name: job["permissions"] for name, job in workflow["jobs"].items()} == PERMISSIONS[path.name]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned(path: Path) -> None:
    for line in path.read_text().splitlines():
        if found := re.search(r"\buses: (\S+)(.*)", line):
            pinned = re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", found[1])
            assert found[1] == OURS or (pinned and re.fullmatch(r" # v\d+\.\d+\.\d+", found[2])), line


def test_an_action_is_pinned_to_one_commit_everywhere() -> None:
    pins = {one for path in WORKFLOWS for one in re.findall(r"uses: (actions/\S+ # \S+)", path.read_text())}
    assert len({pin.split("@")[0] for pin in pins}) == len(pins)


@starters
def test_a_checkout_leaves_no_credentials(path: Path) -> None:
    for _, step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] == "false"


@starters
def test_our_inputs_are_inputs(path: Path) -> None:
    known = load(ACTION)["inputs"]
    for _, step in steps(path):
        if step.get("uses") == OURS:
            assert set(step.get("with", {})) <= set(known)


@starters
def test_nothing_is_run_but_actions(path: Path) -> None:
    assert [step for _, step in steps(path) if "uses" not in step] == []


@starters
def test_a_job_ends_even_if_the_legs_do_not(path: Path) -> None:
    for job in load(path)["jobs"].values():
        legs = [step["with"]["timeout"] for step in job["steps"] if "timeout" in step.get("with", {})]
        lengths = [int(one[:-1]) * {"m": 1, "h": 60}[one[-1]] for one in legs]
        assert int(job["timeout-minutes"]) > max(lengths, default=0)


@pytest.mark.parametrize("name", ["parity-copy-pr-bot.yml", "parity-ok-to-test.yml"])
def test_strangers_code_meets_no_token_that_may_write(name: str) -> None:
    path = next(path for path in STARTERS if path.name == name)
    jobs = load(path)["jobs"]
    for job, step in steps(path):
        if step["uses"].startswith("actions/checkout@") or step.get("with", {}).get("mode") == "run":
            assert "write" not in jobs[job]["permissions"].values()


def test_the_approved_commit_is_what_is_run_and_reported() -> None:
    path = next(path for path in STARTERS if path.name == "parity-ok-to-test.yml")
    approved = "${{ needs.gate.outputs.sha }}"
    modes = []
    for job, step in steps(path):
        given = step.get("with", {})
        if step["uses"].startswith("actions/checkout@"):
            assert given["ref"] == approved
            modes.append("checkout")
        elif step["uses"] == OURS and job != "gate":
            assert given["sha"] == approved
            modes.append(given["mode"])
    assert modes == ["checkout", "gate", "run", "publish"]


@starters
def test_only_what_legs_left_is_uploaded(path: Path) -> None:
    for job in load(path)["jobs"].values():
        legs = [
            step
            for step in job["steps"]
            if step["uses"] == OURS and step["with"].get("mode", "all") in ("run", "all")
        ]
        uploads = [step for step in job["steps"] if step["uses"].startswith("actions/upload-artifact@")]
        assert len(legs) == len(uploads)
        for one, upload in zip(legs, uploads, strict=True):
            assert upload["if"] == f"(!cancelled()) && steps.{one['id']}.outcome != 'skipped'"
            assert upload["with"]["overwrite"] == "true"


@starters
def test_publish_is_told_how_the_legs_ended(path: Path) -> None:
    published = [step["with"] for _, step in steps(path) if step.get("with", {}).get("mode") == "publish"]
    assert [given["run-result"] for given in published] == ["${{ needs.run.result }}"] * len(published)


@starters
def test_workflows_do_not_cancel_each_other(path: Path) -> None:
    workflow = load(path)
    groups = [one["concurrency"]["group"] for one in (workflow, *workflow["jobs"].values()) if "concurrency" in one]
    assert groups
    assert all(group.startswith("${{ github.workflow }}") for group in groups)


@starters
def test_the_legs_and_the_report_are_of_one_suite(path: Path) -> None:
    suites = {
        step["with"]["suite"]
        for _, step in steps(path)
        # The gate that checks again sets no status.
        if step["uses"] == OURS and (step["with"].get("mode") != "gate" or "sha" not in step["with"])
    }
    assert suites == {"parity.yml"}
