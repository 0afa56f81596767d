"""What a warm cache saves: the embedded suite with all its floor legs, of which only the candidate runs again."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

RUNS = 3
RECIPE = Path(__file__).parents[2] / "parity" / "recipes" / "embedded" / "tensor-parallel.yml"
SAVED = 0.6


def seconds(*words: object, cwd: Path) -> float:
    """Wall seconds of a run that must pass."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "parity", "run", *map(str, words)], cwd=cwd, check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - started


def main() -> int:
    """Print one line; 1 if less was saved than is promised."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        suite = {**yaml.safe_load(RECIPE.read_text()), "floor": ["repeat", "perturbed"]}
        (folder / "parity.yml").write_text(yaml.safe_dump(suite, sort_keys=False))
        seconds("--cache", "cache", "--out", "out-first", cwd=folder)
        all_legs, candidate = [], []
        for number in range(RUNS):
            all_legs.append(seconds("--no-cache", "--out", f"out-{number}", cwd=folder))
            candidate.append(seconds("--cache", "cache", "--out", f"out-{number}-cached", cwd=folder))
    saved = statistics.median(1 - warm / cold for cold, warm in zip(all_legs, candidate, strict=True))
    text = f"{statistics.median(all_legs):.1f} s, {statistics.median(candidate):.1f} s: {saved:.0%}"
    what = "embedded suite with repeat and perturbed, saved by a cache"
    print(f"{what:<58} {text:>24} {'>= 60 %':>14}  {'ok' if saved >= SAVED else 'MISSED'}", flush=True)
    return 0 if saved >= SAVED else 1


if __name__ == "__main__":
    sys.exit(main())
