"""What parity itself takes around its legs, and how soon everything is gone after SIGTERM. `make bench` runs it."""

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import yaml

from parity.launch import marker

PARITY = [sys.executable, "-m", "parity"]
RUNS = 3
ENDINGS = 100
SIDE_BY_SIDE = 2
LONGEST = 8.0  # seconds; by then every leg of the embedded suite runs
# Writes a curve, and when this process began and ended, in seconds since boot.
LEG = """\
import json, os, sys, time
began = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
with open(sys.argv[1] + "/metrics.jsonl", "w") as log:
    for step in range(20):
        time.sleep(0.3)
        print(json.dumps({"step": step, "loss": 6 - step / 13, "grad_norm": 2.0 + step / 17}), file=log, flush=True)
with open(sys.argv[1] + "/times.json", "w") as file:
    json.dump([began, time.clock_gettime(time.CLOCK_BOOTTIME)], file)
"""


def own_time(folder: Path) -> tuple[float, float]:
    """Seconds of a run of three legs one after another in which no leg ran; and of the whole run."""
    (folder / "leg.py").write_text(LEG)
    suite = {
        "name": "own-time",
        "steps": 20,
        "trainer": {"command": [sys.executable, "{suite_dir}/leg.py", "{out}", "{dp}", "{tp}"]},
        "source": "{out}/metrics.jsonl",
        "legs": {"a": {}, "b": {"layout": {"dp": 2}, "nproc": 1}, "c": {"layout": {"tp": 2}, "nproc": 1}},
        "compare": [{"baseline": "a", "candidate": "b", "control": "c"}],
        "layout": "unproven",
    }
    (folder / "parity.yml").write_text(yaml.safe_dump(suite))
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    words = [*PARITY, "run", str(folder / "parity.yml"), "--slots", "1", "--out", str(folder / "out")]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    whole = time.clock_gettime(time.CLOCK_BOOTTIME) - began
    spans = [json.loads(path.read_text()) for path in (folder / "out").glob("legs/*/times.json")]
    assert len(spans) == 3
    return whole - sum(end - start for start, end in spans), whole


def ending(folder: Path, moment: float) -> float:
    """Seconds from a SIGTERM to the end of the last process of a run; it comes so long after the run's start."""
    out = folder / "out"
    words = [*PARITY, "run", "embedded/tensor-parallel", "--steps", "100000", "--out", str(out)]
    parity = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(moment)
    family = [psutil.Process(parity.pid), *psutil.Process(parity.pid).children(recursive=True)]
    parity.terminate()
    began = time.monotonic()
    parity.wait(60)
    psutil.wait_procs(family, timeout=60)
    if (out / "suite.json").exists():
        run_id = json.loads((out / "suite.json").read_text())["run_id"]
        while marker.members(run_id, None) and time.monotonic() - began < 60:
            time.sleep(0.02)
    return time.monotonic() - began


def row(what: str, measured: str, promised: str, kept: bool) -> bool:
    """Print one line; whether the promise was kept."""
    print(f"{what:<58} {measured:>24} {promised:>14}  {'ok' if kept else 'MISSED'}", flush=True)
    return kept


def main() -> int:
    """Measure both; 1 if a promise was missed."""
    kept = []
    with tempfile.TemporaryDirectory() as name:
        measured = []
        for index in range(RUNS):
            (Path(name) / str(index)).mkdir()
            measured.append(own_time(Path(name) / str(index)))
        own, whole = (statistics.median(numbers) for numbers in zip(*measured, strict=True))
        most = 0.5 + 0.02 * whole
        text = f"{own:.2f} s of {whole:.1f} s"
        kept.append(row("parity itself, around the legs of a run", text, f"<= {most:.2f} s", own <= most))
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        folders = [Path(name) / str(index) for index in range(ENDINGS)]
        for folder in folders:
            folder.mkdir()
        took = list(pool.map(ending, folders, [chance.uniform(0, LONGEST) for _ in folders]))
    soon = sum(seconds < 5 for seconds in took)
    text = f"{soon} of {ENDINGS}, {max(took):.1f} s"
    kept.append(row("from SIGTERM to no process left, at random moments", text, "< 5 s", soon == ENDINGS))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
