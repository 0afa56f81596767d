"""NeMo Automodel's own fine-tuning recipe, with or without a GPU: `torchrun finetune.py --config CONFIG --key value`.

With a GPU this is `nemo_automodel.recipes.llm.train_ft` as it is released.
"""

import sys

import torch

if not torch.cuda.is_available():
    import cpu

    cpu.install()
    sys.argv += ["--dist_env.backend", "gloo"]

from nemo_automodel.recipes.llm.train_ft import main

if __name__ == "__main__":
    main()
    torch.distributed.destroy_process_group()  # or a rank may abort as it exits, in a thread of gloo's
