"""How a command ends: a verdict's exit code, or a line that says why there is none."""

import errno
import os
import sys
import traceback
from typing import Any, NoReturn

import click

from parity.errors import UsageError

__all__ = ["FiniteRange", "Group"]

_ERROR = 4


class Group(click.Group):
    """Commands whose user errors are lines and exit codes, and whose own faults never look like a verdict."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run a command and leave with its exit code."""
        for stream in (sys.stdout, sys.stderr):
            # A terminal that cannot show a sign gets a question mark instead of a traceback.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
            if sys.stdout is not None:
                sys.stdout.flush()
        except UsageError as error:
            code = _told("\n".join(error.lines), error.exit_code)
        except click.ClickException as error:
            where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "parity"
            code = _told(f"{where}: {error.format_message()}", error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            code = _told("interrupted", _ERROR)
        except OSError as error:
            code = _of_os_error(error)
        except Exception:
            traceback.print_exc()
            code = _told("parity itself failed: this is no verdict", _ERROR)
        # A command that returns nothing came to no verdict.
        sys.exit(code if isinstance(code, int) else _ERROR)


def _told(text: str, code: int) -> int:
    try:
        click.echo(text, err=True)
    except OSError:  # nobody listens; the code still tells
        _silence(sys.stderr)
    return code


def _of_os_error(error: OSError) -> int:
    if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS):
        traceback.print_exc()
        return _told("parity itself failed: this is no verdict", _ERROR)
    # The reader went away, as `head` does, or the disk is full; Python must not complain of it again at exit.
    _silence(sys.stdout)
    return _ERROR if error.errno == errno.EPIPE else _told(f"cannot write: {error.strerror}", _ERROR)


def _silence(stream: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class FiniteRange(click.FloatRange):
    """A number in a range; neither NaN, which is in none, nor infinity, which would allow everything."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number.

        Raises:
            click.BadParameter: it is no finite number of the range.
        """
        number = float(super().convert(value, param, ctx))
        if not abs(number) < float("inf"):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number
