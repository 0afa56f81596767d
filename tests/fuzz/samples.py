"""A log of every format, as frameworks leave it: what is mutated. Real files where there are some."""

import gzip
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.curves.test_csv_table import LIGHTNING
from tests.curves.test_nemo import BAR
from tests.curves.test_nemo import LINE as NEMO

__all__ = ["Sample", "samples"]

LOGS = Path(__file__).parents[1] / "data" / "logs"
# Longer ones take longer to read and show nothing more.
LONGEST = 1 << 15

Sample = Mapping[str, bytes]
"""Files by their path in the source; an empty path where the source is itself a file."""


# Those of the real logs that differ in more than their numbers.
REAL = (
    "deepspeed/stdout_pipe_pp2.log",
    "deepspeed/stdout_tp3_info.log",
    "deepspeed/tp3_z0.jsonl",
    "deepspeed/tb/tp1_z0",
    "hf_trainer/tr1/stdout.log",
    "hf_trainer/tr1/trainer_state.json",
    "hf_trainer/tr1/log_history.json",
    "nemo_automodel/qf_base/stdout.log",
    "nemo_automodel/qf_pp2/training.jsonl",
    "pytorch/base.jsonl",
    "torchtitan/base/stdout.log",
    "torchtitan/base/tb",
    "veomni/f32_fsdp2/log_dict.json",
    "veomni/f32_fsdp2/stdout.log.gz",
)


def _real(name: str) -> Sample:
    path = LOGS / name
    if path.is_dir():
        return {f"tb/{one.name}": one.read_bytes() for one in path.rglob("*") if one.is_file()}
    data = path.read_bytes()
    return {"": gzip.decompress(data)[-LONGEST:] if path.suffix == ".gz" else data}


def _lines(line: str, *rows: tuple[object, ...]) -> Sample:
    return {"": "".join(line.format(*row) for row in rows).encode()}


def _written() -> dict[str, Sample]:
    """Those of which no file was at hand: as the readers' tests have them, with their sources."""
    steps = range(1, 40)
    megatron = (
        " [2025-02-20 11:18:36] iteration {:8d}/    1000 | consumed samples: {:12d} |"
        " elapsed time per iteration (ms): 10585.1 | learning rate: 1.000000E-05 |"
        " lm loss: {:.6E} | loss scale: 1.0 | grad norm: {:.3f} | number of nan iterations:   0 |\n"
    )
    nanotron = (
        "[INFO|DP=0|PP=0|TP=0|ip-26-0-161-78]: iteration: {} / 378950 | consumed_tokens: 85.8G |"
        " lm_loss: {:.3g} | lr: 3.06e-05 | grad_norm: {:.3g}\n"
    )
    golden = {
        name: {
            "start_step": 1,
            "end_step": 5,
            "step_interval": 1,
            "values": {str(at): 6.5 / at for at in range(1, 6)},
        }
        for name in ("lm loss", "num-zeros")
    }
    history = [{"_step": at, "_runtime": at / 7, "train/loss": 6 / at, "train/grad_norm": 2 / at} for at in steps]
    recorded = [
        {"kind": "start", "format": "parity.record/1", "leg": "baseline", "rank": 0, "environment": {"torch": "2.9"}},
        *({"kind": "step", "step": at, "loss": 6 / at, "grad_norm": 2 / at} for at in range(1, 9)),
        {"kind": "end", "steps": 8},
    ]
    rows = [{"step": at, "loss": 6 / at, "grad_norm": 1.5} for at in steps]
    values = "".join(f"178000{at:02d} {6 / at} {at}\n" for at in steps).encode()
    monitor = "step,train_loss\n" + "".join(f"{8 * at},{6 / at}\n" for at in steps)
    return {
        "megatron": _lines(megatron, *((at, 4 * at, 6 / at, 2 / at) for at in steps)),
        "nanotron": _lines(nanotron, *((at, 6 / at, 2 / at) for at in steps)),
        "maxtext": _lines(
            "completed step: {}, seconds: 2.345, TFLOP/s/device: 3.4, Tokens/s/device: 1,234.5, loss: {:.3f}\n",
            *((at, 12 / at) for at in steps),
        ),
        "nanochat": _lines(
            "step {:05d}/21400 (0.00%) | loss: {:.6f} | grad norm: 1.2345 | lrm: 1.00 | tok/sec: 655,360\n",
            *((at, 12 / at) for at in steps),
        ),
        "nemo": _lines(NEMO, *((0, at, at, 6 / at) for at in steps)),
        "nemo's bar": _lines(BAR, *((6 / at, float(at)) for at in steps)),
        "torchtitan_golden": _lines("{} {!r}\n", *((at, 8.049097061157227 / at) for at in steps)),
        "megatron_golden": {"": json.dumps(golden).encode()},
        "json": {"": json.dumps({"model": "a", "steps": rows}).encode()},
        "wandb": {"": "".join(json.dumps(one) + "\n" for one in history).encode()},
        "recorder": {"": "".join(json.dumps(one) + "\n" for one in recorded).encode()},
        "csv": {"": LIGHTNING.encode()},
        "csv;": {"": LIGHTNING.replace(",", ";").encode()},
        "mlflow": {
            "run/meta.yaml": b"run_id: 0\n",
            "run/metrics/loss": values,
            "run/metrics/train/grad_norm": values,
        },
        "monitor": {"": monitor.encode()},
        "monitor's folder": {"job/Train_Samples_train_loss.csv": monitor.encode()},
    }


@cache
def samples() -> dict[str, Sample]:
    """Every sample by a name that says what it is of."""
    return {**{name: _real(name) for name in REAL}, **_written()}
