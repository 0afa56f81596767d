"""Data parallelism: every rank has the whole model, some of each micro-batch's samples, and the sum of all gradients.

A sum and not a mean: each rank has divided its loss by the number of tokens of the whole global batch already.
"""

from parity.train.shards import Shard

__all__ = ["apply"]


def apply(shards: dict[str, Shard]) -> dict[str, Shard]:
    """The shards with their gradients marked as still to be summed over the replicas.

    Experts that are split over ranks have seen the tokens of all of these, and are marked already.
    """
    return {name: shard if "ep" in shard.split else shard.summed("dp") for name, shard in shards.items()}
