"""A step's data, however it is spread and ordered."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from parity.errors import UsageError
from parity.record.batches import fingerprint_batches

SAMPLES, LENGTH = 6, 5


def fingerprint(batch: object, micro_batches: int | None = None) -> tuple[int, int, int]:
    found = fingerprint_batches(batch, micro_batches)
    return found.hash([one.tolist() for one in found.sums]), found.samples, found.micro_batches


def data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 50_000, (SAMPLES, LENGTH), generator=generator)
    labels = torch.randint(0, 50_000, (SAMPLES, LENGTH), generator=generator)
    labels[:, 3:] = -100
    return tokens, labels


@given(st.permutations(range(SAMPLES)), st.lists(st.integers(1, SAMPLES - 1), unique=True), st.integers(0, 99))
def test_ranks_and_micro_batches_add_up_in_any_order(order: list[int], bounds: list[int], seed: int) -> None:
    tokens, labels = data(seed)
    whole, samples, _ = fingerprint((tokens, labels))
    edges = [0, *sorted(bounds), SAMPLES]
    pieces = [order[a:b] for a, b in pairwise(edges)]
    micro = [(tokens[piece], labels[piece]) for piece in pieces]
    assert fingerprint(micro) == (whole, samples, len(pieces))
    ranks = [fingerprint(one) for one in micro]
    assert sum(one[0] for one in ranks) % 2**64 == whole
    assert sum(one[1] for one in ranks) == SAMPLES


@given(st.integers(0, SAMPLES - 1), st.integers(0, SAMPLES - 1))
def test_a_sample_taken_twice(kept: int, repeated: int) -> None:
    tokens, labels = data()
    other = tokens.clone(), labels.clone()
    for one in other:
        one[kept] = one[repeated]
    assert (fingerprint(other)[0] == fingerprint((tokens, labels))[0]) == (kept == repeated)


def test_labels_of_two_samples_exchanged() -> None:
    tokens, labels = data()
    exchanged = labels[[1, 0, *range(2, SAMPLES)]]
    assert fingerprint((tokens, exchanged))[0] != fingerprint((tokens, labels))[0]


def test_two_tokens_exchanged_between_samples_at_one_place() -> None:
    tokens, labels = data()
    other = tokens.clone()
    other[[0, 1], 2] = tokens[[1, 0], 2]
    assert fingerprint((other, labels))[0] != fingerprint((tokens, labels))[0]


def test_integers_count_by_value_and_padding_counts() -> None:
    tokens, _ = data()
    assert fingerprint(tokens.int()) == fingerprint(tokens)
    assert fingerprint(torch.nn.functional.pad(tokens, (0, 1)))[0] != fingerprint(tokens)[0]


def test_forms_of_a_micro_batch() -> None:
    @dataclass
    class Batch:
        tokens: torch.Tensor
        labels: torch.Tensor

    tokens, labels = data()
    expected = fingerprint((labels, tokens))
    assert fingerprint({"tokens": tokens, "labels": labels, "lengths": None}) == expected
    assert fingerprint(Batch(tokens, labels)) == expected
    assert expected[1:] == (SAMPLES, 1)
    assert fingerprint([tokens[:2], tokens[2:]]) == (*fingerprint(tokens)[:2], 2)
    assert fingerprint((labels, tokens), micro_batches=3) == (*expected[:2], 3)  # cut by the pipeline's schedule


def test_images_and_scalars() -> None:
    images = torch.randn(4, 3, 8, 8)
    classes = torch.arange(4)
    whole = fingerprint((images, classes))[0]
    assert fingerprint([(images[:1], classes[:1]), (images[1:], classes[1:])])[0] == whole
    assert fingerprint((-images, classes))[0] != whole
    assert fingerprint((images[:0], classes[:0])) == (0, 0, 1)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"text": "hello"}, "batch: str is no tensor"),
        ((torch.zeros(3), torch.zeros(4)), "have 3 and 4 rows"),
        (((),), "has no tensor"),
    ],
)
def test_what_is_no_batch(batch: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fingerprint(batch)
