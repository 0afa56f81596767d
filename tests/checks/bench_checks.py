"""How much processor time all checks take on 20 steps and 200 parameters: `python -m tests.checks.bench_checks`.

Drawn records of four ranks against one, with a control and a perturbed leg, gradients sketched at three steps.
"""

import statistics
import sys
import time

import numpy as np

from parity.checks.comparison import Comparison, Leg
from parity.checks.profiles import PROFILES
from parity.checks.run import run_checks
from parity.layout import Layout
from tests.drawing import leg
from tests.records.drawing import Drawn, draw

STEPS, PARAMETERS, RUNS, MOST_MS = 20, 200, 7, 100
KINDS = ("attention.q.weight", "attention.k.weight", "attention.o.weight", "mlp.up.weight", "norm.weight")


def drawn(name: str, ranks: int, seed: int) -> Leg:
    """A leg that differs from others by rounding."""
    names = [f"layers.{at // len(KINDS)}.{KINDS[at % len(KINDS)]}" for at in range(PARAMETERS)]
    whole = dict(zip(names, np.random.default_rng(0).normal(size=(PARAMETERS, 8, 8)), strict=True))
    noise = np.random.default_rng(seed)

    def tensors() -> dict[str, np.ndarray]:
        return {name: value * (1 + 1e-7 * noise.normal(size=value.shape)) for name, value in whole.items()}

    records = Drawn(
        coordinates=[{"dp": rank} for rank in range(ranks)],
        weights=whole,
        gradients={step: tensors() for step in range(3)},
        updates={step: tensors() for step in range(2)},
    )
    loss = np.linspace(6, 5, STEPS) * (1 + 1e-7 * noise.normal(size=STEPS))
    return Leg(name, leg(name, loss=loss, grad_norm=np.full(STEPS, 2.0)).curves, Layout(dp=ranks), draw(records))


def main() -> int:
    """Measure; 1 if the promise was missed."""
    milliseconds = []
    for _ in range(RUNS):
        base, candidate, control, perturbed = (
            drawn(*each) for each in (("base", 1, 0), ("dp4", 4, 1), ("dp2", 2, 2), ("base.perturbed", 1, 3))
        )
        comparison = Comparison(
            base,
            candidate,
            PROFILES["fp32-cpu"],
            controls=(control,),
            perturbed=(perturbed,),
            expected_steps=np.arange(STEPS),
        )
        started = time.process_time()
        run_checks(comparison)
        milliseconds.append(1e3 * (time.process_time() - started))
    median = statistics.median(milliseconds)
    kept = median < MOST_MS and "torch" not in sys.modules
    what = f"all checks, {STEPS} steps, {PARAMETERS} parameters, without torch"
    print(f"{what:<58} {median:>21.0f} ms {f'< {MOST_MS} ms':>14}  {'ok' if kept else 'MISSED'}", flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
