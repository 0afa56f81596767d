"""The model on one rank, against torch's own functions."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from parity.train.data import IGNORED, batches
from parity.train.loop import Trainer
from parity.train.options import TrainOptions
from parity.train.qwen3 import Attention, Qwen3, RMSNorm, rotary, rotate

OPTIONS = TrainOptions(dtype="fp64", bias=True)


def model(options: TrainOptions = OPTIONS) -> Qwen3:
    return Trainer(options, seed=0, device=torch.device("cpu")).model


def attention(module: Attention, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    def heads(y: Tensor) -> Tensor:
        return y.view(*y.shape[:2], -1, module.head_dim).transpose(1, 2)

    def norm(y: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(y, (module.head_dim,), weight, eps=1e-6)

    q = rotate(norm(heads(module.q(x)), module.q_norm.weight), cos, sin)
    k = rotate(norm(heads(module.k(x)), module.k_norm.weight), cos, sin)
    y = F.scaled_dot_product_attention(q, k, heads(module.v(x)), is_causal=True, enable_gqa=True)
    return module.o(y.transpose(1, 2).flatten(2))


def test_grouped_query_attention_is_torchs() -> None:
    module = model().layers[0].attention
    x = torch.randn(2, 7, OPTIONS.hidden, dtype=torch.float64)
    cos, sin = rotary(7, OPTIONS.head_dim, OPTIONS.rope_theta, x)
    torch.testing.assert_close(module(x, cos, sin), attention(module, x, cos, sin))


def test_rms_norm_is_torchs() -> None:
    norm = RMSNorm(12)
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(3, 12)
    torch.testing.assert_close(norm(x), F.rms_norm(x, (12,), norm.weight, eps=1e-6))


def test_scores_after_rotation_depend_on_the_distance_alone() -> None:
    cos, sin = rotary(9, 16, 10_000.0, torch.zeros((), dtype=torch.float64))
    q, k = (torch.randn(16, dtype=torch.float64).expand(9, 16) for _ in range(2))
    scores = rotate(q, cos, sin) @ rotate(k, cos, sin).T
    torch.testing.assert_close(scores[1:, 1:], scores[:-1, :-1])
    assert not torch.allclose(scores[0, 0], scores[1, 0])


def test_a_later_token_changes_no_earlier_loss() -> None:
    net = model()
    batch = batches(OPTIONS, 0, 0)[0]
    labels = batch.labels.clone()
    labels[:, 5:] = IGNORED
    changed = batch.tokens.clone()
    changed[:, 5:] = 0
    assert torch.equal(net(batch.tokens, labels), net(changed, labels))


def test_masked_tokens_count_for_nothing() -> None:
    net = model()
    batch = batches(OPTIONS, 0, 0)[0]
    whole = net(batch.tokens, batch.labels)
    parts = []
    for row in range(len(batch.tokens)):
        length = int((batch.labels[row] != IGNORED).sum())
        parts.append(net(batch.tokens[row : row + 1, :length], batch.labels[row : row + 1, :length]))
    torch.testing.assert_close(whole, sum(parts))


@pytest.mark.parametrize(("dtype", "bound"), [("fp32", 1e-6), ("bf16", 1e-2)])
def test_a_narrower_dtype_computes_the_same_less_precisely(dtype: str, bound: float) -> None:
    batch = batches(OPTIONS, 0, 0)[0]
    exact = model()(batch.tokens, batch.labels)
    narrow = model(replace(OPTIONS, dtype=dtype))(batch.tokens, batch.labels)
    assert 1e-9 < abs(narrow / exact - 1) < bound


def test_attention_matters_to_the_first_loss() -> None:
    # With weights too small it would not, and no wrong cut of it could be seen in the first loss.
    net = model()
    batch = batches(OPTIONS, 0, 0)[0]
    before = net(batch.tokens, batch.labels)
    for layer in net.layers:
        torch.nn.init.zeros_(layer.attention.o.weight)
    assert abs(net(batch.tokens, batch.labels) / before - 1) > 1e-2
