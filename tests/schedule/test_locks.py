"""Devices are one run's at a time, whoever it is and however it ends."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from parity.schedule import DeviceLocks, locks

TAKE = """
import sys
from pathlib import Path
from parity.schedule import DeviceLocks, locks
locks.FOLDER = Path(sys.argv[1])
print(*DeviceLocks({"GPU-8": "CUDA-GPU-8", "x": "CUDA-x"}).take(["GPU-8", "x"]), flush=True)
sys.stdin.read()
"""
OURS = {"0": "CUDA-GPU-8", "1": "CUDA-GPU-9"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(locks, "FOLDER", tmp_path)
    return tmp_path


def other(folder: Path) -> "subprocess.Popen[str]":
    """A process that holds a device, which it knows by another name, until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().split() == ["GPU-8", "x"]
    return process


def test_what_another_process_holds_is_not_had_until_it_is_gone(folder: Path) -> None:
    ours = DeviceLocks(OURS)
    with other(folder) as process:
        assert ours.take(["0", "1", "2"]) == ("1", "2")
        # Where /proc/locks shows another namespace's processes, this one is not in it.
        told = any(line.split()[4] == str(process.pid) for line in Path("/proc/locks").read_text().splitlines())
        assert ours.holder("0") == (process.pid if told else None)
        process.kill()
    assert ours.take(["0", "1", "2"]) == ("0", "1", "2")
    assert ours.holder("2") is None


def test_what_was_given_back_another_may_take(folder: Path) -> None:
    ours = DeviceLocks(OURS)
    assert ours.take(["0"]) == ("0",)
    ours.give_back(["0", "1"])
    with other(folder) as process:
        process.kill()


def planted_fifo(path: Path) -> None:
    os.mkfifo(path)


def planted_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def planted_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("plant", [planted_fifo, planted_link, planted_folder])
def test_what_lies_where_a_lock_should_harms_nothing(folder: Path, plant: Callable[[Path], None]) -> None:
    plant(folder / "parity-CUDA-GPU-8.lock")
    assert DeviceLocks(OURS).take(["0", "1"]) == ("0", "1")


def test_without_a_place_for_locks_all_devices_are_free(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "FOLDER", folder / "none")
    assert DeviceLocks(OURS).take(["0"]) == ("0",)


def test_a_lock_whose_file_was_removed_and_made_anew_is_no_lock(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "parity-CUDA-GPU-8.lock"

    def replaced(lock: int, how: int) -> None:
        file.unlink()
        file.touch()

    monkeypatch.setattr("fcntl.flock", replaced)
    assert DeviceLocks(OURS).take(["0", "2"]) == ("2",)
