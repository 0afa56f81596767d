"""How fast: whole commands side by side in one run, as ratios. `make bench` runs it.

Absolute seconds depend on the machine; the ratios and the peak memory are what the project promises.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from parity.report.html import render_html
from parity.suite import load
from tests.report import browser
from tests.report.drawn import long

RUNS = 3
RECIPE = Path(__file__).parent.parent / "parity" / "recipes" / "embedded" / "tensor-parallel.yml"
PARITY = [sys.executable, "-m", "parity"]


def timed(*command: object, env: dict[str, str] | None = None) -> float:
    """Wall seconds of a command that must succeed."""
    started = time.perf_counter()
    subprocess.run(
        list(map(str, command)),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
    )
    return time.perf_counter() - started


def one_after_another(steps: int) -> float:
    """The embedded suite's legs as one would start them by hand, those that measure noise among them."""
    total = 0.0
    for leg in load(RECIPE).legs.values():
        with tempfile.TemporaryDirectory() as folder:
            total += timed(
                sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", leg.ranks,
                "-m", "parity.train", "--tp", leg.layout.tp, "--steps", steps,
                env={**leg.env, "PARITY_RECORD_DIR": folder},
            )  # fmt: skip
    return total


def write_curves(folder: Path, steps: int) -> list[Path]:
    """Three logs of a run that learns, at full precision, a few parts in 10^7 apart."""
    paths = []
    for index, name in enumerate(("baseline", "candidate", "control")):
        path = folder / f"{name}.jsonl"
        with path.open("w") as file:
            for step in range(steps):
                loss = 6 * math.exp(-step / steps) * (1 + 1e-7 * index * math.sin(step))
                row = {"step": step, "loss": loss, "grad_norm": 2 + math.sin(step) / 7, "lr": 1e-3 / (1 + step)}
                file.write(json.dumps(row) + "\n")
        paths.append(path)
    return paths


def peak_mib(*command: object) -> float:
    """Peak resident memory of a command, in a child that runs nothing else."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, command)], check=True, capture_output=True, text=True
    )
    return int(done.stdout) * (1 if sys.platform == "linux" else 1 / 1024) / 1024


def opening(folder: Path) -> list[float]:
    """Seconds until a report of five legs of 10,000 steps is drawn in a new tab, from the start of its loading."""
    path = folder / "report.html"
    path.write_text(render_html(long(legs=5, steps=10_000)), encoding="utf-8")
    seconds = []
    with browser.browser() as chromium:
        for _ in range(RUNS):
            page = chromium.new_context(viewport={"width": 1280, "height": 900}).new_page()
            started = time.perf_counter()
            browser.drawn(page, path)
            seconds.append(time.perf_counter() - started)
            page.context.close()
    return seconds


def row(what: str, measured: str, promised: str, kept: bool) -> bool:
    """Print one line; whether the promise was kept."""
    print(f"{what:<58} {measured:>24} {promised:>14}  {'ok' if kept else 'MISSED'}", flush=True)
    return kept


def main() -> int:
    """Measure everything; 1 if a promise was missed."""
    print(f"median of {RUNS} runs each, {len(os.sched_getaffinity(0))} cores\n")
    kept = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, theirs = [], []
        for index in range(RUNS):
            ours.append(timed(*PARITY, "run", "embedded/tensor-parallel", "--out", folder / f"out-{index}"))
            theirs.append(one_after_another(steps=40))
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        text = f"{statistics.median(ours):.1f} s / {statistics.median(theirs):.1f} s = {ratio:.2f}"
        kept.append(row("embedded suite, against torchrun leg after leg", text, "<= 0.60", ratio <= 0.6))

        base, candidate, control = write_curves(folder, steps=100_000)
        command = (*PARITY, "compare", "--baseline", base, "--candidate", candidate, "--control", control)
        seconds = statistics.median(timed(*command) for _ in range(RUNS))
        kept.append(row("compare three curves of 100,000 steps", f"{seconds:.2f} s", "<= 2 s", seconds <= 2))
        memory = peak_mib(*command)
        kept.append(row("the same, peak memory", f"{memory:.0f} MiB", "<= 300 MB", memory * 2**20 <= 300e6))
        seconds = statistics.median(timed(*PARITY, "--help") for _ in range(RUNS))
        kept.append(row("parity --help", f"{seconds:.2f} s", "< 0.5 s", seconds < 0.5))
        what = "open report.html of 5 legs of 10,000 steps"
        if reason := browser.missing():
            kept.append(row(what, reason.split(":")[0], "< 2 s", False))
        else:
            seconds = min(opening(folder))  # whatever else the machine does only adds to it
            kept.append(row(what, f"{seconds:.2f} s", "< 2 s", seconds < 2))
    # In processes of their own: one must not have torch, and the other sets its threads.
    modules = (
        "tests.schedule.bench_schedule",
        "tests.curves.bench_curves",
        "tests.checks.bench_checks",
        "tests.record.bench_recorder",
        "tests.launch.bench_ending",
        "tests.cache.bench_cache",
        "tests.entrypoint.launch.bench_signal",
    )
    kept += [subprocess.run([sys.executable, "-m", module], check=False).returncode == 0 for module in modules]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
