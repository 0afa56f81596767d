"""The outputs of a step. Standard library."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

__all__ = ["write"]


def write(env: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Add to the file that `GITHUB_OUTPUT` names; to none if it names none, as outside of a job.

    Each value stands between delimiters that are drawn anew, so that no value can end itself and begin another.
    """
    path = env.get("GITHUB_OUTPUT", "")
    if not path:
        return
    with Path(path).open("a", encoding="utf-8") as file:
        for name, value in values.items():
            delimiter = f"end-{secrets.token_hex(16)}"
            file.write(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
