"""Which legs start now, and what the machine has room for."""

import os
import stat
from pathlib import Path

import pytest

from parity import schedule
from parity.errors import DeviceError
from parity.schedule import Grant, Need, Slots, check_room, cpu_slots, gpu_slots, start_now

A100S = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa0000-1111)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb0000-2222)
"""
SPLIT = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa0000-1111)
  MIG 3g.20gb     Device  0: (UUID: MIG-0001)
  MIG 3g.20gb     Device  1: (UUID: MIG-0002)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bbbb0000-2222)
"""


def test_start_now__all_that_fit_start_largest_first() -> None:
    needs = [Need("tp1", 1), Need("tp3", 3), Need("tp4", 4)]
    assert start_now(needs, Slots(8)) == [Grant("tp4", 4), Grant("tp3", 3), Grant("tp1", 1)]


def test_start_now__a_small_leg_takes_the_room_a_large_one_leaves() -> None:
    needs = [Need("tp1", 1), Need("tp3", 3), Need("tp4", 4)]
    assert start_now(needs, Slots(5)) == [Grant("tp4", 4), Grant("tp1", 1)]


def test_start_now__equal_legs_start_in_the_order_given() -> None:
    needs = [Need(name, 2) for name in ("b", "a", "c")]
    assert [grant.name for grant in start_now(needs, Slots(4))] == ["b", "a"]


def test_start_now__gpus_are_given_once() -> None:
    needs = [Need("x", 2, cuda=True), Need("y", 1, cuda=True), Need("z", 1, cuda=True), Need("cpu", 1)]
    assert start_now(needs, Slots(1, ("0", "1", "5"))) == [
        Grant("x", 2, ("0", "1")),
        Grant("y", 1, ("5",)),
        Grant("cpu", 1),
    ]


def test_check_room__every_leg_that_cannot_start_has_a_line() -> None:
    with pytest.raises(DeviceError) as raised:
        check_room([Need("tp16", 16), Need("ok", 2), Need("gpu", 2, cuda=True)], Slots(8, ("0",)))
    assert raised.value.exit_code == 4
    first, second = raised.value.lines
    assert "legs.tp16: needs 16 ranks" in first
    assert "room for 8" in first
    assert "legs.gpu: needs 2 GPUs, this machine has 1" in second


def test_cpu_slots__four_ranks_share_a_core(tmp_path: Path) -> None:
    assert cpu_slots(tmp_path) == 4 * len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("limit", "cores"), [("50000 100000", 1), ("100000 100000", 1), ("max 100000", None)])
def test_cpu_slots__a_quota_counts_v2(tmp_path: Path, limit: str, cores: int | None) -> None:
    (tmp_path / "cpu.max").write_text(limit + "\n")
    assert cpu_slots(tmp_path) == 4 * (cores or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(("quota", "cores"), [("100000", 1), ("-1", None)])
def test_cpu_slots__a_quota_counts_v1(tmp_path: Path, quota: str, cores: int | None) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota + "\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cpu_slots(tmp_path) == 4 * (cores or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("listing", "wanted", "names"),
    [
        (A100S, None, ("0", "1")),
        (A100S, "", ()),
        (A100S, "-1", ()),
        (A100S, "1", ("1",)),
        (A100S, "1, 0", ("1", "0")),
        (A100S, "1,7,0", ("1",)),  # CUDA stops at the first name it does not know
        (A100S, "0,0", ()),
        (A100S, "GPU-bbbb", ("GPU-bbbb",)),
        (SPLIT, None, ("MIG-0001", "MIG-0002", "1")),
        ("No devices were found\n", None, ()),
    ],
)
def test_gpu_slots__as_cuda_would_see_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listing: str, wanted: str | None, names: tuple[str, ...]
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{listing}END\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu_slots({} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted}) == names


def test_gpu_slots__no_tool_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_slots() == ()


def test_ranks_per_core__a_leg_of_four_runs_on_one_core() -> None:
    check_room([Need("tp4", 4)], Slots(1 * schedule.RANKS_PER_CORE))
