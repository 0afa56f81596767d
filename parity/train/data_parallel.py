"""Data parallelism: every rank has the whole model, some of each micro-batch's samples, and the sum of all gradients.

A sum and not a mean: each rank has divided its loss by the number of tokens of the whole global batch already.
"""

from parity.train.shards import Shard

__all__ = ["apply"]


def apply(shards: dict[str, Shard]) -> dict[str, Shard]:
    """The shards with their gradients marked as still to be summed over the replicas.

    Experts that are split over ranks have seen the tokens of all of these, so that theirs are summed over the
    ranks that hold the same experts instead.
    """
    return {name: shard.summed("expert_dp" if "ep" in shard.split else "dp") for name, shard in shards.items()}
