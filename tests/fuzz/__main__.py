"""Mutate logs of every format until the time is over: `python -m tests.fuzz [minutes]`, or `make fuzz`."""

import itertools
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.readers import Source, check, sources

ROUND = 500
# Of processor time, for some five times a file of at most 256 KiB.
MOST_SECONDS = 10.0


def main(minutes: float) -> int:
    """Rounds with seeds 0, 1, 2, …; 1 at the end if any found something, which was printed, made small."""
    warnings.simplefilter("error")
    started, tried, found = time.monotonic(), 0, 0
    for number in itertools.count():
        if time.monotonic() - started > 60 * minutes:
            break

        @seed(number)
        @settings(
            max_examples=ROUND,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        )
        @given(sources())
        def one_round(source: Source) -> None:
            nonlocal tried
            tried += 1
            with tempfile.TemporaryDirectory() as folder:
                check(Path(folder), source, seconds=MOST_SECONDS)

        try:
            one_round()
        except Exception:  # all that hypothesis found, whatever it is
            found += 1
            print(f"seed {number}:", file=sys.stderr)
            traceback.print_exc()
        if number % 10 == 0:
            print(f"{tried:,} files after {time.monotonic() - started:.0f} s, {found} rounds failed", flush=True)
    print(f"{tried:,} files in {time.monotonic() - started:.0f} s, {found} rounds failed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 30))
