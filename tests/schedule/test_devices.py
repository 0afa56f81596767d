"""What the machine has room for: cores, and accelerators of four makes."""

import os
import stat
from pathlib import Path

import pytest

from parity.errors import UsageError
from parity.schedule import RANKS_PER_CORE, Need, Slots, check_room, cpu_slots
from parity.schedule.devices import ACCELERATORS, CUDA, found

ROCM, ASCEND, XPU = ACCELERATORS[1:]

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
def test_cuda__as_cuda_would_see_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listing: str, wanted: str | None, names: tuple[str, ...]
) -> None:
    install(tmp_path, monkeypatch, "nvidia-smi", listing)
    assert tuple(CUDA.find({} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted})) == names


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without accelerators: no tool, and a root of the file system that tests fill."""
    for name in {name for one in ACCELERATORS for name in one.variables}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("parity.schedule.devices.ROOT", tmp_path)
    return tmp_path


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, tool: str, says: str) -> None:
    path = folder / tool
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}END\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.defpath}")


@pytest.mark.usefixtures("bare")
def test_no_tool_and_no_device_is_none() -> None:
    assert found({}) == (CUDA, {})
    assert Slots.here(cpu=4) == Slots(4)


def kfd(root: Path, *simds: int | None) -> None:
    """Compute nodes as the kernel lists them; None for one that may not be read."""
    for number, simd in enumerate(simds):
        node = root / "sys/class/kfd/kfd/topology/nodes" / str(number)
        node.mkdir(parents=True)
        if simd is not None:
            (node / "properties").write_text(f"cpu_cores_count 0\nsimd_count {simd}\nmem_banks_count 1\n")


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, ("0", "1")),
        ({"HIP_VISIBLE_DEVICES": "1"}, ("1",)),
        ({"CUDA_VISIBLE_DEVICES": "0"}, ("0",)),
        ({"HIP_VISIBLE_DEVICES": "-1"}, ()),
        # What HIP counts are the devices that ROCr leaves.
        ({"ROCR_VISIBLE_DEVICES": "1"}, ("0",)),
        ({"ROCR_VISIBLE_DEVICES": "0,GPU-beef", "HIP_VISIBLE_DEVICES": "1"}, ("1",)),
    ],
)
def test_rocm__gpus_are_nodes_with_simds(bare: Path, environ: dict[str, str], names: tuple[str, ...]) -> None:
    kfd(bare, 0, 440, 440, None)  # a CPU, two GPUs, and one of another container
    assert tuple(ROCM.find(environ)) == names
    assert found(environ)[0] == (ROCM if names else CUDA)


@pytest.mark.parametrize(
    ("wanted", "names"), [(None, ("0", "1")), ("1", ("1",)), ("0,1", ("0", "1")), ("", ()), ("7", ())]
)
def test_ascend__npus_are_device_files(bare: Path, wanted: str | None, names: tuple[str, ...]) -> None:
    (bare / "dev").mkdir()
    for name in ("davinci4", "davinci5", "davinci_manager"):
        (bare / "dev" / name).touch()
    assert tuple(ASCEND.find({} if wanted is None else {"ASCEND_RT_VISIBLE_DEVICES": wanted})) == names


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("mask", "names"), [(None, ("0", "1")), ("1", ("1",)), ("0.0,0.1", ("0.0", "0.1")), ("5.0", ())]
)
def test_xpu__devices_and_parts_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mask: str | None, names: tuple[str, ...]
) -> None:
    install(tmp_path, monkeypatch, "xpu-smi", '"Device ID"\n0\n1\n')
    assert tuple(XPU.find({} if mask is None else {"ZE_AFFINITY_MASK": mask})) == names


def test_visible__each_make_has_its_own_variables() -> None:
    assert CUDA.visible(["0", "3"]) == {"CUDA_VISIBLE_DEVICES": "0,3"}
    assert ROCM.visible(["1"]) == {"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "1"}
    assert ASCEND.visible(["0"]) == {"ASCEND_RT_VISIBLE_DEVICES": "0"}
    assert XPU.visible(["0.1"]) == {"ZE_AFFINITY_MASK": "0.1"}


def test_visible__a_leg_on_the_cpu_is_shown_none_where_that_can_be_said() -> None:
    assert [one.visible([]) for one in ACCELERATORS] == [
        {"CUDA_VISIBLE_DEVICES": ""},
        {"HIP_VISIBLE_DEVICES": "-1", "CUDA_VISIBLE_DEVICES": "-1"},
        {"ASCEND_RT_VISIBLE_DEVICES": ""},
        {},
    ]


@pytest.mark.usefixtures("bare")
def test_devices__a_fixed_list_is_held_against_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Slots.here(1, ["0", "3"]).gpus == ("0", "3")  # nothing tells what is there
    install(tmp_path, monkeypatch, "nvidia-smi", A100S)
    assert Slots.here(1, ["1"]).gpus == ("1",)
    with pytest.raises(UsageError, match="--devices 2: no such device; there is 0, 1"):
        Slots.here(1, ["1", "2"])
    with pytest.raises(UsageError, match="--devices 1,1: names a device twice"):
        Slots.here(1, ["1", "1"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UsageError, match="--devices 0: no such device; there is none"):
        Slots.here(1, ["0"])


def test_ranks_per_core__a_leg_of_four_runs_on_one_core() -> None:
    check_room([Need("tp4", 4)], Slots(1 * RANKS_PER_CORE))
