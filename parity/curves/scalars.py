"""Values that are stored metric by metric: put together by step, under the names that frameworks give them."""

from collections.abc import Iterable, Mapping

from parity.curves.keys import Keys, chosen
from parity.curves.notes import Notes, refusal
from parity.curves.records import Record

__all__ = ["NAMES", "Scalar", "by_step", "steps_of_samples", "wanted"]

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


def wanted(keys: Keys | None, source: str) -> set[str]:
    """The names that may be a metric; a store's other values need not be kept.

    Raises:
        UsageError: `keys` are malformed, or name the step, which such stores have themselves.
    """
    given = chosen(keys)
    if "step" in given:
        raise refusal(source, "keys.step: every value is stored with its own step; leave it out")
    return {name for several in (*NAMES.values(), *given.values()) for name in several}


def by_step(scalars: Iterable[Scalar]) -> list[Record]:
    """Records of one step each. A name that comes again at a step begins another record of that step."""
    records: list[Record] = []
    last: dict[int, Record] = {}
    for name, step, value in scalars:
        record = last.get(step)
        if record is None or name in record:
            record = last[step] = {"step": step}
            records.append(record)
        record[name] = value
    return records


def steps_of_samples(scalars: list[Scalar], notes: Notes) -> list[Scalar]:
    """The same values, with DeepSpeed's numbers of samples as steps counted from 1.

    They are taken as steps only where each is a whole multiple of the first, as where every step takes the same
    number of samples and none is missing at the beginning. DeepSpeed's own count need not be right: under AutoTP
    it takes every rank for a data-parallel one.
    """
    counts = {step for name, step, _ in scalars if name.startswith(SAMPLES)}
    if not counts:
        return scalars
    first = min(counts)
    if first <= 0 or any(count % first for count in counts):
        notes.add(f"{SAMPLES}* are by number of samples, which was taken as the step: compare equal batch sizes only")
        return scalars
    notes.add(f"{SAMPLES}* are by number of samples; {first} samples were taken as one step, counted from 1")
    return [(name, step // first if name.startswith(SAMPLES) else step, value) for name, step, value in scalars]
