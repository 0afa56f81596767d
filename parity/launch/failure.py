"""Which rank failed first, and with what error of its own.

When one rank dies, the others fail too: their connections close. They often say so before the one that died is
noticed, so neither the first exit nor the first message is the cause. The cause is the earliest error that is
not of that kind.
"""

import math
import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from parity.curves.numbers import as_number
from parity.curves.records import Record
from parity.launch.cause import Cause, cause_of
from parity.launch.files import json_lines, tail
from parity.plain import plain

__all__ = ["Symptom", "describe_exit", "first_failure", "log_error", "symptom"]

# What a rank says when another one is gone or does not answer: gloo, NCCL, TCPStore, sockets.
PEER = re.compile(
    r"connection (was )?(likely )?(closed|reset|refused)|closed by (remote )?peer|broken pipe"
    r"|remote process (has )?exit|ncclRemoteError|sendBytes failed|recvValue failed|failed to recv"
    r"|timed out (after \d+ \w+ )?waiting|socket timeout|wait timeout|application timeout caused pair closure"
    r"|watchdog caught collective operation timeout|connectFullMesh failed|BrokenPipeError|DistNetworkError"
    r"|monitoredBarrier|heartbeat",
    re.IGNORECASE,
)
TRACEBACK = "Traceback (most recent call last):"
# "[rank0]: " by torch, "[default0]:" by torchrun, "[rank3/1]:" as `parity.launch.nodes` asks torchrun for.
PREFIX = re.compile(r"^(\[[a-z_]*\d+(/\d+)?\]: ?)+", re.IGNORECASE)
# Not `\s*` at a line's start: on a log of empty lines that takes minutes.
WHAT = re.compile(r"^[ \t]*what\(\):[ \t]*(.+)", re.MULTILINE)
SHELL = 128  # a shell's exit code for a command that a signal ended is this and the signal's number
LONGEST = 300  # characters of an error that still make one line


@dataclass(frozen=True)
class Symptom:
    """One rank's end.

    Attributes:
        rank: the rank; None for a command that does not tell.
        exit_code: negative for a signal; None where unknown.
        time: seconds since the epoch at which the error was recorded, else at which the rank ended.
        error: one line.
        echo: whether this is what another rank's end, or our ending the leg, did to it.
        cause: what it comes to.
    """

    rank: int | None
    exit_code: int | None
    time: float
    error: str
    echo: bool
    cause: Cause = "crashed"

    @property
    def killed(self) -> bool:
        """Whether a SIGKILL ended it, as the kernel does it where memory ran out."""
        return self.exit_code in (-signal.SIGKILL, SHELL + signal.SIGKILL)


def first_failure(symptoms: Iterable[Symptom]) -> Symptom | None:
    """The earliest that is no echo; the earliest at all where every one is."""
    return min(symptoms, key=lambda symptom: (symptom.echo, symptom.time, symptom.rank or 0), default=None)


def symptom(
    rank: int | None,
    exit_code: int | None,
    time: float,
    log: Path,
    record: Path | None = None,
    *,
    ended_by_us: bool = False,
) -> Symptom | None:
    """What a rank left that tells of its failure; None where nothing does.

    Args:
        rank: its number.
        exit_code: negative for a signal; None where unknown.
        time: when it ended, in seconds since the epoch.
        log: its output.
        record: what the recorder wrote; an error in there is the best witness, written before the teardown.
        ended_by_us: the leg was being ended when this rank ended.
    """
    text = tail(log)
    noted = _noted(tail(record)) if record is not None else None
    if exit_code in (0, None) and noted is None and (exit_code == 0 or log_error(text) is None):
        return None
    if noted is not None:
        kind, message = (_text(noted.get(key)) for key in ("type", "message"))
        error = _one_line(f"{kind or 'error'}: {message}")
        said = f"{error} {message}"
        when = as_number(noted.get("time"))
        time = when if when is not None and math.isfinite(when) else time
    elif exit_code is not None and exit_code < 0 and exit_code != -signal.SIGABRT:
        error = said = describe_exit(exit_code)  # a log does not know of the signal that ended it
    else:
        error, said = _from_log(exit_code, text)
    stopped = exit_code in (-signal.SIGTERM, SHELL + signal.SIGTERM) or ended_by_us
    echo = (stopped and noted is None) or bool(PEER.search(said))
    return Symptom(rank, exit_code, time, error, echo, cause_of(said))


def _noted(record: str) -> Record | None:
    """The first error that the recorder noted."""
    return next((line for line in json_lines(record) if line.get("kind") == "error"), None)


def _from_log(exit_code: int | None, text: str) -> tuple[str, str]:
    """One line, and all that it may be judged by."""
    found = log_error(text)
    if exit_code in (1, None, -signal.SIGABRT, SHELL + signal.SIGABRT) and found is not None:
        return found
    assert exit_code is not None
    if found is not None:  # the exit code is the program's choice, the exception may have been handled
        return f"{describe_exit(exit_code)}, last error in its output: {found[0]}", found[1]
    said = describe_exit(exit_code)
    last = next((line for line in reversed(text.splitlines()) if line.strip()), None)
    return (f"{said}, last output: {_one_line(last)}" if last else said), said


def log_error(text: str) -> tuple[str, str] | None:
    """The last exception whose traceback is in a log: its line, and the text to judge it by."""
    lines = [PREFIX.sub("", line) for line in text.splitlines()]
    starts = [i for i, line in enumerate(lines) if line.startswith(TRACEBACK)]
    if starts:
        for i in range(starts[-1] + 1, len(lines)):
            if lines[i] and not lines[i][0].isspace():
                return _one_line(lines[i]), "\n".join(lines[i : i + 4])
    aborted = WHAT.search("\n".join(lines))
    return (_one_line(aborted[1]), aborted[1]) if aborted else None


def describe_exit(code: int) -> str:
    """An exit code in words."""
    if code < 0:
        return f"killed by signal {-code} ({_signal_name(-code) or 'unknown'})"
    name = _signal_name(code - SHELL)
    return f"exit code {code} ({name})" if name else f"exit code {code}"


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _one_line(text: str) -> str:
    # What was lone surrogates in JSON, or an escape sequence in a log, can't be written or shown by those who get it.
    return plain(text.strip().splitlines()[0] if text.strip() else "", LONGEST)
