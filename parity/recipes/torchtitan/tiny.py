"""torchtitan's own debug model in float32, on made-up tokens. `--module tiny --config config` takes it from here."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.models import llama3
from torchtitan.models.common import ComplexRoPE
from torchtitan.models.llama3 import Llama3Model
from torchtitan.models.llama3.config_registry import llama3_debugmodel
from torchtitan.trainer import Trainer

SAMPLES, MICRO_BATCHES, LENGTH = 8, 4, 32
LAYERS, WIDTH, HEADS, VOCABULARY = 4, 64, 8, 512


class NoTokenizer(BaseTokenizer):
    """There is no text."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config: Config, *, tokenizer_path: str) -> None:
        super().__init__()

    def encode(self, *args, **kwargs) -> list[int]:
        raise NotImplementedError

    decode = get_vocab_size = encode


class Tokens(BaseDataLoader):
    """The same tokens at every step for every layout: data-parallel ranks take each their samples of a micro-batch.

    torchtitan's own loaders give each rank other documents, so that a layout with more of them trains on other text.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        seed: int = 1234

    def __init__(self, config: Config, *, dp_world_size: int, dp_rank: int, seq_len: int, local_batch_size: int, **_):
        self._config = config
        self._mine = slice(dp_rank, None, dp_world_size)
        self._length = seq_len
        self._samples = local_batch_size * dp_world_size
        self._given = 0

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:
            generator = torch.Generator().manual_seed(self._config.seed * 1_000_003 + self._given)
            shape = (self._samples, self._length + 1)
            tokens = torch.randint(VOCABULARY, shape, generator=generator)[self._mine]
            positions = torch.arange(self._length).expand(len(tokens), -1).contiguous()
            self._given += 1
            yield {"input": tokens[:, :-1].contiguous(), "positions": positions}, tokens[:, 1:].contiguous()

    def state_dict(self) -> dict[str, int]:
        return {"given": self._given}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._given = state_dict.get("given", 0)


def model() -> Llama3Model.Config:
    """What torchtitan calls its debug model, narrower.

    On a CPU torch adds up the squares of a norm in float32. Over the half a million gradients of the debug model's
    output layer that is 3e-5 off, and over shards of it that is not.
    """
    small = llama3.llama3_configs["debugmodel"](attn_backend="flex")
    small.dim, small.vocab_size = WIDTH, VOCABULARY
    small.tok_embeddings.num_embeddings, small.tok_embeddings.embedding_dim = VOCABULARY, WIDTH
    small.norm.normalized_shape = WIDTH
    small.lm_head.in_features, small.lm_head.out_features = WIDTH, VOCABULARY
    small.layers = llama3._build_llama3_layers(
        n_layers=LAYERS,
        dim=WIDTH,
        n_heads=HEADS,
        hidden_dim=3 * WIDTH,
        rope=ComplexRoPE.Config(dim=WIDTH // HEADS, max_seq_len=LENGTH),
        attn_backend="flex",
    )
    return small


def config() -> Trainer.Config:
    """Batches are for one rank; a leg that has more says so on its command line."""
    config = llama3_debugmodel()
    config.model_spec.model = model()
    config.loss.loss_fn.global_vocab_size = VOCABULARY
    config.tokenizer = NoTokenizer.Config()
    config.dataloader = Tokens.Config()
    config.training.seq_len = LENGTH
    config.training.local_batch_size = SAMPLES // MICRO_BATCHES
    config.training.global_batch_size = SAMPLES
    config.training.mixed_precision_param = "float32"
    config.training.max_norm = 0.25  # low enough that every step clips
    config.training.disable_cuda_graphs = True
    config.parallelism.pipeline_parallel_schedule = "1F1B"
    config.parallelism.pipeline_parallel_microbatch_size = SAMPLES // MICRO_BATCHES
    config.activation_checkpoint = None
    config.validator.enable = False
    config.metrics.enable_tensorboard = True
    config.metrics.disable_color_printing = True
    config.checkpoint.enable = True
    config.debug.seed = 1234
    config.debug.enable_structured_logging = False
    return config
