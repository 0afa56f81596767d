"""Joining and leaving: with a launcher's socket, under torchrun, alone, and when a rank fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parity.errors import UsageError
from parity.layout import Layout
from parity.train.__main__ import main
from parity.train.collectives import Comm
from parity.train.process import join
from tests.train.ranks import run_ranks

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PARITY_RECORD_DIR", "PARITY_RUN_ID")
TINY = ["--steps", "2", "--layers", "1", "--hidden", "16", "--seq-len", "8"]


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in VARIABLES} | more


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [None, "1"])
def test_one_rank_needs_no_launcher(tmp_path: Path, world_size: str | None) -> None:
    env = environment(PARITY_RECORD_DIR=str(tmp_path), **({"WORLD_SIZE": world_size} if world_size else {}))
    done = subprocess.run(
        [sys.executable, "-m", "parity.train", *TINY], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    steps = [line for line in lines(tmp_path / "rank-0.jsonl") if line["kind"] == "step"]
    assert first == f"step 0 loss {steps[0]['loss']:.6f} grad_norm {steps[0]['grad_norm']:.4f} lr 0.001"
    assert second.startswith("step 1 loss ")


@pytest.mark.slow
def test_torchrun_starts_ranks_too_even_inside_a_leg(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "-m", "parity.train", "--tp", "2", *TINY],
        env=environment(PARITY_RECORD_DIR=str(tmp_path), PARITY_RUN_ID="outer", OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert lines(tmp_path / f"rank-{rank}.jsonl")[-1]["kind"] == "end"


@pytest.mark.slow
def test_rank_0_may_have_no_socket_of_the_launchers() -> None:
    assert run_ranks(2, _joined_without_socket) == [3.0, 3.0]


@pytest.mark.slow
def test_a_rank_that_reached_another_runs_store_refuses_to_run() -> None:
    first, second = run_ranks(2, _refused, rank_env={1: {"PARITY_RUN_ID": "other"}})
    assert first == "served"
    assert second.endswith("belongs to run 'run/leg', not to this rank's 'other/leg'")
    assert "\n" not in second


@pytest.mark.slow
def test_a_failing_ranks_own_error_is_on_record_and_no_other_hangs(tmp_path: Path) -> None:
    codes = run_ranks(3, _fails_on_rank_1, env={"PARITY_RECORD_DIR": str(tmp_path)})
    assert codes == [1, 1, 1]
    errors = [lines(tmp_path / f"rank-{rank}.jsonl")[-1] for rank in range(3)]
    assert [error["kind"] for error in errors] == ["error"] * 3
    assert (errors[1]["type"], errors[1]["message"]) == ("ValueError", "this rank's own")
    assert all(error["time"] >= errors[1]["time"] for error in errors)


def test_another_number_of_ranks_than_the_layouts_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PARITY_RECORD_DIR", str(tmp_path))
    assert main(["--tp", "3"]) == 2
    sentence = "WORLD_SIZE: 1 ranks were started, but the layout (tp=3) takes 3"
    assert capsys.readouterr().err == sentence + "\n"
    assert lines(tmp_path / "rank-0.jsonl")[0]["message"] == sentence
    with pytest.raises(UsageError), join(Layout(tp=2), "cpu", 1):
        pass


def test_experts_that_no_run_of_ranks_can_share_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UsageError, match="2 does not divide the 3 ranks"), join(Layout(dp=3, ep=2), "cpu", 1):
        pass


def test_options_that_do_not_fit_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tp", "9", "--lr", "-1"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "trainer.lr: -1.0 is not possible: give a finite number above 0",
        "layout.tp: 9 ranks cannot share 8 KV heads: give at most 8, or raise trainer.kv_heads",
    ]


@pytest.mark.slow
def test_a_missing_gpu_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "parity.train", "--device", "cuda"],
        env=environment(CUDA_VISIBLE_DEVICES=""),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert (
        done.stderr == "LOCAL_RANK: there is no GPU 0, this machine shows 0: use a smaller layout or --device cpu\n"
    )


def _joined() -> float:
    import torch

    with join(Layout(tp=2), "cpu", 1) as process:
        return process.comm().sum(torch.tensor(process.rank + 1.0)).item()


def _joined_without_socket() -> float:
    inherited = os.environ.pop("PARITY_STORE_FD", None)
    if inherited is not None:
        os.close(int(inherited))
    return _joined()


def _refused() -> str:
    import datetime

    import torch.distributed as dist

    if os.environ["RANK"] == "0":
        # Only the store: nobody else comes.
        store = dist.TCPStore(
            "127.0.0.1",
            int(os.environ["MASTER_PORT"]),
            2,
            is_master=True,
            wait_for_workers=False,
            timeout=datetime.timedelta(seconds=60),
            master_listen_fd=int(os.environ["PARITY_STORE_FD"]),
        )
        store.set("parity/run", "run/leg")
        store.get("read")
        return "served"
    try:
        with join(Layout(tp=2), "cpu", 1):
            return "joined"
    except UsageError as error:
        port = int(os.environ["MASTER_PORT"])
        dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False).set("read", "")
        return str(error)


def _fails_on_rank_1() -> int:
    import torch

    def failing(comm: Comm, x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        if comm.rank == 1 and len(calls) > 20:
            raise ValueError("this rank's\nown")
        return whole(comm, x)

    calls: list[torch.Tensor] = []
    whole, Comm.sum = Comm.sum, failing
    return main(["--tp", "3", *TINY])
