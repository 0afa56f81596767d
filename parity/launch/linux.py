"""The few calls to the kernel and the C library that Python has no function for."""

import ctypes
import os
import signal
from pathlib import Path

__all__ = ["become_subreaper", "catches", "die_with_parent", "flush_c_streams", "overwrite_environ", "start_time"]

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
PR_SET_CHILD_SUBREAPER = 36
PR_GET_CHILD_SUBREAPER = 37


def die_with_parent(parent: int) -> None:
    """Have this process killed when the one that started it, `parent`, is gone, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it was gone before the call
        os._exit(1)


def become_subreaper(on: bool) -> bool:
    """Have orphaned descendants become this process's children rather than init's. Returns what was before."""
    libc = ctypes.CDLL(None)
    before = ctypes.c_int(0)
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)
    return bool(before.value)


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot: with its id it is a name that no other process ever has, and
    no change of the clock touches it.

    Raises:
        OSError: there is no such process.
    """
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return int(stat.rpartition(b")")[2].split()[19])  # field 22; the second is a name, with any brackets in it


def catches(pid: int, signum: int) -> bool:
    """Whether a process has a handler for a signal, which without one would end it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signum - 1) & 1)


def flush_c_streams() -> None:
    """Write out what C and C++ libraries have printed; `os._exit` would drop it."""
    ctypes.CDLL(None).fflush(None)


def overwrite_environ(name: str, placeholder: str, value: str) -> None:
    """Change a variable where the kernel reads it.

    `/proc/<pid>/environ` shows a process's environment as it was when its program started, and a forked
    process shows its parent's. Setting a variable does not change that; writing over the original bytes does.
    Does nothing where the variable is not at its original place or `value` is longer than `placeholder`.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(name.encode())
    old, new = os.fsencode(placeholder), os.fsencode(value)
    if address and len(new) <= len(old) and ctypes.string_at(address) == old:
        ctypes.memmove(address, new.ljust(len(old), b"\0"), len(old))
