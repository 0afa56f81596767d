"""Mistakes that a person must act on, told in lines and never as a traceback."""

__all__ = ["DeviceError", "DiskError", "PackageError", "UsageError"]


class UsageError(Exception):
    """A wrong file, option or suite. The command line prints each line and exits with code 2.

    Args:
        lines: what was wrong, where, and what would be right; one mistake a line.
    """

    exit_code = 2

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class DeviceError(UsageError):
    """The machine lacks the devices that a leg needs; exits with code 4, the verdict `error`."""

    exit_code = 4


class DiskError(UsageError):
    """What a run leaves could not be written; exits with code 4, the verdict `error`."""

    exit_code = 4


class PackageError(UsageError):
    """The legs' Python lacks a module that they import; exits with code 4, the verdict `error`."""

    exit_code = 4
