"""Model-wide names for those that are only a stage's own."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parity.errors import UsageError

__all__ = ["Renaming"]


@dataclass(frozen=True)
class Renaming:
    """Patterns that a whole name has to match, with what it is called instead; the first that matches counts.

    Attributes:
        rules: patterns with their replacements, in which `\\1` and `\\g<name>` stand for groups.
    """

    rules: Sequence[tuple[re.Pattern[str], str]] = ()

    @classmethod
    def read(cls, file: str, rank: int) -> "Renaming":
        """From a JSON object of replacements by pattern.

        Args:
            file: its path, in which `{rank}` stands for this process's rank.
            rank: that.

        Raises:
            UsageError: there is no such file, or it is something else.
        """
        path = Path(file.replace("{rank}", str(rank)))
        try:
            given = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"names: {path} cannot be read: {error}") from None
        if not isinstance(given, dict) or not all(isinstance(one, str) for one in given.values()):
            raise UsageError(
                f'names: {path} is no object of texts, such as {{"(\\\\d+)\\\\.(.*)": "layers.\\\\1.\\\\2"}}'
            )
        rules = []
        for pattern, replacement in given.items():
            try:
                compiled = re.compile(pattern)
                # Parsed by `re` itself, so that a group which the pattern lacks is found here.
                re.sub(compiled, replacement, "")
            except (re.error, IndexError) as error:
                raise UsageError(f"names: {path}: {pattern!r}: {error}") from None
            rules.append((compiled, replacement))
        return cls(tuple(rules))

    def __call__(self, name: str) -> str:
        """The model-wide name."""
        for pattern, replacement in self.rules:
            found = pattern.fullmatch(name)
            if found:
                return found.expand(replacement)
        return name
