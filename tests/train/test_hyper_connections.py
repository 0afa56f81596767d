"""The streams' mixing, by its definition."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.train.hyper_connections import HyperConnection, HyperHead, expand, sinkhorn


@settings(deadline=None, max_examples=50)
@given(size=st.integers(1, 6), scale=st.sampled_from([0.01, 1.0, 30.0]), seed=st.integers(0, 99))
def test_no_part_of_a_stream_is_lost_in_mixing(size: int, scale: float, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    matrix = sinkhorn(scale * torch.randn(3, size, size, dtype=torch.float64, generator=rng))
    assert (matrix >= 0).all()
    torch.testing.assert_close(matrix.sum(-2), torch.ones(3, size, dtype=torch.float64))


def test_rows_sum_to_one_as_nearly_as_is_said() -> None:
    logits = torch.randn(1000, 4, 4, generator=torch.Generator().manual_seed(0))
    assert (sinkhorn(logits).sum(-1) - 1).abs().mean() < 3e-3
    torch.testing.assert_close(sinkhorn(logits, 40).sum(-1), torch.ones(1000, 4))


def neutral(module: torch.nn.Module) -> None:
    """Coefficients that do not depend on the token, all logits zero."""
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)


def test_with_equal_weights_the_streams_become_their_mean_plus_the_blocks_output() -> None:
    connection = HyperConnection(5, 4)
    neutral(connection)
    x = torch.randn(2, 3, 4, 5)
    y = connection(x, lambda block_input: 10 * block_input)
    read = 0.5 * x.sum(2)  # sigmoid(0) of each
    expected = expand(x.mean(2) + 10 * read, 4)  # 2 sigmoid(0) is one
    torch.testing.assert_close(y, expected)


def test_stream_i_gets_its_own_share_of_the_block_and_of_each_stream() -> None:
    connection = HyperConnection(5, 2)
    neutral(connection)
    read, write, mix = connection.coefficients.bias.data.split((2, 2, 4))
    read.copy_(torch.tensor([0.3, -0.2]))
    write.copy_(torch.tensor([1.0, -1.0]))
    mix.copy_(torch.tensor([0.0, 1.0, 2.0, -1.0]))
    x = torch.randn(1, 1, 2, 5)
    y = connection(x, torch.sin)
    block = (torch.sigmoid(read)[:, None] * x[0, 0]).sum(0).sin()
    matrix = sinkhorn(mix.view(2, 2))
    for stream in range(2):
        mixed = matrix[stream, 0] * x[0, 0, 0] + matrix[stream, 1] * x[0, 0, 1]
        torch.testing.assert_close(y[0, 0, stream], mixed + 2 * torch.sigmoid(write[stream]) * block)


def test_the_head_reads_a_weighted_sum() -> None:
    head = HyperHead(5, 4)
    neutral(head)
    x = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(head(x), 0.5 * x.sum(2))
