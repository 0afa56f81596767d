"""The programs that hold a token run in an environment that the code under test has no part in."""

import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from entrypoint import trusted

TOKEN = "ghs_secret"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(roots: list[str]) -> set[str]:
    """Return all that these distributions are installed with."""
    found: set[str] = set()
    while roots:
        name = canonical(roots.pop())
        if name not in found:
            found.add(name)
            asked = [Requirement(text) for text in requires(name) or []]
            roots += [one.name for one in asked if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def test_what_is_installed_is_what_is_needed_without_torch() -> None:
    asked = [Requirement(text) for text in requires("parity-action") or [] if "extra ==" not in text]
    lines = trusted.requirements((trusted.ACTION / "requirements.lock").read_text()).splitlines()
    assert {canonical(line.split("==")[0]) for line in lines} == needed([r.name for r in asked if r.name != "torch"])


def test_hashes_stay_with_what_they_are_of() -> None:
    lock = "Click==8.5.1 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\ntorch==2.13.0 \\\n    --hash=sha256:cc\n"
    assert trusted.requirements(lock).split() == ["Click==8.5.1", "--hash=sha256:aa", "--hash=sha256:bb"]


@pytest.mark.slow
def test_what_lies_in_the_workspace_is_not_imported(tmp_path: Path) -> None:
    """For real: from the package index."""
    workspace = tmp_path / "workspace"
    for name in (
        "requests.py",
        "sitecustomize.py",
        "venv.py",
        "re.py",
        "pip.py",
        "ensurepip.py",
        "entrypoint/gate.py",
        "entrypoint/__init__.py",
    ):
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import os\nos.write(1, b'PWNED')\n")
    (workspace / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:1\n")
    env = {**os.environ, "RUNNER_TEMP": str(tmp_path), "PYTHONPATH": str(workspace), "INPUT_TOKEN": TOKEN}
    env.pop("GITHUB_REPOSITORY", None)
    done = subprocess.run(
        ["python3", "-I", trusted.__file__, "gate"],
        cwd=workspace,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "::error::GITHUB_REPOSITORY is not set: this program runs as a step of a job on GitHub\n"
    assert done.returncode == 2
    assert len(list(tmp_path.glob("parity-trusted-*"))) == 1


def test_no_environment_that_is_there_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found may be the legs' own."""
    commands: list[list[str]] = []

    def run(env: dict[str, str], command: list[str]) -> "subprocess.CompletedProcess[str]":
        commands.append(command)
        if "venv" in command:
            (Path(command[-1]) / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
        if "--target" in command:
            assert (env["PIP_REQUIRE_VIRTUALENV"], env["PIP_USER"]) == ("0", "0")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(trusted, "_tokenless", run)
    found = {trusted.environment({"RUNNER_TEMP": str(tmp_path), "INPUT_MODE": "all"}) for _ in range(2)}
    assert len(found) == 2
    assert all(path.parents[1].stat().st_mode & 0o777 == 0o700 for path in found)
    assert {command[1] for command in commands} == {"-I"}
    pips = [command for command in commands if "--target" in command]
    assert [command[3:6] for command in pips] == [["pip", "--disable-pip-version-check", "install"]] * 2
    assert all(command[command.index("--target") + 1].startswith(str(tmp_path)) for command in pips)
    assert all("--no-cache-dir" in command for command in pips)


def test_nothing_that_makes_the_environment_sees_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an interpreter of the runner's imports by itself."""
    python = tmp_path / "python"
    python.write_text(f"""#!/bin/sh
env >>{tmp_path}/seen
for made; do :; done
case $* in
    *venv*) mkdir -p "$made/bin" "$made/lib/python3.11/site-packages" && ln -s "$0" "$made/bin/python" ;;
    *pip*) exit 1 ;;
esac
""")
    python.chmod(0o755)
    monkeypatch.setattr(trusted, "_python", lambda env: str(python))
    given = {"PATH": os.environ["PATH"], "GIVEN": "yes", "RUNNER_TEMP": str(tmp_path), "INPUT_TOKEN": TOKEN}
    with pytest.raises(trusted.Unavailable, match="there is no pip"):
        trusted.environment(given)
    seen = (tmp_path / "seen").read_text()
    assert seen.count("GIVEN=yes") == 3
    assert TOKEN not in seen


@pytest.mark.slow
@pytest.mark.parametrize("has_pip", [True, False])
def test_a_runner_s_pip_is_used_and_one_without_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_pip: bool
) -> None:
    """For real: from the package index."""
    (tmp_path / "requirements.lock").write_text("idna==3.20\ntorch==2.13.0\n")
    monkeypatch.setattr(trusted, "ACTION", tmp_path)
    monkeypatch.setattr(trusted, "_pip_works", lambda env, python: has_pip)
    python = trusted.environment({**os.environ, "RUNNER_TEMP": str(tmp_path)})
    code = "import idna; print(idna.__file__)"
    told = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.startswith(str(python.parents[1]))
    assert len(list(python.parent.glob("pip*"))) == (0 if has_pip else 2)


@pytest.fixture
def old_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a runner with an old Python, and with a program `docker`."""
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    docker.chmod(0o755)
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    (tmp_path / "event.json").write_text("{}")
    return {
        "PATH": str(docker.parent),
        "INPUT_TOKEN": TOKEN,
        "INPUT_IMAGE": "parity@sha256:0",
        "GITHUB_WORKSPACE": str(tmp_path / "workspace"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "AWS_SECRET_ACCESS_KEY": "x",
    }


def test_an_old_runner_has_no_environment(old_runner: dict[str, str]) -> None:
    with pytest.raises(trusted.Unavailable, match=r"no Python 3\.11 or newer"):
        trusted.environment(old_runner)


def test_another_python_on_the_path_will_do(old_runner: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    newer = Path(old_runner["PATH"]) / "python3.12"
    newer.write_text("#!/bin/sh\nexit 1\n")
    newer.chmod(0o755)
    with pytest.raises(trusted.Unavailable, match="no virtual environment"):
        trusted.environment({**old_runner, "RUNNER_TEMP": old_runner["PATH"]})
    assert [path.name for path in newer.parent.glob("parity-trusted-*")] == []


def test_an_old_runner_uses_the_image(
    old_runner: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(os, "execvpe", lambda _file, argv, _env: called.append(argv))
    trusted.main(["publish"], old_runner)
    (argv,) = called
    assert argv[-4:] == ["parity@sha256:0", "-I", "-m", "entrypoint.publish"]
    assert TOKEN not in " ".join(argv)
    named = [argv[i + 1] for i, word in enumerate(argv) if word == "--env"]
    assert set(named) == set(old_runner) - {"PATH", "AWS_SECRET_ACCESS_KEY"}
    mounts = [argv[i + 1] for i, word in enumerate(argv) if word == "--mount"]
    workspace = f"{tmp_path}/workspace"
    assert mounts == [
        f"type=bind,source={workspace},target={workspace},readonly",
        f"type=bind,source={workspace}/parity-out,target={workspace}/parity-out",
        f"type=bind,source={tmp_path}/output,target={tmp_path}/output",
        f"type=bind,source={tmp_path}/event.json,target={tmp_path}/event.json,readonly",
    ]


def test_the_gate_writes_nothing_of_the_workspace(old_runner: dict[str, str], tmp_path: Path) -> None:
    argv = trusted.in_container(old_runner, ["gate"])
    assert f"type=bind,source={tmp_path}/workspace,target={tmp_path}/workspace,readonly" in argv
    assert not (tmp_path / "workspace").exists()


def test_a_link_in_the_checkout_leads_nowhere(old_runner: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "parity-out").symlink_to(tmp_path)
    argv = trusted.in_container(old_runner, ["publish"])
    assert [word for word in argv if "parity-out" in word] == []


@pytest.mark.parametrize(
    ("change", "line"),
    [({"PATH": "/nowhere"}, "there is no docker"), ({"INPUT_IMAGE": ""}, "the input `image` names none")],
)
def test_where_neither_is_there_one_line_says_both(
    old_runner: dict[str, str], capsys: pytest.CaptureFixture[str], change: dict[str, str], line: str
) -> None:
    assert trusted.main(["gate"], {**old_runner, **change}) == 4
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == f"::error::there is no Python 3.11 or newer on this runner, and {line}"


def test_only_its_own_programs_are_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert trusted.main(["launch"], {}) == 2
    assert "usage" in capsys.readouterr().err
