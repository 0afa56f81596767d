"""What a command, a working folder or a source may name in braces."""

import re
import shlex
from collections.abc import Mapping

from parity.layout import AXES

__all__ = ["PLACEHOLDER", "PLACEHOLDERS", "fill"]

PLACEHOLDERS = ("nproc", "steps", "seed", "out", "leg", "run_id", "suite_dir", *AXES)

PLACEHOLDER = re.compile(r"\{\{[a-z_]+\}\}|\{([a-z_]+)\}")


def fill(text: str, values: Mapping[str, object], quote: bool = False) -> str:
    """Put values for the placeholders; `{{word}}` stands for `{word}`, and other braces stay as they are."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][1:-1]
        if match[1] not in values:
            return match[0]
        return shlex.quote(str(values[match[1]])) if quote else str(values[match[1]])

    return PLACEHOLDER.sub(value, text)
