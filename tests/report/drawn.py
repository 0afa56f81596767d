"""Results with everything in them that a report draws, for tests."""

import numpy as np

from parity.compare import compare as compared
from parity.display.curves import curves
from parity.result import LegResult, Result
from parity.result.drawn import (
    ExpertsResult,
    GradientMap,
    LogTail,
    PartResult,
    RankResult,
    ShardedResult,
)
from tests.drawing import compare, curve, leg, noisy
from tests.report.filling import with_parameters

__all__ = ["GRADIENTS", "drawn", "holding", "long"]

GRADIENTS = GradientMap(
    count=5,
    sketched=2,
    steps=[0, 1],
    names=["embed.weight", "layers.0.norm.weight", "layers.0.mlp.up.weight", "layers.1.mlp.up.weight", "head.weight"],
    groups=["embeddings", "norms", "mlp", "mlp", "embeddings"],
    layers=[None, 0, 0, 1, None],
    distance=[[0.0, 1e-6], [2e-6, 0.25], [float("nan"), 3e-3], [None, 1e-4], [5e-6, float("inf")]],
    times_floor=[[0.0, 1.5], [2.0, 12345.0], [float("nan"), 3.0], [None, 4.0], [1.0, float("inf")]],
)


def holding(name: str, cut: int) -> LegResult:
    """A leg of two ranks that share four heads of 16 rows, cut at a row, and eight experts."""
    ranks = [
        RankResult(
            rank=rank,
            coordinates={"tp": rank},
            elements=1234567,
            layers=[2 * rank, 2 * rank + 1],
            experts=[ExpertsResult(modules=2, first="layers.0.experts", experts=[4 * rank, 4 * rank + 3])],
        )
        for rank in range(2)
    ]
    parts = [PartResult(rank=0, start=0, stop=cut), PartResult(rank=1, start=cut, stop=64)]
    sharded = ShardedResult(
        name="layers.0.q.weight", group="attention", axis="tp", dimension=0, size=64, head_size=16, parts=parts
    )
    return LegResult(name=name, status="finished", layout={"tp": 2}, ranks=2, holds=ranks, sharded=[sharded])


def drawn(candidate: float = 1.0, steps: int = 40) -> Result:
    """Three legs and one that failed; the candidate's loss is `candidate` times the baseline's from step 5 on."""
    at = np.arange(steps)
    loss, norm = 6.0 * np.exp(-at / steps), 2.0 + 0.2 * np.cos(at)
    theirs = noisy(loss, 1e-7, 1)
    theirs[5:] *= candidate
    legs = [
        leg("tp1", loss=loss, grad_norm=norm),
        leg("tp2", loss=theirs, grad_norm=noisy(norm, 1e-7, 2)),
        leg("tp4", loss=noisy(loss, 1e-7, 4), grad_norm=noisy(norm, 1e-7, 5)),
    ]
    one = compared(compare(*legs, steps=steps)).model_copy(update={"gradients": GRADIENTS})
    failed = LegResult(
        name="pp2", status="failed", exit_code=1, failing_rank=1, error="rank 1 ended with exit code 1",
        command="torchrun train.py",
        tails=[LogTail(path="legs/pp2/rank-1.log", lines=["Traceback:", "    raise ValueError('<b>bad</b>')"])],
    )  # fmt: skip
    result = Result(
        suite="drawn",
        verdict=one.verdict,
        summary=one.summary,
        reproduce="parity run drawn.yml",
        notes=["a note"],
        legs=[LegResult(name="tp1", status="finished"), holding("tp2", 30), holding("tp4", 32), failed],
        comparisons=[one],
        curves=curves(legs),
    )
    filled = with_parameters(result)
    return filled.model_copy(update={"legs": [*result.legs[:1], *filled.legs[1:]]})


def long(legs: int = 5, steps: int = 10_000) -> Result:
    """A suite of many steps, of which a spike of one step is the worst."""
    at = np.arange(steps)
    loss, norm = 6.0 * np.exp(-2 * at / steps), 2.0 + 0.2 * np.cos(at / 50)
    many = []
    for number in range(legs):
        theirs = noisy(loss, 1e-7, number)
        if number == 1:
            theirs[steps // 3] *= 1.05
        lr = curve("lr", 1e-3 / (1 + at))
        many.append(leg(f"leg{number}", lr, loss=theirs, grad_norm=noisy(norm, 1e-6, 50 + number)))
    ones = [compared(compare(many[0], one, many[2], steps=steps)) for one in many[1:] if one is not many[2]]
    worst = max(ones, key=lambda one: one.verdict == "fail")
    return Result(
        suite="long",
        verdict=worst.verdict,
        summary=worst.summary,
        reproduce="parity run long.yml",
        legs=[LegResult(name=one.name, status="finished") for one in many],
        comparisons=ones,
        curves=curves(many),
    )
