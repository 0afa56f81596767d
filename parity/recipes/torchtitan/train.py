"""torchtitan's own entry point, on a CPU too where there is no GPU for each rank."""

import os

import torch

for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}.items():
    os.environ.setdefault(name, value)  # one rank needs no torchrun
os.environ.setdefault("MASTER_PORT", "0")
if torch.cuda.device_count() < int(os.environ.get("LOCAL_WORLD_SIZE", "1")):
    import cpu

    cpu.pretend()

from torchtitan.train import main  # noqa: E402 - asks for the device when it is imported

main()
