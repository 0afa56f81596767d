"""Values that are stored metric by metric: put together by step, under the names that frameworks give them."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from parity.curves.curve import LegCurves
from parity.curves.keys import Keys, chosen, listed
from parity.curves.notes import Notes, refusal
from parity.curves.records import Record

__all__ = [
    "NAMES",
    "SAMPLES_FILE",
    "Scalar",
    "by_samples",
    "by_step",
    "only_run",
    "steps_of_samples",
    "take",
    "wanted",
]

_ValueT = TypeVar("_ValueT")
_ScalarT = TypeVar("_ScalarT")

# Of the metrics asked for: 100,000 steps with four of them are 400,000.
MOST_VALUES = 2_000_000

# Name, step, value.
Scalar = tuple[str, int, float]

# What trackers and tables call the metrics. Names that are close and mean another thing stay out: `train/train_loss`
# is the Trainer's mean over the run, `loss_metrics/global_max_loss` torchtitan's worst rank.
NAMES: Mapping[str, tuple[str, ...]] = {
    "step": ("step",),
    "loss": (
        *("loss", "train_loss", "train/loss"),  # plain loops, Lightning, the Hugging Face Trainer
        *("Train/loss", "Loss/train", "loss/train", "training/loss"),  # plain loops over torch's SummaryWriter
        *("train_loss_step", "reduced_train_loss"),  # Lightning where it logs both ways; NeMo 2
        "loss_metrics/global_avg_loss",  # torchtitan
        "lm loss",  # Megatron-LM
        "training/total_loss",  # VeOmni
        "Train/Samples/train_loss",  # DeepSpeed
    ),
    "grad_norm": (
        *("grad_norm", "train/grad_norm", "Train/grad_norm", "training/grad_norm"),
        "grad-norm",  # Megatron-LM
        "grad_2.0_norm_total",  # lightning.pytorch.utilities.grad_norm
    ),
    "lr": (
        *("lr", "learning_rate", "train/learning_rate", "train/lr", "Train/lr", "training/lr"),
        "learning-rate",  # Megatron-LM
        *("lr/AdamW", "lr/Adam"),  # torchtitan
        *("lr-AdamW", "lr-Adam", "lr-SGD"),  # Lightning's LearningRateMonitor
        "Train/Samples/lr",  # DeepSpeed
    ),
}

# DeepSpeed's monitor gives its curves the number of samples where others give the step.
SAMPLES = "Train/Samples/"
SAMPLES_FILE = SAMPLES.replace("/", "_")
"""How the names of its files begin, one for each curve."""


def wanted(keys: Keys | None, source: str) -> set[str]:
    """The names that may be a metric; a store's other values need not be kept.

    Raises:
        UsageError: `keys` are malformed, or name the step, which such stores have themselves.
    """
    given = chosen(keys)
    if "step" in given:
        raise refusal(source, "keys.step: every value is stored with its own step; leave it out")
    return {name for several in (*NAMES.values(), *given.values()) for name in several}


def only_run(runs: Mapping[str, _ValueT], source: str) -> tuple[str, _ValueT]:
    """The one run in a store, and its folder.

    Raises:
        UsageError: there are several.
    """
    if len(runs) > 1:
        raise refusal(source, f"holds several runs, {listed(runs)}: name the folder of one")
    ((folder, run),) = runs.items()
    return folder, run


def take(values: list[_ScalarT], several: Iterable[_ScalarT], is_wanted: bool, source: str) -> None:
    """Add the values of one name; of one that is no metric, the first is enough for messages to name it.

    Raises:
        UsageError: they are more than two million in all.
    """
    values += itertools.islice(several, MOST_VALUES + 1 if is_wanted else 1)
    if len(values) > MOST_VALUES:
        raise refusal(source, f"holds more than {MOST_VALUES:,} values of the metrics asked for")


def by_step(scalars: Iterable[tuple[str, object, object]]) -> list[Record]:
    """Records of one step each. A name that comes again at a step begins another record of that step."""
    records: list[Record] = []
    last: dict[object, Record] = {}
    for name, step, value in scalars:
        record = last.get(step)
        if record is None or name in record:
            record = last[step] = {"step": step}
            records.append(record)
        record[name] = value
    return records


def steps_of_samples(scalars: list[tuple[str, int, _ValueT]], notes: Notes) -> list[tuple[str, int, _ValueT]]:
    """The same values, with DeepSpeed's numbers of samples as steps counted from 1, if they can be."""
    size = _samples_a_step({step for name, step, _ in scalars if name.startswith(SAMPLES)}, notes)
    if size == 1:
        return scalars
    return [(name, step // size if name.startswith(SAMPLES) else step, value) for name, step, value in scalars]


def by_samples(leg: LegCurves) -> LegCurves:
    """The same curves, with DeepSpeed's numbers of samples as steps counted from 1, if they can be."""
    notes = Notes()
    every = {step for curve in leg.curves.values() for step in (*curve.steps.tolist(), *curve.missing)}
    size = _samples_a_step(every, notes)
    curves = {
        metric: replace(
            curve,
            steps=curve.steps // size,
            conflicts=tuple(replace(one, step=one.step // size) for one in curve.conflicts),
            missing=tuple(step // size for step in curve.missing),
        )
        for metric, curve in leg.curves.items()
    }
    return replace(leg, curves=curves, notes=(*leg.notes, *notes.all()), base=1 if size > 1 else None)


def _samples_a_step(counts: set[int], notes: Notes) -> int:
    """How many samples make a step: the first count, if every other is a whole multiple of it, else 1.

    So it is where every step takes as many and none is missing at the beginning. DeepSpeed's own count need not be
    right: under AutoTP it takes every rank for a data-parallel one.
    """
    if not counts:
        return 1
    first = min(counts)
    if first <= 0 or any(count % first for count in counts):
        notes.add("DeepSpeed counts samples, taken for steps here: compare runs of equal batch size only")
        return 1
    notes.add(f"DeepSpeed counts samples: {first} were taken for one step, the first of which is 1")
    return first
