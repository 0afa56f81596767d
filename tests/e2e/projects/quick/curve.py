"""A run over so many ranks, into the named file; the steps from `GOES_WRONG` on are off where there are several."""

import json
import math
import sys
from pathlib import Path

GOES_WRONG = 100

out, steps, tp = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
lines = []
for step in range(steps):
    loss = 6 - step / 13 + (1e-2 if tp > 1 and step >= GOES_WRONG else 0)
    lines.append(json.dumps({"step": step, "loss": loss, "grad_norm": 2 + math.sin(step) / 7}))
Path(out).write_text("\n".join(lines) + "\n")
