"""What the preflight finds: one line each, that names what is missing and what to do."""

import json
from pathlib import Path

import pytest

from entrypoint.commands import defuse
from entrypoint.inputs import Inputs
from entrypoint.launching import preflight as module
from entrypoint.launching.engine import Engine
from entrypoint.launching.gpus import choose, wanted
from tests.entrypoint.launch.bench import Bench

IMAGE = {"isolation": "docker", "image": "r/i:1"}
NVIDIA = {"ServerVersion": "27.1", "Runtimes": {"runc": {}, "nvidia": {}}}


def refused(bench: Bench, code: int, *words: str, **inputs: str) -> str:
    """The lines of a launch that does not come to run anything."""
    done = bench.launch(**{**IMAGE, **inputs})
    assert (done.code, bench.calls()) == (code, [])
    assert done.note["how"] == "not started"
    assert defuse(done.note["error"]) in done.err
    for word in words:
        assert word in done.err, done.err
    assert "Traceback" not in done.err
    return done.err


def test_no_docker(bench: Bench) -> None:
    refused(bench, 4, "docker: no such program: docker; install Docker or podman, or isolation: process")


def test_daemon_does_not_answer(bench: Bench) -> None:
    said = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
    bench.docker(info=[json.dumps({"ServerErrors": [said]}), said, 1])
    assert refused(bench, 4, said, "start it, as in `sudo systemctl start docker`").count("\n") == 1


def test_permission_denied_on_the_socket(bench: Bench) -> None:
    said = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"
    bench.docker(info=["", said, 1])
    refused(bench, 4, "sudo usermod -aG docker $USER")


def test_image_cannot_be_pulled(bench: Bench) -> None:
    bench.docker(pulled=["", "Error response from daemon: manifest unknown\n", 1])
    done = bench.launch(**IMAGE)
    assert "image: r/i:1 is not on this machine and is pulled" in done.out
    assert (
        "image: r/i:1 is not on this machine and cannot be pulled: Error response from daemon: manifest" in done.err
    )
    assert done.code == 4


def test_image_is_pulled(bench: Bench) -> None:
    bench.docker(pulled=["", "", 0])
    assert bench.launch(**IMAGE).code == 0


@pytest.mark.parametrize("image", ["", "--privileged", "-v/:/host", "a b"])
def test_image_is_no_name(bench: Bench, image: str) -> None:
    bench.docker()
    refused(bench, 2, "image: ", image=image)


def test_no_driver(bench: Bench) -> None:
    bench.docker()
    refused(bench, 4, "gpus: nvidia-smi is missing: install the NVIDIA driver, or say gpus: none", gpus="all")


def test_driver_fails(bench: Bench) -> None:
    bench.docker()
    bench.nvidia_smi("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", code=9)
    refused(bench, 4, "gpus: nvidia-smi fails (NVIDIA-SMI has failed", gpus="0")


def test_no_toolkit(bench: Bench) -> None:
    bench.docker()
    bench.nvidia_smi()
    refused(bench, 4, "install the NVIDIA Container Toolkit", gpus="all")


def test_toolkit_that_docker_does_not_know(bench: Bench) -> None:
    bench.docker()
    bench.nvidia_smi()
    bench.program("nvidia-ctk", "")
    refused(bench, 4, "sudo nvidia-ctk runtime configure --runtime=docker", gpus="0,1")


def test_unknown_gpu(bench: Bench) -> None:
    bench.docker(info=[json.dumps(NVIDIA), "", 0])
    bench.nvidia_smi()
    refused(bench, 4, "gpus: no GPU 7 here; there is 0, 1", gpus="0,7")


def test_auto_without_a_gpu_says_nothing(bench: Bench) -> None:
    bench.docker()
    done = bench.launch(**IMAGE)
    assert (done.code, done.note["preflight"]) == (0, [])


def test_auto_with_gpus_that_no_container_gets_is_a_warning(bench: Bench) -> None:
    bench.docker()
    bench.nvidia_smi()
    done = bench.launch(**IMAGE)
    assert done.code == 0
    assert "until then the legs run without the 2 GPUs here" in done.out


def test_busy_gpu_is_a_warning_that_names_the_process(bench: Bench) -> None:
    bench.docker(info=[json.dumps(NVIDIA), "", 0])
    bench.nvidia_smi(apps="GPU-aa, 4242, /usr/bin/python3, 10240 MiB\nGPU-bb, 4243, other, 1 MiB\n")
    done = bench.launch(**IMAGE, gpus="0")
    assert done.code == 0
    assert "warning: gpus: GPU 0 is in use by process 4242 (python3, 10240 MiB)" in done.out
    assert "4243" not in done.out


def test_gpus_by_the_runtime(bench: Bench) -> None:
    bench.docker(info=[json.dumps(NVIDIA), "", 0])
    bench.nvidia_smi()
    done = bench.launch(**IMAGE, gpus="0,1")
    argv = bench.calls()[0]["argv"]
    assert argv[argv.index("--gpus") + 1] == '"device=0,1"'
    assert done.note["gpus"] == {"asked": "0,1", "devices": ["0", "1"], "method": "gpus"}


def test_gpus_by_cdi_where_the_daemon_reads_it(bench: Bench) -> None:
    (bench.root / "cdi").mkdir()
    (bench.root / "cdi" / "nvidia.yaml").write_text("cdiVersion: 0.6.0\nkind: nvidia.com/gpu\n")
    bench.docker(info=[json.dumps({**NVIDIA, "CDISpecDirs": [str(bench.root / "cdi")]}), "", 0])
    bench.nvidia_smi()
    bench.launch(**IMAGE)
    argv = bench.calls()[0]["argv"]
    assert argv[argv.index("--device") + 1] == "nvidia.com/gpu=all"
    assert "--gpus" not in argv


@pytest.mark.parametrize(
    ("gpus", "given", "asked"),
    [
        ("auto", None, "auto"),
        ("auto", "all", "auto"),
        ("auto", "void", "none"),
        ("all", "2,3", "2,3"),
        ("auto", "GPU-aa", "GPU-aa"),
        ("auto", "0; rm", "auto"),
        ("1", "2,3", "1"),
        ("none", "2,3", "none"),
    ],
)
def test_wanted_are_those_that_the_runner_was_given(gpus: str, given: str | None, asked: str) -> None:
    assert wanted(gpus, {} if given is None else {"NVIDIA_VISIBLE_DEVICES": given}) == asked


def test_gpus_of_the_runner_that_are_not_there_are_missed_though_auto(bench: Bench) -> None:
    found, findings = choose("auto", Engine("docker", {}, NVIDIA), {"NVIDIA_VISIBLE_DEVICES": "0", "PATH": "/none"})
    assert (found.devices, [one.exit_code for one in findings]) == ((), [4])


def test_little_shared_memory(bench: Bench) -> None:
    bench.docker()
    assert "warning: shm-size: 64m of shared memory is little" in bench.launch(**IMAGE, shm_size="64m").out
    assert "shm-size" not in bench.launch(**IMAGE, shm_size="1g").out


def test_host_network_is_a_warning(bench: Bench) -> None:
    bench.docker()
    assert "warning: network: the legs reach whatever this machine does" in bench.launch(**IMAGE, network="host").out


def test_little_disk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def left(free: int) -> list[str]:
        monkeypatch.setattr("shutil.disk_usage", lambda path: type("usage", (), {"total": 1 << 40, "free": free}))
        ready = module.preflight(Inputs(isolation="process"), bench.env, bench.workspace)
        return [str(one) for one in ready.findings if one.name == "out"]

    assert left(2 << 30) == []
    assert left(500 << 20) == [f"warning: out: {bench.workspace}: 500 MiB are free, which many legs' logs may fill"]
    assert left(1 << 20) == [f"out: {bench.workspace}: 1 MiB are free: free some disk"]


@pytest.mark.parametrize(
    ("suite", "line"),
    [
        ("nothing.yml", "suite: nothing.yml: no such file in the repository"),
        ("parity", "suite: parity: no such file in the repository"),
        ("../out.yml", "suite: ../out.yml: leads out of the repository"),
        ("link.yml", "suite: link.yml: leads out of the repository"),
        ("linked/out.yml", "suite: linked/out.yml: leads out of the repository"),
        ("/etc/passwd", "suite: /etc/passwd: leads out of the repository"),
        ("folder", "suite: folder: is no file"),
        ("-x", "suite: -x: no such file"),
        ("a\n::error::b", "suite: a :\u200b:error"),
    ],
)
def test_a_suite_is_a_file_of_the_repository_or_a_recipe(bench: Bench, suite: str, line: str) -> None:
    (bench.root / "out.yml").write_text("x")
    (bench.workspace / "link.yml").symlink_to(bench.root / "out.yml")
    (bench.workspace / "linked").symlink_to(bench.root)
    (bench.workspace / "folder").mkdir()
    bench.docker()
    assert "::error" not in refused(bench, 2, line, suite=suite)


@pytest.mark.parametrize(
    ("suite", "word"),
    [
        ("embedded/tensor-parallel", "embedded/tensor-parallel"),
        ("a/../parity.yml", "parity.yml"),
        ("inner.yml", "inner.yml"),
        ("-parity.yml", "./-parity.yml"),
    ],
)
def test_a_suite_that_is_taken(bench: Bench, suite: str, word: str) -> None:
    (bench.workspace / "a").mkdir()
    (bench.workspace / "inner.yml").symlink_to("parity.yml")
    (bench.workspace / "-parity.yml").write_text("x")
    bench.docker()
    assert bench.launch(**IMAGE, suite=suite).code == 0
    assert bench.calls()[0]["argv"][-3] == word


def test_all_is_said_at_once(bench: Bench) -> None:
    bench.docker()
    err = refused(bench, 2, suite="nothing.yml", gpus="all", image="-")
    assert [line.partition(":")[0] for line in err.splitlines()] == ["suite", "image"]


def test_preflight_alone_runs_nothing_and_keeps_an_earlier_run(bench: Bench) -> None:
    bench.docker()
    assert bench.launch(**IMAGE).code == 0
    done = bench.launch("preflight", **IMAGE, gpus="all")
    assert done.code == 4
    assert (done.folder / "run" / "suite.json").exists()
    assert len(bench.calls()) == 1


def test_a_wrong_input_is_one_line(bench: Bench) -> None:
    done = bench.launch(isolation="jail")
    assert (done.code, done.err) == (2, "isolation: 'jail' is none of auto, docker, process\n")
    done = bench.launch("destroy")
    assert (done.code, done.err) == (2, "destroy: none of run, preflight, cleanup\n")


def test_the_output_folder_is_reached_by_no_link_of_the_repository(bench: Bench) -> None:
    (bench.root / "home").mkdir()
    (bench.root / "home" / "suite.json").write_text("mine")
    (bench.workspace / "parity-out").symlink_to(bench.root / "home")
    bench.docker()
    done = bench.launch(**IMAGE)
    assert done.code == 2
    assert "parity-out: is a link, which the repository may hold" in done.err
    assert [path.name for path in (bench.root / "home").iterdir()] == ["suite.json"]
    assert not done.folder.is_symlink(), "an upload would follow it"
    assert "is a link" in done.note["error"]


def test_links_in_the_output_folder_are_replaced_and_not_followed(bench: Bench) -> None:
    victim = bench.root / "victim"
    victim.mkdir()
    (victim / "suite.json").write_text("mine")
    out = bench.workspace / "parity-out"
    out.mkdir()
    (out / "run").symlink_to(victim)
    (out / "launch.json").symlink_to(victim / "suite.json")
    bench.docker()
    assert bench.launch(**IMAGE).code == 0
    assert (victim / "suite.json").read_text() == "mine"
    assert not (out / "run").is_symlink()
    assert not (out / "launch.json").is_symlink()


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_folder_of_somebody_elses_is_not_emptied(by_hand: bool, bench: Bench) -> None:
    folder = bench.workspace / "parity-out" if by_hand else bench.root / "papers"
    if by_hand:
        del bench.env["GITHUB_WORKSPACE"]
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "thesis.tex").write_text("years of work")
    (folder / "link").symlink_to("run")
    bench.docker()
    done = bench.launch(**IMAGE, out=str(folder))
    assert done.code == 2
    assert "holds files that are not from a run" in done.err
    assert (folder / "run" / "thesis.tex").exists()
    assert (folder / "link").is_symlink()


def test_output_folder_below_a_file(bench: Bench) -> None:
    bench.docker()
    done = bench.launch(**IMAGE, out="parity.yml/out")
    assert done.code == 2
    assert "is a file, or lies below one" in done.err


def test_sha_by_hand(tmp_path: Path) -> None:
    from entrypoint.launching.source import Source, tested_sha

    source, sha = Source({"GITHUB_WORKSPACE": str(tmp_path)}), "ab" * 20
    assert tested_sha(source) is None
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(f"{sha}\n")
    assert tested_sha(source) == sha
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/a/b\n")
    (tmp_path / ".git" / "packed-refs").write_text(f"# pack-refs\n{'cd' * 20} refs/heads/a\n{sha} refs/heads/a/b\n")
    assert tested_sha(source) == sha
    (tmp_path / "secret").write_text(sha)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/../../secret\n")
    assert tested_sha(source) is None


def test_isolation_auto(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def decided(**env: str) -> tuple[str, str]:
        monkeypatch.setattr(module, "inside_container", lambda env: inside)
        ready = module.preflight(Inputs(image="r/i"), {**bench.env, **env}, bench.workspace)
        return ready.isolation, ready.why

    inside = ""
    assert decided() == ("process", "there is no docker on this machine")
    # A daemon that does not answer is to be mended, and nothing to run untrusted code unisolated for.
    bench.docker(info=["", "permission denied", 1])
    assert decided()[0] == "docker"
    inside = "it runs in a Kubernetes pod"
    assert decided() == ("process", "this job itself runs in a container: it runs in a Kubernetes pod")


def test_inside_container(tmp_path: Path) -> None:
    from entrypoint.launching.source import inside_container

    assert inside_container({}, tmp_path) == ""
    same = {"GITHUB_WORKSPACE": "/w/r", "PARITY_HOST_WORKSPACE": "/w/r/"}
    assert inside_container(same, tmp_path) == ""
    assert "another path" in inside_container({**same, "GITHUB_WORKSPACE": "/__w/r"}, tmp_path)
    assert "Kubernetes" in inside_container({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".containerenv").touch()
    assert "/run/.containerenv" in inside_container({}, tmp_path)
