"""Which key of a record holds which metric."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from parity.curves.numbers import ABSENT
from parity.curves.records import Record
from parity.errors import UsageError
from parity.plain import plain

__all__ = ["DEFAULTS", "Keys", "chosen", "listed", "lookalikes", "lookup", "names"]

# By metric (or `step`), the key that holds it, or several of which the first that a log has is taken.
Keys = Mapping[str, str | Sequence[str]]

# The first of each is what NeMo Automodel, DeepSpeedExamples and most loops write; the others are the
# Hugging Face Trainer's and Lightning's names and Weights & Biases' grouping.
DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "step": ("step", "global_step", "iteration"),
    "loss": ("loss", "train_loss", "train/loss"),
    "grad_norm": ("grad_norm", "train/grad_norm"),
    "lr": ("lr", "learning_rate", "train/learning_rate"),
}

_LISTED = 20
_NAME_LENGTH = 40
# Deeper than any logged metric; a hostile record can nest a thousand times.
_DEPTH = 4


def chosen(keys: Keys | None) -> dict[str, tuple[str, ...]]:
    """What the user gave, checked, as candidates by metric.

    Raises:
        UsageError: a metric's keys are not text, or there are none; a line for each mistake.
    """
    candidates: dict[str, tuple[str, ...]] = {}
    wrong: list[str] = []
    for metric, given in (keys or {}).items():
        several = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else ()
        if several and all(isinstance(key, str) and key for key in several):
            candidates[metric] = several
        else:
            wrong.append(f"keys.{plain(metric, _NAME_LENGTH)}: give the key's name, or a list of names")
    if wrong:
        raise UsageError(*wrong)
    return candidates


def lookup(record: Record, key: str) -> object:
    """The value at `key`, or `ABSENT`. `train.loss` is that key itself or, else, `loss` inside `train`."""
    found = record.get(key, ABSENT)
    if found is not ABSENT or "." not in key:
        return found
    found = record
    for part in key.split("."):
        if not isinstance(found, dict) or part not in found:
            return ABSENT
        found = found[part]
    return found


def names(records: Iterable[Record]) -> set[str]:
    """Every key in `records`, those of nested objects with dots."""
    found: set[str] = set()
    for record in records:
        _names(record, "", _DEPTH, found)
    return found


def _names(record: Record, prefix: str, depth: int, found: set[str]) -> None:
    for key, value in record.items():
        if isinstance(value, dict) and depth:
            _names(value, f"{prefix}{key}.", depth - 1, found)
        else:
            found.add(prefix + key)


def lookalikes(metric: str, known: Iterable[str]) -> list[str]:
    """Keys that may well hold `metric`, likeliest first."""
    # Comparing takes time in the square of the length.
    pool = sorted(name for name in known if len(name) <= 2 * _NAME_LENGTH)
    close = difflib.get_close_matches(metric, pool, n=5, cutoff=0.7)
    return list(dict.fromkeys([*close, *(name for name in pool if metric in name.lower())]))[:5]


def listed(known: Iterable[str]) -> str:
    """Key names for a message, bounded."""
    shown = [plain(name, _NAME_LENGTH) for name in sorted(known)]
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return (", ".join(shown[:_LISTED]) + more) or "none"
