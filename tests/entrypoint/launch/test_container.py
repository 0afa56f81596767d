"""The container of the legs, by what a stand-in for Docker is called with."""

import csv
import json
import os
import signal
from pathlib import Path

import pytest

from entrypoint.launching.container import Container, environment
from entrypoint.launching.engine import Engine
from entrypoint.launching.gpus import Gpus
from entrypoint.launching.preflight import identity
from entrypoint.launching.source import Source, credentials
from entrypoint.launching.tree import Counts, sweep
from tests.entrypoint.launch.bench import SECRET, Bench, end_by, processes, wait_for

IMAGE = {"isolation": "docker", "image": "r/i:1", "gpus": "none"}


def options(argv: list[str], name: str) -> list[str]:
    return [argv[i + 1] for i, word in enumerate(argv) if word == name]


def mounts(argv: list[str]) -> dict[str, dict[str, str]]:
    """By where they are in the container."""
    rows = [dict(part.partition("=")[::2] for part in row) for row in csv.reader(options(argv, "--mount"))]
    return {row["target"]: row for row in rows}


def test_it_holds_no_token_no_socket_and_no_file_of_the_runner(bench: Bench) -> None:
    bench.docker()
    assert bench.launch(**IMAGE).code == 0
    for call in bench.calls():
        text = json.dumps(call)
        for word in (SECRET, "docker.sock", "_runner_file_commands", "ACTIONS_", "GITHUB_", "INPUT_", "invalid"):
            assert word not in text.replace(str(bench.workspace), "")
    (call,) = bench.calls()
    assert {entry.partition("=")[0] for entry in options(call["argv"], "--env")} == {
        *("CI", "HOME", "TMPDIR", "USER", "LOGNAME", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"),
        *("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
        *(case(f"{kind}_proxy") for kind in ("http", "https", "ftp", "all", "no") for case in (str.lower, str.upper)),
        "NVIDIA_VISIBLE_DEVICES",
    }
    assert all(not entry.partition("=")[2] for entry in options(call["argv"], "--env") if "proxy" in entry.lower())


def test_it_may_do_nothing_but_write_to_one_folder(bench: Bench) -> None:
    bench.docker()
    done = bench.launch(**IMAGE, shm_size="2g")
    (call,) = bench.calls()
    argv = call["argv"]
    assert mounts(argv) == {
        "/src": {"type": "bind", "source": str(bench.workspace), "target": "/src", "readonly": ""},
        "/out": {"type": "bind", "source": str(done.folder / "run"), "target": "/out"},
    }
    assert options(argv, "--network") == ["none"]
    assert options(argv, "--cap-drop") == ["ALL"]
    assert options(argv, "--security-opt") == ["no-new-privileges"]
    assert options(argv, "--pids-limit") == ["4096"]
    assert options(argv, "--shm-size") == ["2g"]
    assert options(argv, "--workdir") == ["/src"]
    assert options(argv, "--pull") == ["never"]
    assert {"--rm", "--init", "--read-only"} <= set(argv)
    assert "--privileged" not in argv
    assert options(argv, "--tmpfs")[0].startswith("/tmp:rw,exec,nosuid,nodev")
    assert options(argv, "--user")[0].partition(":")[0] == str(os.getuid() or 65534)
    assert argv[argv.index("r/i:1") :] == ["r/i:1", "run", "parity.yml", "--out", "/out"]
    assert options(argv, "--label")[:2] == ["org.parity-action=1", "org.parity-action.run=77-2-gpu_tests-runner-1"]


def test_launch_json_says_how(bench: Bench) -> None:
    sha = "0123456789" * 4
    (bench.workspace / ".git" / "refs" / "heads").mkdir(parents=True)
    (bench.workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (bench.workspace / ".git" / "refs" / "heads" / "main").write_text(sha + "\n")
    bench.docker(code=1)
    done = bench.launch(**IMAGE)
    assert done.code == 0, "the verdict is for publish to tell"
    note = done.note
    assert note["argv"] == ["docker", *bench.calls()[0]["argv"][1:]]
    assert {key: note[key] for key in ("isolation", "how", "exit_code", "error", "tested_sha", "network")} == {
        "isolation": "docker",
        "how": "finished",
        "exit_code": 1,
        "error": None,
        "tested_sha": sha,
        "network": "none",
    }
    assert note["image"] == {"name": "r/i:1", "id": "sha256:aa", "digest": "r/i@sha256:bb"}
    assert note["engine"] == {"name": "docker", "version": "27.1"}
    assert note["output"] == {"files": 1, "bytes": 2, "removed": 0, "renamed": 0}
    assert note["runner"]["os"] == "Linux"
    assert SECRET not in json.dumps(note)


def test_a_job_in_a_container_names_the_paths_of_the_host(bench: Bench) -> None:
    bench.docker(leaves=False)
    bench.env["PARITY_HOST_WORKSPACE"] = "/home/runner/_work/r/r"
    bench.launch(**IMAGE)
    found = mounts(bench.calls()[0]["argv"])
    assert found["/src"]["source"] == "/home/runner/_work/r/r"
    assert found["/out"]["source"] == "/home/runner/_work/r/r/parity-out/run"


def test_an_output_folder_of_the_jobs_container_alone_is_refused(bench: Bench) -> None:
    bench.docker()
    bench.env["PARITY_HOST_WORKSPACE"] = "/home/runner/_work/r/r"
    done = bench.launch(**IMAGE, out=str(bench.root / "elsewhere"))
    assert (done.code, bench.calls()) == (2, [])
    assert "is a folder of this job's container alone" in done.err


def test_setup_is_one_word_for_a_shell_in_the_container(bench: Bench) -> None:
    bench.docker()
    setup = "pip install 'a b' && echo \"$HOME\" > /tmp/x; touch pwned"
    assert bench.launch(**IMAGE, setup=setup, network="bridge").code == 0
    (call,) = bench.calls()
    argv = call["argv"]
    assert options(argv, "--entrypoint") == ["sh"]
    words = argv[argv.index("r/i:1") + 1 :]
    assert words[0] == "-c"
    assert words[-6:] == [setup, "parity", "run", "parity.yml", "--out", "/out"]
    assert options(argv, "--network") == ["bridge"]
    assert not list(bench.root.rglob("pwned"))


def test_a_setup_that_fails_is_not_taken_for_a_verdict(bench: Bench) -> None:
    bench.docker(code=90, leaves=False)
    done = bench.launch(**IMAGE, setup="false")
    assert done.code == 4
    assert "setup: failed after" in done.err
    assert "setup: the container has no network" not in done.err


def test_token_that_checkout_left_is_hidden(bench: Bench) -> None:
    (bench.workspace / ".git" / "modules" / "a").mkdir(parents=True)
    (bench.workspace / ".git" / "config").write_text('[http "https://h/"]\n\textraheader = AUTHORIZATION: basic x\n')
    (bench.workspace / ".git" / "modules" / "a" / "config").write_text("[remote]\n\turl = https://u:p@h/r\n")
    bench.docker()
    done = bench.launch(**IMAGE)
    found = mounts(bench.calls()[0]["argv"])
    for name in ("config", "modules/a/config"):
        assert found[f"/src/.git/{name}"]["source"] == "/dev/null"
    assert "persist-credentials: false" in done.out


LEAKS = {
    "second/.git/config": '[http "https://h/"]\n\textraheader = AUTHORIZATION: basic x\n',
    ".git/modules/a/modules/b/config": "[remote]\n\turl = https://u:p@h/r\n",
    ".git/worktrees/w/config.worktree": '[url "https://x-access-token:t@h/"]\n\tinsteadOf = https://h/\n',
    "third/.git/config": "[http]\n\tproxy = http://user:pass@proxy:3128\n",
    "bare.git/config": "[credential] helper = store\n",
    "mirror/config": "[remote]\n\turl = https://u:p@h/r\n",
    "gha-creds-0123.json": "{}",
    "deep/er/gha-creds-4567.json": "{}",
    ".git-credentials": "https://u:p@h\n",
    ".git/FETCH_HEAD": "aa branch 'main' of https://t@h/r\n",
}


@pytest.mark.parametrize("isolation", ["docker", "process"])
def test_tokens_elsewhere_in_the_workspace_are_hidden(isolation: str, bench: Bench) -> None:
    plain = {"sub/.git/config": "[remote]\n\turl = https://h/r\n", "app/config": "db = postgres://u:p@h/d\n"}
    git = {f"{name}/HEAD": "ref: refs/heads/main\n" for name in ("bare.git", "mirror")}
    for name, text in {**LEAKS, **plain, **git, "mirror/objects/x": "", "bare.git/objects/x": ""}.items():
        (bench.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.workspace / name).write_text(text)
    bench.docker()
    done = bench.launch(**{**IMAGE, "isolation": isolation})
    if isolation == "process":
        assert done.code == 2
        assert f"holds a token or leads to one (and {len(LEAKS) - 1} more)" not in done.out
        assert f"(and {len(LEAKS) - 1} more) holds a token or leads to one" in done.err
        return
    found = mounts(bench.calls()[0]["argv"])
    assert {name for name, mount in found.items() if mount["source"] == "/dev/null"} == {f"/src/{x}" for x in LEAKS}
    assert done.code == 0


def test_a_search_for_tokens_has_an_end_and_says_so(bench: Bench) -> None:
    for name, text in LEAKS.items():
        (bench.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (bench.workspace / name).write_text(text)
    (bench.workspace / "aaa").mkdir()
    for number in range(300):
        (bench.workspace / "aaa" / str(number)).touch()
    found, whole = credentials(Source(bench.env), most=100)
    assert not whole
    assert ".git/FETCH_HEAD" in found, "git's folders come first"
    assert credentials(Source(bench.env)) == (sorted(set(LEAKS) - {"bare.git/config", "mirror/config"}), True)


@pytest.mark.parametrize(
    ("gpus", "argv"),
    [
        (Gpus("none"), ["--env", "NVIDIA_VISIBLE_DEVICES=void"]),
        (Gpus("all", ("all",), "gpus"), ["--gpus", "all", "--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]),
        (
            Gpus("0,1", ("0", "1"), "gpus"),
            ["--gpus", '"device=0,1"', "--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"],
        ),
        (
            Gpus("0,1", ("0", "1"), "cdi"),
            [
                *("--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1"),
                *("--env", "NVIDIA_VISIBLE_DEVICES=void"),
            ],
        ),
    ],
)
def test_gpus_argv(gpus: Gpus, argv: list[str]) -> None:
    assert gpus.argv() == argv


def test_without_a_network_there_is_one_interface() -> None:
    assert environment({}, "none")["NCCL_SOCKET_IFNAME"] == "lo"
    assert "NCCL_SOCKET_IFNAME" not in environment({}, "bridge")


def test_a_path_with_commas_quotes_and_colons_is_one_path() -> None:
    made = Container("docker", "i", "n", {}, "/c", "1:1", '/a,b"c:d', "/o", ["run"])
    assert mounts(made.argv())["/src"]["source"] == '/a,b"c:d'


@pytest.mark.parametrize(
    ("info", "uid", "user", "owner"),
    [
        ({}, 1000, "1000:1000", None),
        ({}, 0, "65534:65534", 65534),
        ({"SecurityOptions": ["name=rootless"]}, 1000, "0:0", None),
        ({"host": {"security": {"rootless": True}}}, 1000, "1000:1000", None),
    ],
)
def test_identity(info: dict[str, object], uid: int, user: str, owner: int | None) -> None:
    found = identity(Engine("docker", {}, info), uid, uid)
    assert (found[0], found[2]) == (user, owner)
    assert ("keep-id" in found[1]) == ("host" in info)


def test_what_the_legs_print_is_no_command(bench: Bench) -> None:
    bench.docker(print="::error::x\na ##[add-mask]b\r::set-env name=A::b\n" + "y" * 40_000 + "::warning::z")
    out = bench.launch(**IMAGE).out
    token = out.partition("::stop-commands::")[2].partition("\n")[0]
    inside = out.partition(f"::stop-commands::{token}\n")[2].partition(f"::{token}::\n")[0]
    assert "y" * 1000 in inside
    assert "::" not in inside
    assert "##[" not in inside
    assert max(map(len, inside.splitlines())) < 17_000
    assert token not in json.dumps(bench.calls())


def test_output_without_end_is_cut(bench: Bench) -> None:
    bench.docker(print="x" * (25 << 20))
    out = bench.launch(**IMAGE).out
    assert 19 << 20 < len(out) < 22 << 20
    assert "(more was printed than a log takes; it is not shown)" in out


def test_lines_without_end_are_cut(bench: Bench) -> None:
    bench.docker(print="\n" * (2 << 20))
    out = bench.launch(**IMAGE).out
    assert out.count("\n") < 350_000
    assert "(more was printed than a log takes; it is not shown)" in out


def test_a_flood_of_lines_delays_no_signal(bench: Bench) -> None:
    bench.docker(print="\n" * (2 << 20), sleep=600)
    process = bench.start(**IMAGE)
    wait_for((bench.root / "container").exists)
    # Nobody reads what is printed before the signal was sent.
    process.send_signal(signal.SIGINT)
    done = bench.end(process)
    assert (done.code, done.note["how"]) == (130, "interrupted")


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_removes_the_container(signum: int, code: int, bench: Bench) -> None:
    bench.docker(sleep=600)
    process = bench.start(**IMAGE)
    wait_for((bench.root / "container").exists)
    end_by(process, signum)
    done = bench.end(process)
    assert done.code == code
    assert done.note["how"] == "interrupted"
    assert bench.calls("kill")[0]["argv"][2:] == ["--signal", "INT", "c1d"]
    assert bench.calls("rm")[0]["argv"][2:] == ["--force", "--volumes", "c1d"]
    assert not (bench.root / "container").exists()
    assert processes(str(bench.root)) == []
    assert list((bench.temp / f"parity-launch-{os.getuid()}").iterdir()) == []


def test_a_second_signal_does_not_wait(bench: Bench) -> None:
    bench.docker(sleep=600)
    bench.patience = 600.0
    process = bench.start(**IMAGE)
    wait_for((bench.root / "container").exists)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: bench.calls("kill"))
    end_by(process, signal.SIGTERM)
    assert bench.end(process).code == 130
    assert not (bench.root / "container").exists()


def test_a_signal_before_there_is_a_container(bench: Bench) -> None:
    bench.docker(slow=600)
    process = bench.start(**IMAGE)
    wait_for(lambda: bench.calls("run"))
    end_by(process, signal.SIGINT)
    assert bench.end(process).code == 130
    assert processes(str(bench.root)) == []
    assert len(bench.calls("ps")) > 1, "the daemon may have been told to make one already"


def test_a_signal_while_the_image_is_pulled(bench: Bench) -> None:
    bench.docker(pulled=["", "", 0])
    text = (bench.bin / "docker").read_text()
    (bench.bin / "docker").write_text(text.replace('if word == "pull":', 'if word == "pull":\n    time.sleep(600)'))
    process = bench.start(**IMAGE)
    wait_for(lambda: bench.calls("pull"))
    end_by(process, signal.SIGINT)
    done = bench.end(process)
    assert (done.code, done.note["how"]) == (130, "interrupted")
    assert bench.calls("run") == []


def test_a_launcher_that_is_killed_leaves_no_container(bench: Bench) -> None:
    bench.docker(sleep=600)
    process = bench.start(**IMAGE)
    wait_for((bench.root / "container").exists)
    end_by(process, signal.SIGKILL)
    wait_for(lambda: not (bench.root / "container").exists() and processes(str(bench.root)) == [])
    bench.end(process)


def test_an_engine_that_is_too_busy_to_answer_at_first_is_asked_again(bench: Bench) -> None:
    bench.docker(sleep=600)
    process = bench.start(**IMAGE)
    wait_for((bench.root / "container").exists)
    bench.docker(busy=len((bench.root / "calls.jsonl").read_text().splitlines()) + 3)
    end_by(process, signal.SIGKILL)
    wait_for(lambda: not (bench.root / "container").exists() and processes(str(bench.root)) == [])
    bench.end(process)


def test_a_timeout_is_said(bench: Bench) -> None:
    bench.docker(sleep=600, leaves=False)
    bench.patience = 600.0
    process = bench.start(**IMAGE, timeout="1s")
    wait_for(lambda: bench.calls("kill"))
    process.send_signal(signal.SIGTERM)  # no need to wait any longer
    done = bench.end(process)
    assert done.note["how"] == "timed out"
    assert "legs: timed out after" in done.err
    assert not (bench.root / "container").exists()


def test_cleanup_removes_this_jobs_containers(bench: Bench) -> None:
    bench.docker()
    (bench.root / "container").write_text("a1\nb2\n")
    done = bench.launch("cleanup")
    assert (done.code, done.out) == (0, "cleanup: removed 2 containers\n")
    assert bench.calls("ps")[0]["argv"][-1] == "label=org.parity-action.run=77-2-gpu_tests-runner-1"
    assert bench.calls("rm")[0]["argv"][2:] == ["--force", "--volumes", "a1", "b2"]


def test_cleanup_without_anything_left_says_nothing(bench: Bench) -> None:
    bench.docker()
    done = bench.launch("cleanup")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_podman_is_named_and_gets_no_proxy(bench: Bench) -> None:
    bench.docker(info=[json.dumps({"host": {"security": {"rootless": True}}, "version": {"Version": "5.2"}}), "", 0])
    (bench.bin / "docker").rename(bench.bin / "podman")
    done = bench.launch(**IMAGE, docker="podman")
    assert done.code == 0
    (call,) = bench.calls()
    assert options(call["argv"], "--userns") == ["keep-id"]
    assert not [name for name in call["env"] if "proxy" in name.lower()]
    assert done.note["engine"] == {"name": "podman", "version": "5.2"}


def test_an_earlier_run_is_never_taken_for_this_one(bench: Bench) -> None:
    bench.docker()
    assert bench.launch(**IMAGE).code == 0
    bench.docker(leaves=False, code=4)
    done = bench.launch(**IMAGE)
    assert done.code == 4
    assert not (done.folder / "run" / "suite.json").exists()


def test_folders_that_were_closed_are_opened_for_the_next_checkout(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("four")
    (tmp_path / "a").chmod(0)
    assert sweep(tmp_path) == Counts(files=1, bytes=4)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


def test_links_that_legs_left_are_removed_for_an_upload_would_follow_them(tmp_path: Path) -> None:
    secret, run = tmp_path / "secret", tmp_path / "run"
    (secret / "keys").mkdir(parents=True)
    (secret / "keys" / "one").write_text("s")
    (run / "legs").mkdir(parents=True)
    (run / "legs" / "folder").symlink_to(secret)
    (run / "file").symlink_to(secret / "keys" / "one")
    (run / "dangling").symlink_to("nowhere")
    os.mkfifo(run / "pipe")
    (run / "kept").write_text("k")
    assert sweep(run) == Counts(files=1, bytes=1, removed=4)
    assert sorted(path.name for path in run.rglob("*")) == ["kept", "legs"]
    assert (secret / "keys" / "one").read_text() == "s"
