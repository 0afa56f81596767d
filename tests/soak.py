"""Run embedded suites on a busy machine and kill a random rank in each run. `make soak` runs it.

Each run has to end with the verdict `error` and the right rank's name, leave no process, and keep whole what the legs
that finished have recorded.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from parity.commands.suites import RECIPES
from parity.launch import marker
from parity.launch.files import tail
from parity.launch.left import last_steps
from parity.suite import load

SUITES = ("tensor-parallel", "deepseek-v4-pp2", "deepseek-v4-fsdp2", "qwen3-cp2", "deepseek-v4-ep2")
STEPS = 120
LAST = 50  # the latest step after which a rank is killed: early enough to find it alive
# Ends with whoever started it.
BUSY = (
    "import sys; from parity.launch.linux import die_with_parent; die_with_parent(int(sys.argv[1]))\nwhile True: pass"
)
PATIENCE = 900.0


@dataclass(frozen=True)
class Victim:
    """Who is to be killed, and after which of its steps; -1 for as soon as it is there."""

    leg: str
    rank: int
    after: int


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Have so many processes compute all the while."""
    made = [subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for one in made:
            one.kill()
            one.wait()


def choose(suite: str, chance: random.Random) -> Victim:
    """Any rank of any leg of an embedded suite, at any of its earlier steps."""
    legs = load(RECIPES / "embedded" / f"{suite}.yml").legs
    name = chance.choice(list(legs))
    return Victim(name, chance.randrange(legs[name].ranks), chance.randrange(-1, LAST))


def run(suite: str, victim: Victim, out: Path) -> list[str] | None:
    """Run a suite and kill the victim.

    Returns:
        What was not as it has to be; None where the victim had ended before it could be killed.
    """
    words = [sys.executable, "-m", "parity", "run", f"embedded/{suite}", "--steps", str(STEPS), "--out", str(out)]
    parity = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        killed = _kill(victim, out, parity)
        said, _ = parity.communicate(timeout=PATIENCE)
    finally:
        parity.kill()  # nothing, where it has ended
    return _wrong(victim, out, parity.returncode, said) if killed else None


def _kill(victim: Victim, out: Path, parity: "subprocess.Popen[str]") -> bool:
    folder = out / "legs" / victim.leg
    record, log = folder / f"rank-{victim.rank}.jsonl", folder / f"rank-{victim.rank}.log"
    deadline = time.monotonic() + PATIENCE
    while parity.poll() is None and time.monotonic() < deadline:
        if victim.after < 0 or last_steps(folder, victim.rank + 1).get(victim.rank, -1) >= victim.after:
            found = [one for one in psutil.Process(parity.pid).children(recursive=True) if _writes(one, log)]
            if found or victim.after >= 0:
                for one in found:
                    one.kill()
                return bool(found) and '"kind": "end"' not in tail(record, 1 << 12)
        time.sleep(0.01)
    return False


def _writes(process: psutil.Process, log: Path) -> bool:
    try:
        return os.readlink(f"/proc/{process.pid}/fd/1") == str(log)
    except OSError:
        return False


def _wrong(victim: Victim, out: Path, code: int, said: str) -> list[str]:
    if not (out / "result.json").exists():
        return [f"no result; exit code {code}: {said[-500:]}"]
    result = json.loads((out / "result.json").read_text())
    legs = {leg["name"]: leg for leg in result["legs"]}
    named = legs[victim.leg]
    found = {
        "verdict": (result["verdict"], "error"),
        "exit code": (code, 4),
        "status": (named["status"], "failed"),
        "cause": (named["cause"], "crashed"),
        "rank": (named["failing_rank"], victim.rank),
        "error": (named["error"], "killed by signal 9 (SIGKILL)"),
        "left": ([one.pid for one in marker.members(result["run_id"], None)], []),
        "others": ({leg["status"] for leg in legs.values() if leg is not named}, {"finished"}),
    }
    wrong = [f"{what}: {is_} instead of {expected}" for what, (is_, expected) in found.items() if is_ != expected]
    for name, leg in legs.items():
        if leg["status"] == "finished":
            wrong += [
                f"{name}: rank {rank} is not whole" for rank in range(leg["ranks"]) if not _whole(out, name, rank)
            ]
    return wrong


def _whole(out: Path, leg: str, rank: int) -> bool:
    lines = [json.loads(line) for line in (out / "legs" / leg / f"rank-{rank}.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if line["kind"] == "step"]
    return steps == list(range(STEPS)) and lines[-1]["kind"] == "end"


def main() -> int:
    """So many runs as the first argument says; 1 if any was not as it has to be."""
    runs, seed = (int(word) for word in (sys.argv[1:] + ["30", "0"][len(sys.argv) - 1 :])[:2])
    chance, done, bad = random.Random(seed), 0, 0
    with busy(2 * len(os.sched_getaffinity(0))), tempfile.TemporaryDirectory() as name:
        while done < runs:
            suite = SUITES[done % len(SUITES)]
            victim = choose(suite, chance)
            began = time.monotonic()
            wrong = run(suite, victim, Path(name) / f"run-{time.monotonic_ns()}")
            if wrong is None:
                print(f"{suite}: {victim} ended too early, again", flush=True)
                continue
            done += 1
            bad += bool(wrong)
            how = "; ".join(wrong) or "ok"
            where = f"{victim.leg} rank {victim.rank} after step {victim.after}"
            print(f"{done:>3} {suite}: {where}, {time.monotonic() - began:.0f} s: {how}", flush=True)
    print(f"{done - bad} of {done} as they have to be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
