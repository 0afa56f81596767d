"""What the trainer asks of an architecture, and the architectures by name.

`parity/train/<name>.py` is the model `<name>` of `TrainOptions.model`: it has a function `build(options)` that gives
a `Model` with parameters allocated and not initialised. The model knows nothing of the axes; what an axis needs to
know beyond the parts below, it finds by the types and names of the model's modules.
"""

import importlib
from typing import ClassVar

import torch
from torch import Tensor, nn

from parity.train.options import TrainOptions

__all__ = ["DTYPES", "Model", "build"]

DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}


class Model(nn.Module):
    """A decoder in four parts, so that a pipeline stage can have some of them and FSDP wrap the layers.

    B sequences, T tokens, V vocabulary. The stream is what passes from layer to layer: (B, T, C) for most, with
    further dimensions for hyper-connections; all layers pass the same shape and dtype, and its first dimension
    is B.

    Attributes:
        layers: the decoder layers. Run them with `for layer in self.layers.children()`: a stage holds some, under
            their indices in the whole model.
        entry: names of the submodules that only `enter` uses.
        exit: names of the submodules that only `leave` and `loss` use.
    """

    layers: nn.Module
    entry: ClassVar[tuple[str, ...]]
    exit: ClassVar[tuple[str, ...]]

    def enter(self, tokens: Tensor) -> Tensor:
        """Token ids (B, T) to the stream that the first layer gets."""
        raise NotImplementedError

    def through(self, x: Tensor, tokens: Tensor) -> Tensor:
        """The stream through the layers that are here; every layer may look at the token ids (B, T)."""
        raise NotImplementedError

    def leave(self, x: Tensor) -> Tensor:
        """The last layer's stream to logits (B, T, V)."""
        raise NotImplementedError

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Logits (B, T, V) and labels (B, T) to the float64 sum of the losses of tokens whose label is not -100.

        The sum is float64 because curves are compared at the last digits of fp32, and adding some hundred
        numbers in another order must not use those up.
        """
        raise NotImplementedError

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Token ids and labels, both (B, T), to the sum that `loss` gives."""
        return self.loss(self.leave(self.through(self.enter(tokens), tokens)), labels)


def build(options: TrainOptions) -> Model:
    """The model that the options name."""
    return importlib.import_module(f"parity.train.{options.model}").build(options)
