"""How fast logs are read, against `grep -c loss` on the same file in the same run. `make bench` runs it.

Both read from the page cache. A log has a step every 10 kB, 100,000 in a gigabyte, among what others print.
"""

import math
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench import peak_mib, row

RUNS, STEPS, GIGABYTE, TENTH = 3, 100_000, 10**9, 10**8
LEAST, MOST_MIB = 0.5, 16
NOISE = "host0:31873:32011 [0] NCCL INFO Channel 05/0 : 0[0] -> 1[1] via P2P/direct pointer, comm 0x55d0c8 nranks 8\n"
# Reading one is all that the process does, so that its peak is that of reading.
READ = "import sys; from parity.curves import read; print(read(sys.argv[1]).curves['loss'].steps.size)"

TIMERS = """\
(min, max) time across ranks (ms):
    forward-backward ...............................: ({0:.2f}, {1:.2f})
    forward-compute ................................: ({0:.2f}, {1:.2f})
    backward-compute ...............................: ({0:.2f}, {1:.2f})
    optimizer ......................................: ({0:.2f}, {1:.2f})
"""


def megatron(step: int) -> str:
    """What Megatron-LM prints of a step with `--log-interval 1 --timing-log-level 1`."""
    noise = math.sin(step)
    record = (
        f" [2026-11-30 11:18:36.{step % 1000:06d}] iteration {step:8d}/ 9000000 | consumed samples: {64 * step:12d} |"
        f" elapsed time per iteration (ms): {900 + 90 * noise:.1f} | learning rate: {1e-4 / (1 + step / 1e6):.6E} |"
        f" global batch size:    64 | lm loss: {6 + noise:.6E} | loss scale: 1.0 | grad norm: {2 + noise:.3f} |"
        f" number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )
    return record + TIMERS.format(100 + 9 * noise, 200 + 9 * noise)


def automodel(step: int) -> str:
    """What NeMo Automodel prints of a step, and a line of another logger."""
    noise = math.sin(step)
    at = f"2026-11-30 11:{step // 60 % 60:02d}:{step % 60:02d}"
    return (
        f"{at} | INFO | root | step {step} | epoch 0 | loss {6 + noise:.4f} | grad_norm {2 + noise:.4f} |"
        f" lr 1.00e-03 | mem {30 + noise:.2f} GiB | tps {6191 + 90 * noise:.2f}({6191 + 90 * noise:.2f}/gpu) |"
        f" num_label_tokens {8192 - step % 7}\n"
        f"{at} | DEBUG | nemo_automodel.components.datasets.loader | packed {step % 13} samples of"
        f" {1000 + step % 97} tokens into a batch, {step % 5} of them for the next; the buffer holds {step % 512}\n"
    )


def write(path: Path, of_step: Callable[[int], str], size: int) -> None:
    """A log of so many bytes, its steps spread over it evenly."""
    noise = NOISE * (size // STEPS // len(NOISE) + 1)
    with path.open("w") as file:
        written = 0
        for step in range(1, STEPS + 1):
            written += file.write(of_step(step))
            written += file.write(noise[-(size * step // STEPS - written) :])


def processor_seconds(*command: object) -> float:
    """What a command that must succeed takes of the processor, user and system: others use the machine as well."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Into a pipe: GNU grep stops at the first match where its output is /dev/null.
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> int:
    """Measure; 1 if a promise was missed."""
    kept = []
    for name, of_step in (("Megatron-LM", megatron), ("NeMo Automodel", automodel)):
        with tempfile.TemporaryDirectory() as folder:
            large, small = Path(folder) / "large.log", Path(folder) / "small.log"
            write(large, of_step, GIGABYTE)
            write(small, of_step, TENTH)
            grep, ours = [], []
            for _ in range(RUNS):
                grep.append(processor_seconds("grep", "-c", "loss", large))
                ours.append(processor_seconds(sys.executable, "-c", READ, large))
            ratio = statistics.median(a / b for a, b in zip(grep, ours, strict=True))
            text = f"{statistics.median(ours):.2f} s, {ratio:.2f}"
            what = f"read 1 GB of {name}'s log: times the speed of grep -c"
            kept.append(row(what, text, f">= {LEAST}", ratio >= LEAST))
            memory, less = (peak_mib(sys.executable, "-c", READ, path) for path in (large, small))
            text = f"{memory:.0f} MiB, {less:.0f} MiB"
            what = "the same, peak memory, and that of 100 MB with as many steps"
            kept.append(row(what, text, f"<= {MOST_MIB} MiB apart", memory - less <= MOST_MIB))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
