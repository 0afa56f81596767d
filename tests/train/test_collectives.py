"""The collectives' mathematics, with the ranks as threads of one process."""

import threading
from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from parity.train.collectives import (
    Comm,
    cross_entropy,
    gather,
    identity_then_sum,
    scatter_sum,
    sum_then_identity,
)
from parity.train.shards import span


class Threads(Comm):
    """Ranks that lay their pieces on a table."""

    def __init__(self, rank: int, size: int, table: list[list[Tensor]], barrier: threading.Barrier) -> None:
        super().__init__(rank, size)
        self.table = table
        self.barrier = barrier

    def exchange(self, pieces: list[Tensor], shapes: list[torch.Size]) -> list[Tensor]:
        self.table[self.rank] = pieces
        self.barrier.wait()
        received = [self.table[rank][self.rank].clone() for rank in range(self.size)]
        self.barrier.wait()
        assert [piece.shape for piece in received] == list(shapes)
        return received


def on_ranks(size: int, function: Callable[[Comm], object]) -> list:
    """What `function(comm)` returns on each rank."""
    table: list[list[Tensor]] = [[] for _ in range(size)]
    barrier = threading.Barrier(size, timeout=120)
    results: list = [None] * size

    def work(rank: int) -> None:
        try:
            results[rank] = function(Threads(rank, size, table, barrier))
        except BaseException as error:
            barrier.abort()
            results[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_cross_entropy_over_a_split_vocabulary_is_torchs(data: st.DataObject) -> None:
    vocab = data.draw(st.integers(2, 40), "vocab")
    size = data.draw(st.integers(1, min(vocab, 5)), "ranks")
    count = data.draw(st.integers(1, 6), "tokens")
    scale = data.draw(st.sampled_from([0.01, 1.0, 100.0, 1e4]), "scale")
    label = st.integers(0, vocab - 1) | st.just(-100)
    labels = torch.tensor(data.draw(st.lists(label, min_size=count, max_size=count), "labels"))
    rng = torch.Generator().manual_seed(data.draw(st.integers(0, 99), "seed"))
    logits = scale * torch.randn(count, vocab, dtype=torch.float64, generator=rng)
    upstream = torch.randn(count, dtype=torch.float64, generator=rng)

    whole = logits.clone().requires_grad_()
    expected = F.cross_entropy(whole, labels, reduction="none")
    expected.backward(upstream)

    def rank(comm: Comm) -> tuple[Tensor, Tensor]:
        start, stop = span(vocab, comm.size, comm.rank)
        mine = logits[:, start:stop].clone().requires_grad_()
        losses = cross_entropy(mine, labels, start, comm)
        losses.backward(upstream)
        return losses.detach(), mine.grad

    results = on_ranks(size, rank)
    for losses, _ in results:
        torch.testing.assert_close(losses, expected.detach())
    torch.testing.assert_close(torch.cat([grad for _, grad in results], 1), whole.grad)


SIZES = [3, 2, 2]


def pieces() -> Tensor:
    return torch.arange(3 * 2 * 7, dtype=torch.float64).view(3, 2, 7).sin()


def test_uneven_pieces_are_joined_and_their_gradients_summed() -> None:
    values, upstream = pieces(), pieces().cos()

    def rank(comm: Comm) -> tuple[Tensor, Tensor]:
        x = values[0].split(SIZES, 1)[comm.rank].clone().requires_grad_()
        y = gather(x, comm, SIZES, 1)
        y.backward(upstream[comm.rank])
        return y.detach(), x.grad

    results = on_ranks(3, rank)
    for joined, _ in results:
        assert torch.equal(joined, values[0])
    torch.testing.assert_close(torch.cat([grad for _, grad in results], 1), upstream.sum(0))


def test_a_sum_is_scattered_unevenly_and_its_gradients_joined() -> None:
    values, upstream = pieces(), pieces()[0].cos()

    def rank(comm: Comm) -> tuple[Tensor, Tensor]:
        x = values[comm.rank].clone().requires_grad_()
        y = scatter_sum(x, comm, SIZES, 1)
        y.backward(upstream.split(SIZES, 1)[comm.rank])
        return y.detach(), x.grad

    results = on_ranks(3, rank)
    torch.testing.assert_close(torch.cat([y for y, _ in results], 1), values.sum(0))
    for _, grad in results:
        assert torch.equal(grad, upstream)


def test_entering_sums_gradients_and_leaving_sums_values() -> None:
    values = pieces()

    def rank(comm: Comm) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, y = (values[comm.rank].clone().requires_grad_() for _ in range(2))
        entered, left = identity_then_sum(x, comm), sum_then_identity(y, comm)
        entered.backward(values[comm.rank])
        left.backward(values[0])
        return entered.detach(), x.grad, left.detach(), y.grad

    for index, (entered, x_grad, left, y_grad) in enumerate(on_ranks(3, rank)):
        assert torch.equal(entered, values[index])
        torch.testing.assert_close(x_grad, values.sum(0))
        torch.testing.assert_close(left, values.sum(0))
        assert torch.equal(y_grad, values[0])


def test_alone_nothing_needs_a_process_group() -> None:
    comm = Comm()
    x = pieces()[0]
    for result in (comm.sum(x), comm.max(x), comm.gather(x, [7], 1), comm.scatter_sum(x, [7], 1)):
        assert torch.equal(result, x)
        assert result.data_ptr() != x.data_ptr()
