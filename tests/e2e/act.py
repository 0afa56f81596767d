"""`act`, which runs a workflow's jobs and steps as GitHub would, here as processes of this machine.

What it does otherwise, so that nothing in this folder tells of it:

- no `concurrency`, no environments, no `timeout-minutes`;
- no `permissions`: all jobs have one token. The tests give it what the starter grants to its jobs together, so that a
  permission that none of them has is missed; `tests/workflows` holds each job to its own;
- each composite action's inputs are in the environment of its steps, `INPUT_TOKEN` too, which a runner does not put
  there: so what legs must not see lies nearer to them than on GitHub;
- `GITHUB_SHA` is the commit that is checked out where act is started, also for a pull request, where it were a merge;
- actions/checkout and those for artifacts can't be had without GitHub: `actions` holds small ones in their place.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.github.events import Event
from tests.github.server import GitHub
from tests.github.state import Token
from tests.workflows.files import load

__all__ = ["Run", "act", "granted"]

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
LABELS = ("self-hosted", "gpu", "ubuntu-latest")


@dataclass(frozen=True)
class Run:
    """What came of a workflow.

    Attributes:
        code: of act, 0 if all is green.
        jobs: the result of each job that was begun, `success` or `failure`.
        log: what the steps of each job printed, annotations too.
        outputs: what the steps of each job handed on, by name.
        summaries: what each job wrote for its page.
        artifacts: the folder of what was uploaded.
        said: the end of all that was printed, for a failing test.
    """

    code: int
    jobs: dict[str, str]
    log: dict[str, str]
    outputs: dict[str, dict[str, str]]
    summaries: dict[str, str]
    artifacts: Path
    said: str


def act(
    event: Event,
    workflow: Path,
    *,
    number: int,
    github: GitHub,
    token: Token,
    repository: Path,
    action: Path,
    folder: Path,
    env: Mapping[str, str],
) -> Run:
    """Run a workflow on an event.

    Args:
        event: what happened.
        workflow: the file.
        number: of the run; a later one has a larger.
        github: where the API is.
        token: of the workflow.
        repository: what is checked out there is the commit of the run; its commits can be checked out by jobs.
        action: what `uses: org/parity-action@v1` names.
        folder: for what act needs and what jobs leave.
        env: more of the steps' environment.
    """
    for name in ("home", "cache", "artifacts"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    payload, secrets = folder / "event.json", folder / "secrets"
    payload.write_text(json.dumps(event.payload))
    secrets.write_text(f"GITHUB_TOKEN={token.text}\n")
    given = {
        "GITHUB_API_URL": github.url,
        "GITHUB_SERVER_URL": github.server_url,
        "GITHUB_REPOSITORY": github.repository.full_name,
        "GITHUB_RUN_ID": str(number),
        "PARITY_TEST_REPOSITORY": str(repository),
        "PARITY_TEST_ARTIFACTS": str(folder / "artifacts"),
    }
    words = [BIN / "act", event.name, "--json", "--workflows", workflow, "--eventpath", payload]
    words += ["--secret-file", secrets, "--action-cache-path", folder / "cache"]
    words += ["--no-skip-checkout", "--no-cache-server", "--concurrent-jobs", "1"]
    words += [word for label in LABELS for word in ("--platform", f"{label}=-self-hosted")]
    words += [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
    for name, path in {"org/parity-action@v1": action, **_pinned(workflow)}.items():
        words += ["--local-repository", f"{name}={path}"]
    home = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder / "home"), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=repository,
        env={**home, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=500,
    )
    return _read(done.stdout, done.returncode, folder / "artifacts" / str(number))


def granted(workflow: Path) -> dict[str, str]:
    """What the jobs of a workflow may do together, as an installation's permissions are written."""
    every = [job["permissions"].items() for job in load(workflow)["jobs"].values()]
    return {name.replace("-", "_"): how for one in sorted(map(sorted, every)) for name, how in one}


def _pinned(workflow: Path) -> dict[str, Path]:
    """Those of GitHub's own actions that it uses, and what takes their place."""
    uses = re.findall(r"uses: (actions/([a-z-]+)@[0-9a-f]{40})", workflow.read_text())
    return {whole: HERE / "actions" / name for whole, name in uses}


def _read(said: str, code: int, artifacts: Path) -> Run:
    jobs: dict[str, str] = {}
    log: dict[str, str] = {}
    outputs: dict[str, dict[str, str]] = {}
    summaries: dict[str, str] = {}
    lines = []
    for line in said.splitlines():
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            lines.append(line)
            continue
        job = entry.get("jobID", "")
        if entry.get("jobResult"):
            jobs[job] = entry["jobResult"]
        if entry.get("command") == "summary":
            summaries[job] = entry["content"]
        elif entry.get("command") == "set-output" and entry["arg"]:
            outputs.setdefault(job, {})[entry["name"]] = entry["arg"]
        elif entry.get("raw_output") or entry.get("command") in ("error", "warning", "notice"):
            text = entry.get("arg") or entry["msg"]
            log[job] = f"{log.get(job, '')}{text.rstrip()}\n"
            lines.append(f"{job} | {text.rstrip()}")
        elif entry.get("stepResult") or entry.get("level") != "info":
            lines.append(f"{job} {entry['msg'].strip()}")
    return Run(code, jobs, log, outputs, summaries, artifacts, "\n".join(["", *lines[-60:]]))
