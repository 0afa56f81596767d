"""The recorder goes into other people's images, which have torch and what torch imports, and nothing else."""

import subprocess
import sys

OTHERS = ("pydantic", "click", "rich", "jinja2", "yaml", "psutil", "requests", "plotly")


def test_the_recorder_needs_torch_alone(tmp_path: object) -> None:
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {OTHERS!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
import torch
from parity.record import Recorder
recorder = Recorder({str(tmp_path)!r})
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(model.parameters())
recorder.start(model, optimizer)
for step in range(2):
    batch = torch.randn(3, 4)
    model(batch).sum().backward()
    optimizer.step()
    recorder.step(step, loss=1.0, grad_norm=1.0, lr=1e-3, batch=batch)
recorder.end(2)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
