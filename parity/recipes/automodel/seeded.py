"""Models with the same weights under every layout, made whole on the CPU and cut by NeMo Automodel afterwards.

Automodel's `from_config` initialises a model after it has cut it, with a random state of each rank's own: every
layout starts from other weights (first losses of a tiny Qwen3 are 6e-3 apart), and the runs cannot be compared.
"""

import torch
from nemo_automodel.components.models.deepseek_v4.model import DeepseekV4ForCausalLM

__all__ = ["deepseek_v4"]


def deepseek_v4(config, backend, seed=1234):
    """A whole DeepSeek-V4 with Automodel's own initial weights, and ones where it leaves memory as it was.

    Args:
        config: of the model.
        backend: which kernels it is made of.
        seed: of the weights; the recipe's own gives what `from_config` gives one rank.
    """
    model = DeepseekV4ForCausalLM(config, backend=backend)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)  # tells later what was not initialised
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model.initialize_weights(buffer_device=torch.device("cpu"), dtype=config.torch_dtype)
        for name, parameter in model.named_parameters():
            if parameter.isnan().any():
                # Released 0.7.0 forgets the norms of compressed attention.
                print(f"not initialised, set to 1: {name}", flush=True)
                parameter.fill_(1.0)
    return model
