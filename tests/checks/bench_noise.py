"""How far correct runs are from one another, in units of another's noise floor: `python -m tests.checks.bench_noise`.

Runs the self-test's correct layouts with three perturbed baselines each, 40 steps, over some seeds, and compares
every leg with every perturbed one. The figures in the docstrings of `parity.checks.noise` and of
`parity.checks.per_parameter` are those of two seeds.
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

from parity.checks.comparison import Comparison, Leg
from parity.checks.noise import horizon, noise_floor, parameter_floors
from parity.checks.parameters import apart, common_steps
from parity.checks.profiles import PROFILES
from parity.legs import read_legs
from parity.rundir import RunDirectory
from parity.selftest.cases import clean_suite

STEPS, PERTURBED = 40, 3

Worst = dict[str, list[float]]


def measure(legs: dict[str, Leg], worst: Worst) -> None:
    """Add each pair's largest distances, in units of the perturbed leg's floor."""
    moved = [(name.partition(".perturbed")[0], leg) for name, leg in legs.items() if ".perturbed" in name]
    for name, perturbed in moved:
        for other in legs.values():
            if other in (perturbed, legs[name]) or other.name.partition(".")[0] != name.partition(".")[0]:
                continue
            pair = Comparison(legs[name], other, PROFILES["fp32-cpu"], perturbed=(perturbed,))
            for metric in pair.metrics():
                gap = pair.gap(metric)
                floor = None if gap is None else noise_floor(pair, gap)
                if gap is not None and floor is not None:
                    judged = gap.steps <= horizon(pair, metric)
                    worst[metric].append(float(np.where(judged, gap.absolute / floor, 0).max()))
            for kind in ("gradients", "updates"):
                for step in common_steps(pair, other, kind):
                    floors = parameter_floors(pair, kind, step) or {}
                    found = apart(pair, other, kind, step).parameters
                    place = "first" if step == 0 else "later"
                    worst[f"{place} {kind}"].append(max(found[one].distance / floors[one] for one in floors))


def main(seeds: int) -> None:
    """Run and print."""
    worst: Worst = defaultdict(list)
    for seed in range(1, seeds + 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            suite = {**clean_suite(steps=STEPS, seed=seed, dtype="fp32"), "floor": {"perturbed": PERTURBED}}
            (folder / "suite.yml").write_text(json.dumps(suite))
            command = [sys.executable, "-m", "parity", "run", str(folder / "suite.yml"), "--out", str(folder / "out")]
            subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
            measure(read_legs(RunDirectory(folder / "out")), worst)
    for what, times in worst.items():
        most, usual = max(times), np.percentile(times, 99)
        print(f"{what:<16} {len(times):>6} pairs, at most {most:.1f} times the floor, 99 of 100 {usual:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
