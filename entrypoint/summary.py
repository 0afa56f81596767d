"""The job's summary: the report, in a page of the workflow run."""

from collections.abc import Mapping
from pathlib import Path

from entrypoint.fitting import fit
from parity.report.sections import chapters

__all__ = ["LIMIT", "write"]

LIMIT = 1 << 20
"""Bytes of one step's summary; the runner drops a larger one as a whole."""

# What another program of the same step may still add.
_SPARE = 64 << 10


def write(env: Mapping[str, str], report: str, report_path: str) -> None:
    """Add the report to the file that `GITHUB_STEP_SUMMARY` names; to none if it names none, as outside of a job.

    Raises:
        OSError: it can't be written.
    """
    path = env.get("GITHUB_STEP_SUMMARY", "")
    if not path:
        return
    with Path(path).open("ab") as file:
        room = LIMIT - _SPARE - file.tell()
        left_out = f"This is not all: a summary has at most {LIMIT >> 20} MiB. The whole report is `{report_path}`."
        if room > _SPARE:
            file.write(fit(chapters(report), room, left_out).encode())
