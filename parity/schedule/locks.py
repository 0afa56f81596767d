"""Devices that this process has taken for itself, so that other runs on this machine wait for them."""

import fcntl
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["DeviceLocks"]

FOLDER = Path("/tmp")  # one for all users of the machine; a container has its own  # noqa: S108


class DeviceLocks:
    """Locks of the kernel on one file a device: they are gone when this process is, however it ends.

    A device that no file can be made for counts as free: locks keep runs of parity apart, and nothing else.

    Args:
        identities: by a device's name, what it is called whatever this process may see; others are never locked.
    """

    def __init__(self, identities: Mapping[str, str]) -> None:
        plain = {name: re.sub(r"[^\w.-]", "_", one) for name, one in identities.items()}
        self._files = {name: FOLDER / f"parity-{one}.lock" for name, one in plain.items()}
        self._held: dict[str, int | None] = {}

    def take(self, devices: Iterable[str]) -> tuple[str, ...]:
        """Take those that nobody else holds. Returns the ones that are this process's now."""
        return tuple(device for device in devices if device in self._held or self._take(device))

    def give_back(self, devices: Iterable[str]) -> None:
        """Let others have them. A device that was not taken is none of ours."""
        for device in devices:
            if (lock := self._held.pop(device, None)) is not None:
                os.close(lock)

    def holder(self, device: str) -> int | None:
        """The process that holds a device, where the kernel tells; see proc_locks(5)."""
        try:
            status = self._files[device].lstat()
            where = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
            locks = (line.split() for line in Path("/proc/locks").read_text().splitlines())
            return next((int(one[4]) for one in locks if one[5] == where), None)
        except (OSError, KeyError, ValueError, IndexError):
            return None

    def _take(self, device: str) -> bool:
        lock = _opened(self._files[device]) if device in self._files else None
        if lock is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(lock), self._files[device].lstat()):
                    raise BlockingIOError  # it was removed meanwhile, and another may lie there
            except (BlockingIOError, FileNotFoundError):
                os.close(lock)
                return False
            except OSError:
                os.close(lock)
                lock = None
        self._held[device] = lock
        return True


def _opened(file: Path) -> int | None:
    """Another user's may be read, which is enough for a lock, but not opened to be created where all may write."""
    how = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for more in (0, os.O_CREAT | os.O_EXCL, 0):  # it may appear in between
        try:
            return os.open(file, how | more, 0o644)
        except (FileNotFoundError, FileExistsError):
            continue
        except OSError:
            break
    return None
