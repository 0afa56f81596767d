"""How soon nothing is left after the runner cancels a job. `make bench` runs it.

The runner sends SIGINT, SIGTERM 7.5 s later, and kills 2.5 s after that.
"""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.container.docker import docker, missing
from tests.entrypoint.launch.bench import Bench, processes, shell_suite, wait_for

TIMES = 10
IMAGE = "parity-test"  # made by the tests of containers
STUBBORN = "touch /out/started; trap '' INT TERM; sleep 600 & wait; sleep 600; true"


def once(folder: Path, real: bool) -> float:
    """Seconds from a SIGINT to no container and no process, of legs that ignore it."""
    bench = Bench(folder)
    if real:
        bench.env |= {
            name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("DOCKER_")
        }
        (bench.workspace / "parity.yml").write_text(shell_suite(STUBBORN))
        begun = bench.workspace / "parity-out" / "run" / "started"
    else:
        bench.docker(sleep=600)
        begun = folder / "container"
    try:
        process = bench.start(isolation="docker", image=IMAGE, gpus="none")
        wait_for(begun.exists)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        wait_for(lambda: process.poll() is not None and not processes(str(folder)))
        seconds = time.monotonic() - began
        assert not real or not docker("ps", "--all", "--quiet", "--filter", "label=org.parity-action").stdout
        assert not (folder / "container").exists()
        return seconds
    finally:
        bench.close()


def main() -> int:
    """Measure; 1 if the promise was missed."""
    real = missing() is None and docker("image", "inspect", IMAGE, check=False).returncode == 0
    took = []
    for _ in range(TIMES):
        with tempfile.TemporaryDirectory() as name:
            took.append(once(Path(name), real))
    what = f"from SIGINT to no container{'' if real else ' of a stand-in'}, {TIMES} times"
    kept = max(took) < 8
    print(f"{what:<58} {f'{max(took):.1f} s at most':>24} {'< 8 s':>14}  {'ok' if kept else 'MISSED'}", flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
