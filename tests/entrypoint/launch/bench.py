"""The launcher in a process of its own, and programs that stand in for those of a runner."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
LAUNCH = ROOT / "entrypoint" / "launch.py"

SECRET = "ghs_thisMustReachNoLeg"

# What a runner has in the environment of a step, and what no leg may see of it.
RUNNER = {
    "GITHUB_ACTIONS": "true",
    "CI": "true",
    "GITHUB_RUN_ID": "77",
    "GITHUB_RUN_ATTEMPT": "2",
    "GITHUB_JOB": "gpu tests",
    "RUNNER_NAME": "runner-1",
    "RUNNER_OS": "Linux",
    "GITHUB_TOKEN": SECRET,
    "INPUT_TOKEN": SECRET,
    "ACTIONS_RUNTIME_TOKEN": SECRET,
    "ACTIONS_RUNTIME_URL": "https://runtime.invalid/",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN": SECRET,
    "ACTIONS_ID_TOKEN_REQUEST_URL": "https://token.invalid/",
    "ACTIONS_CACHE_URL": "https://cache.invalid/",
    "GITHUB_ENV": "/runner/_temp/_runner_file_commands/set_env",
    "GITHUB_PATH": "/runner/_temp/_runner_file_commands/add_path",
    "GITHUB_OUTPUT": "/runner/_temp/_runner_file_commands/set_output",
    "GITHUB_STATE": "/runner/_temp/_runner_file_commands/save_state",
    "GITHUB_STEP_SUMMARY": "/runner/_temp/_runner_file_commands/step_summary",
    "HTTPS_PROXY": f"http://user:{SECRET}@proxy.invalid",
    "PARITY_TOKEN": SECRET,
    "PARITY_PERTURB": "1",
    "AWS_SECRET_ACCESS_KEY": SECRET,
}

SUITE = """\
name: tiny
steps: 2
trainer: {embedded: qwen3}
legs:
  one: {layout: {tp: 1}}
  two: {layout: {tp: 2}}
compare:
  - {baseline: one, candidate: two}
"""

# One leg that is a shell command; the other is never looked at.
SHELL = """\
name: shell
steps: 1
trainer: {{command: {command}}}
source: "{{out}}/metrics.jsonl"
legs:
  one: {{layout: {{tp: 1}}}}
  two: {{layout: {{tp: 1}}, command: "true"}}
compare:
  - {{baseline: one, candidate: two}}
"""


def shell_suite(command: str) -> str:
    """A suite whose leg `one` is a shell command."""
    return SHELL.format(command=json.dumps(command))


@dataclass
class Done:
    """A launch that ended."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def note(self) -> dict[str, Any]:
        """`launch.json`."""
        found: dict[str, Any] = json.loads((self.folder / "launch.json").read_text())
        assert found["format"] == "parity.launch/1"
        return found

    def log(self, leg: str = "one") -> str:
        """What a leg's command printed."""
        return (self.folder / "run" / "legs" / leg / "command.log").read_text()


# The launcher with more patience than any test has.
_PATIENT = """\
import runpy, sys
sys.path.insert(0, {root!r})
from entrypoint.launching import supervise
supervise._AFTER_SIGNAL = supervise._AFTER_TIMEOUT = {seconds!r}
sys.argv[0] = {launch!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Bench:
    """A runner: a workspace, and a PATH with nothing but what a test puts there.

    Attributes:
        patience: seconds that the launcher gives the legs to end by themselves, where that is to be another time.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.patience: float | None = None
        self._started: list[subprocess.Popen[str]] = []
        self.workspace = root / "work space, main"
        self.bin = root / "bin"
        self.temp = root / "temp"
        for folder in (self.workspace, self.bin, self.temp):
            folder.mkdir(mode=0o755)
        (self.workspace / "parity.yml").write_text(SUITE)
        self.env = {
            **RUNNER,
            "PATH": str(self.bin),
            "HOME": str(root),
            "GITHUB_WORKSPACE": str(self.workspace),
            "PARITY_HOST_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(self.temp),
        }

    def program(self, name: str, text: str) -> None:
        """A program on the PATH, in Python."""
        path = self.bin / name
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)

    def docker(self, **answers: Any) -> None:
        """A `docker` that writes down how it was called, and answers as it is told."""
        (self.root / "answers.json").write_text(json.dumps(answers))
        self.program("docker", _DOCKER.format(root=str(self.root)))

    def nvidia_smi(self, gpus: str = "0, GPU-aa\n1, GPU-bb\n", apps: str = "", code: int = 0) -> None:
        text = f"import sys\nprint({apps!r} if 'compute-apps' in sys.argv[1] else {gpus!r}, end='')\nsys.exit({code})"
        self.program("nvidia-smi", text)

    def calls(self, word: str = "run") -> list[dict[str, Any]]:
        """How docker was called with this word: `argv`, `env`."""
        path = self.root / "calls.jsonl"
        lines = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []  # the last may be begun
        return [call for call in map(json.loads, lines) if call["argv"][1] == word]

    def start(self, *words: str, **inputs: str) -> "subprocess.Popen[str]":
        given = {f"INPUT_{name.upper()}": value for name, value in inputs.items()}
        launcher = [str(LAUNCH)]
        if self.patience is not None:
            launcher = ["-c", _PATIENT.format(root=str(ROOT), seconds=self.patience, launch=str(LAUNCH))]
        process = subprocess.Popen(
            [sys.executable, "-I", *launcher, *words],
            env={**self.env, **given},
            cwd=self.workspace,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """End what a test that failed has left."""
        for process in self._started:
            process.kill()
        for pid in processes(str(self.root)):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait()
            for pipe in (process.stdout, process.stderr):
                assert pipe is not None
                pipe.close()

    def end(self, process: "subprocess.Popen[str]", timeout: float = 120.0) -> Done:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise
        return Done(process.returncode, out, err, self.workspace / "parity-out")

    def launch(self, *words: str, **inputs: str) -> Done:
        return self.end(self.start(*words, **inputs))


def processes(word: str) -> list[int]:
    """Living processes that have this word in their environment or on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            texts = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            continue
        if word.encode() in texts and not dead:
            found.append(int(entry.name))
    return found


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def end_by(process: "subprocess.Popen[str]", signum: int) -> None:
    """Send a signal, and wait until the process has ended."""
    process.send_signal(signal.Signals(signum))
    process.wait(120)


_DOCKER = """\
import json, os, signal, sys, time
root = {root!r}
with open(root + "/calls.jsonl", "a") as file:
    file.write(json.dumps({{"argv": sys.argv, "env": dict(os.environ)}}) + "\\n")
answers = json.load(open(root + "/answers.json"))
def end(answer):
    out, err, code = (answer + ["", 0])[:3] if len(answer) < 3 else answer
    print(out, end="")
    print(err, end="", file=sys.stderr)
    sys.exit(code)
word = sys.argv[1]
if word == "info":
    end(answers.get("info", [json.dumps({{"ServerVersion": "27.1", "Runtimes": {{"runc": {{}}}}}}), "", 0]))
if word == "image":
    found = [{{"Id": "sha256:aa", "RepoDigests": ["r/i@sha256:bb"], "Config": {{"Entrypoint": ["parity"]}}}}]
    if "pulled" in answers and not os.path.exists(root + "/pulled"):
        end(["[]", "Error: No such image", 1])
    end(answers.get("image", [json.dumps(found), "", 0]))
if word == "pull":
    open(root + "/pulled", "w").close()
    end(answers["pulled"])
if word == "ps":
    if sum(1 for _ in open(root + "/calls.jsonl")) < answers.get("busy", 0):
        end(["", "Cannot connect to the Docker daemon", 1])
    end([open(root + "/container").read() if os.path.exists(root + "/container") else "", "", 0])
if word == "rm":
    os.path.exists(root + "/container") and os.unlink(root + "/container")
    end(["", "", 0])
if word == "kill":
    end(["", "", 0])
argv = sys.argv
time.sleep(answers.get("slow", 0))  # before there is a container
for path, text in ((root + "/container", "c1d\\n"), (argv[argv.index("--cidfile") + 1], "c1d")):
    # Whole or not at all: who waits for it reads it at once.
    with open(path + ".part", "w") as file:
        file.write(text)
    os.replace(path + ".part", path)
print(answers.get("print", "hello"), flush=True)
time.sleep(answers.get("sleep", 0))
mounts = [argv[i + 1] for i, arg in enumerate(argv) if arg == "--mount"]
import csv
for mount in csv.reader(mounts):
    parts = dict(part.partition("=")[::2] for part in mount)
    if parts["target"] == "/out" and answers.get("leaves", True):
        open(parts["source"] + "/suite.json", "w").write("{{}}")
os.unlink(root + "/container")
sys.exit(answers.get("code", 0))
"""
