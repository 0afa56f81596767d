"""Replicas that part, or whose gradients were never reduced."""

from dataclasses import replace

import numpy as np

from parity.checks import replicas
from parity.checks.outcome import Outcome, Status
from parity.records.record import LegRecords, Part
from tests.checks.recorded import assert_fails, comparison, dp2, pp2, tp3
from tests.records.drawing import MODEL, draw


def test_replicas_that_part_after_a_step_fail_without_tolerance() -> None:
    candidate = tp3()
    candidate.own[(2, "weights after", "norm.weight")] = np.nextafter(MODEL["norm.weight"], 9)
    assert_fails(
        replicas.check(comparison(candidate)), "tp3: after step 0 replicas differ of norm.weight (rank 0 against 2)"
    )


def test_copies_of_a_tied_embedding_on_two_stages_are_replicas() -> None:
    candidate = pp2()
    candidate.owners["embed.weight"] = {0, 1}
    candidate.own[(1, "weights after", "embed.weight")] = MODEL["embed.weight"] * 1.0001
    assert_fails(replicas.check(comparison(candidate, "pp2")), "embed.weight (rank 0 against 1)")


def test_replicas_that_part_between_hashed_steps_are_found_at_the_last() -> None:
    records = draw(tp3())
    last = tuple(range(6))
    ranks = [replace(rank, final=last if rank.rank != 2 else (9, *last[1:])) for rank in records.ranks]
    pair = comparison(tp3())
    assert pair.candidate.records is not None
    parted = replace(pair, candidate=replace(pair.candidate, records=LegRecords(tuple(ranks))))
    # Parameter 0 is cut over the ranks, so its hashes may differ; a replicated one may not.
    assert replicas.check(parted).status is Status.PASS
    ranks[2] = replace(ranks[2], final=(*last[:5], 9))
    parted = replace(pair, candidate=replace(pair.candidate, records=LegRecords(tuple(ranks))))
    assert_fails(replicas.check(parted), "replicas differ of norm.weight (rank 0 against 2)")


def test_a_routing_bias_that_parts_after_a_step_is_a_replica_too() -> None:
    bias = Part("layers.0.router.bias", (4,), (0,), (4,), "float32", trainable=False)
    records = draw(dp2())

    def parted(by_rank: list[dict[int, tuple[int | None, ...]]], final: tuple[int | None, ...] = (7,)) -> Outcome:
        ranks = [
            replace(rank, buffers=(bias,), buffer_hashes=hashes, final_buffers=final if rank.rank else (7,))
            for rank, hashes in zip(records.ranks, by_rank, strict=True)
        ]
        pair = comparison(dp2(), "dp2")
        return replicas.check(replace(pair, candidate=replace(pair.candidate, records=LegRecords(tuple(ranks)))))

    assert parted([{0: (5,), 1: (6,)}, {0: (5,), 1: (6,)}]).status is Status.PASS
    assert_fails(
        parted([{0: (5,), 1: (6,)}, {0: (5,), 1: (9,)}]),
        "dp2: after step 1 replicas differ of layers.0.router.bias (rank 0 against 1)",
    )
    assert_fails(parted([{}, {}], final=(8,)), "replicas differ of layers.0.router.bias")
    assert parted([{0: (None,)}, {0: (None,)}]).status is Status.PASS


def test_a_replicated_gradient_that_was_never_summed_over_its_ranks_is_found() -> None:
    candidate = dp2()
    candidate.own[(1, "gradients", "norm.weight")] = MODEL["norm.weight"] * 1.2
    assert_fails(
        replicas.check(comparison(candidate, "dp2")), "dp2: at step 0 ranks have other gradients of norm.weight"
    )
