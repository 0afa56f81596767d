"""The data: the same for every layout, and ragged enough to tell a mean of means from a mean."""

from dataclasses import replace

import torch

from parity.train.data import IGNORED, POOL, batches, sample
from parity.train.options import TrainOptions

OPTIONS = TrainOptions()


def test_labels_are_the_tokens_that_follow_up_to_a_ragged_end() -> None:
    lengths = set()
    for index in range(POOL):
        tokens, labels = sample(OPTIONS, 0, index)
        length = int((labels != IGNORED).sum())
        assert torch.equal(labels[: length - 1], tokens[1:length])
        assert (labels[length:] == IGNORED).all()
        assert OPTIONS.seq_len // 4 <= length <= OPTIONS.seq_len
        lengths.add(length)
    assert len(lengths) > POOL // 2


def test_no_sample_is_masked_whole_even_with_one_token() -> None:
    for index in range(POOL):
        assert (sample(replace(OPTIONS, seq_len=1), 0, index)[1] != IGNORED).all()


def test_samples_differ_until_the_pool_is_through() -> None:
    texts = {tuple(sample(OPTIONS, 0, index)[0].tolist()) for index in range(2 * POOL)}
    assert len(texts) == POOL


def test_another_seed_is_another_text() -> None:
    assert not torch.equal(sample(OPTIONS, 0, 0)[0], sample(OPTIONS, 1, 0)[0])


def test_the_global_batch_does_not_depend_on_how_it_is_cut() -> None:
    for step in (0, 3):
        whole = batches(replace(OPTIONS, micro_batch=4, accumulate=1), 0, step)
        cut = batches(replace(OPTIONS, micro_batch=1, accumulate=4), 0, step)
        assert (len(whole), len(cut)) == (1, 4)
        assert torch.equal(whole[0].tokens, torch.cat([batch.tokens for batch in cut]))
        assert torch.equal(whole[0].labels, torch.cat([batch.labels for batch in cut]))


def test_steps_take_one_sample_after_another() -> None:
    first, second = (batches(OPTIONS, 0, step)[0].tokens[0] for step in (0, 1))
    assert torch.equal(first, sample(OPTIONS, 0, 0)[0])
    assert torch.equal(second, sample(OPTIONS, 0, 4)[0])
