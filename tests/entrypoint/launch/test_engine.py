"""The container of the legs, in a real engine."""

import os
import signal
import time
import uuid
from collections.abc import Iterator

import pytest

from tests.container.conftest import checkout as checkout
from tests.container.conftest import engine as engine
from tests.container.conftest import framework_image as framework_image
from tests.container.conftest import image as image
from tests.container.docker import docker
from tests.entrypoint.launch.bench import SECRET, Bench, end_by, processes, shell_suite, wait_for

pytestmark = pytest.mark.slow

LOOK = r"""
import os, socket, sys

def tried(what, act):
    try:
        act()
    except OSError as error:
        print(what, "refused:", error.strerror)
    else:
        print(what, "allowed")

def connect(address):
    with socket.create_connection(address, timeout=5):
        pass

def unix(path):
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(path)

print("env", sorted(os.environ.items()))
print("argv of init", open("/proc/1/cmdline").read().split("\0"))
print("user", os.getuid(), os.getgroups())
print(open("/proc/self/status").read())
print(open("/proc/self/mountinfo").read())
print("interfaces", sorted(os.listdir("/sys/class/net")))
print("config", repr(open(".git/config").read()))
tried("network", lambda: connect(("1.1.1.1", 443)))
tried("gateway", lambda: connect(("172.17.0.1", 22)))
tried("socket", lambda: unix("/var/run/docker.sock"))
for path in ("/src/x", "/x", "/etc/x", "/opt/parity/x", "/src/parity-out/launch.json"):
    tried(path, lambda: open(path, "a").close())
for path in ("/tmp/x", "/out/x", "/dev/shm/x"):
    tried(path, lambda: open(path, "a").close())
"""

TRAIN = r"""
import torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
print("sum", one.item(), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def real(bench: Bench, image: str) -> Iterator[Bench]:
    """A runner with a real Docker."""
    bench.env |= {"PATH": os.environ["PATH"], "INPUT_ISOLATION": "docker", "INPUT_IMAGE": image, "INPUT_GPUS": "none"}
    bench.env |= {name: value for name, value in os.environ.items() if name.startswith("DOCKER_")}
    bench.env["GITHUB_RUN_ID"] = uuid.uuid4().hex  # tests run at the same time
    yield bench
    left = containers(bench)
    if left:
        docker("rm", "--force", *left)


def label(bench: Bench) -> str:
    return f"org.parity-action.run={bench.env['GITHUB_RUN_ID']}-2-gpu_tests-runner-1"


def containers(bench: Bench) -> list[str]:
    return docker("ps", "--all", "--quiet", "--filter", f"label={label(bench)}").stdout.split()


def test_a_hostile_leg_finds_nothing_to_take(real: Bench) -> None:
    (real.workspace / "look.py").write_text(LOOK)
    (real.workspace / "parity.yml").write_text(shell_suite("python3 look.py"))
    (real.workspace / ".git").mkdir()
    (real.workspace / ".git" / "config").write_text(f"[http]\n\textraheader = AUTHORIZATION: basic {SECRET}\n")
    done = real.launch()
    assert done.code == 0, done.err
    log = done.log()
    assert SECRET not in log
    for word in ("GITHUB_", "ACTIONS_", "INPUT_", "_runner_file_commands"):
        assert word not in log
    assert "interfaces ['lo']" in log
    assert "config ''" in log
    for line in (
        "network",
        "gateway",
        "socket",
        "/src/x",
        "/x",
        "/etc/x",
        "/opt/parity/x",
        "/src/parity-out/launch.json",
    ):
        assert f"\n{line} refused" in log
    for line in ("/tmp/x", "/out/x", "/dev/shm/x"):
        assert f"\n{line} allowed" in log
    assert f"\nuser {os.getuid() or 65534} " in log
    for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert f"{name}:\t0000000000000000" in log
    assert "NoNewPrivs:\t1" in log
    assert "Seccomp:\t2" in log
    assert containers(real) == []


def test_the_embedded_suite_needs_no_network(real: Bench) -> None:
    done = real.launch()
    assert (done.code, done.err) == (0, "")
    note = done.note
    assert (note["how"], note["exit_code"], note["isolation"]) == ("finished", 0, "docker")
    assert note["image"]["id"].startswith("sha256:")
    assert "parity: pass" in done.out


def test_torchrun_needs_no_network(real: Bench) -> None:
    (real.workspace / "train.py").write_text(TRAIN)
    (real.workspace / "parity.yml").write_text(shell_suite("torchrun --standalone --nproc-per-node 2 train.py"))
    done = real.launch()
    assert done.code == 0, done.err
    assert done.log().count("sum 2.0") == 2


@pytest.mark.parametrize("name", ["image", "framework_image"])
def test_setup_installs_without_a_writable_image(name: str, real: Bench, request: pytest.FixtureRequest) -> None:
    (real.workspace / "theirs").mkdir()
    (real.workspace / "theirs" / "__init__.py").write_text("from click import *\n")
    # A module that would break parity, were it installed over what parity imports.
    (real.workspace / "pydantic.py").write_text("raise SystemExit('taken')")
    (real.workspace / "setup.py").write_text(
        "from setuptools import setup\n"
        "setup(name='theirs', version='1', packages=['theirs'], py_modules=['pydantic'],\n"
        "      entry_points={'console_scripts': ['theirs = builtins:print']})\n"
    )
    command = "cd /; theirs; python -c 'import theirs, torch; print(theirs.__file__)'; torchrun --help | head -n 1"
    (real.workspace / "parity.yml").write_text(shell_suite(command))
    setup = "pip install --no-deps --no-build-isolation --no-index ."
    done = real.launch(setup=setup, image=request.getfixturevalue(name))
    assert done.code == 0, done.out + done.err
    assert "/tmp/setup/lib/python3" in done.log()
    assert "usage: torchrun" in done.log()
    assert sorted(path.name for path in real.workspace.iterdir()) == [
        *("parity-out", "parity.yml", "pydantic.py", "setup.py", "theirs"),
    ]


def test_a_setup_that_fails_runs_no_leg(real: Bench) -> None:
    done = real.launch(setup="echo 'it is $HOME'; exit 3")
    assert done.code == 4
    assert "it is $HOME" in done.out
    assert "setup: the command ended with exit code 3" in done.out
    assert not (done.folder / "run" / "suite.json").exists()


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_signal_leaves_no_container(signum: int, code: int, real: Bench) -> None:
    (real.workspace / "parity.yml").write_text(shell_suite("touch /out/started; trap '' INT TERM; sleep 600 & wait"))
    process = real.start()
    wait_for((real.workspace / "parity-out" / "run" / "started").exists)
    assert len(containers(real)) == 1
    end_by(process, signum)
    wait_for(lambda: containers(real) == [])
    wait_for(lambda: processes(str(real.root)) == [])
    done = real.end(process)
    assert done.code == code
    if code > 0:
        assert done.note["how"] == "interrupted"
        assert (done.folder / "run" / "suite.json").exists()


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.2, 0.4, 0.7, 1.0])
def test_a_signal_leaves_no_container_however_early_it_comes(delay: float, real: Bench) -> None:
    process = real.start()
    assert process.stdout is not None
    assert process.stdout.readline().startswith("legs: run in a container")
    time.sleep(delay)
    end_by(process, signal.SIGINT)
    assert containers(real) == []
    real.end(process)
    time.sleep(2)
    assert containers(real) == []


def test_a_timeout_leaves_no_container(real: Bench) -> None:
    (real.workspace / "parity.yml").write_text(shell_suite("sleep 600"))
    done = real.launch(timeout="12")
    assert done.note["how"] == "timed out"
    assert containers(real) == []


def test_an_image_without_parity(real: Bench, engine: str) -> None:
    done = real.launch(image=engine)
    assert done.code == 4
    assert "legs: the container did not start (exit code 127), as the output above says" in done.err


def test_cleanup_leaves_other_jobs_alone(real: Bench, engine: str) -> None:
    docker("run", "--detach", "--label", label(real), engine, "sleep", "600")
    other = docker("run", "--detach", "--rm", "--label", f"{label(real)}1", engine, "sleep", "60").stdout.strip()
    try:
        done = real.launch("cleanup")
        assert (done.code, done.out) == (0, "cleanup: removed 1 container\n")
        assert docker("ps", "--quiet", "--filter", f"id={other}").stdout
    finally:
        docker("rm", "--force", other)


def test_what_a_leg_prints_reaches_the_log_and_is_no_command(real: Bench) -> None:
    done = real.launch(setup="printf '::error::x\\r::set-output name=a::b ##[group]c\\n'")
    assert ":\u200b:error:\u200b:x" in done.out
    assert done.out.count("::") == 4, "the two that stop and start commands"
