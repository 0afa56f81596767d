"""Results as suites have them, each with another verdict or another reason for it, for looking at reports."""

from dataclasses import replace

import numpy as np

from parity.checks.comparison import Comparison, Leg
from parity.checks.outcome import Verdict
from parity.checks.verdict import merge
from parity.compare import compare as compared
from parity.display.curves import curves
from parity.display.holdings import holdings, sharded
from parity.layout import Layout
from parity.records import LegRecords
from parity.result import ComparisonResult, LegResult, Result
from parity.result.drawn import LogTail
from tests.checks.recorded import EXPERTS, Q0, plain_run, tp3
from tests.drawing import LOSS, NORM, compare, leg, noisy
from tests.records.drawing import MODEL, Drawn, draw

__all__ = ["CASES"]

_ENVIRONMENT = {"torch": "2.13.0", "device": "NVIDIA H200", "dtype": "fp32", "deterministic": True}
_STEPS = np.arange(20)


def _legs(loss: np.ndarray, norm: np.ndarray = NORM, drawn: Drawn | None = None) -> list[Leg]:
    """A baseline, a candidate and a control; with records where the candidate's are given."""
    plain, apart, control = leg("tp1", loss=LOSS, grad_norm=NORM), leg("tp3", loss=loss, grad_norm=norm), leg("tp4",
        loss=noisy(LOSS, 1e-6, 4), grad_norm=noisy(NORM, 1e-6, 5))  # fmt: skip
    if drawn is None:
        return [plain, apart, control]
    return [
        replace(plain, records=_records(plain_run()), layout=Layout()),
        replace(apart, records=_records(drawn), layout=Layout(tp=3)),
        replace(control, records=_records(tp3()), layout=Layout(tp=3)),
    ]


def _records(drawn: Drawn) -> LegRecords:
    """With logged norms that are off by far more than rounding, which differs between processors."""
    records = draw(drawn)
    off = [{step: norm * (1 + 1e-9) for step, norm in rank.grad_norms.items()} for rank in records.ranks]
    ranks = [replace(rank, grad_norms=norms) for rank, norms in zip(records.ranks, off, strict=True)]
    return replace(records, ranks=tuple(ranks))


def _compared(legs: list[Leg]) -> tuple[Comparison, ComparisonResult]:
    comparison = compare(*legs, steps=20)
    return comparison, compared(comparison, "from dtype fp32 on CUDA")


def _result(suite: str, legs: list[Leg]) -> Result:
    _, one = _compared(legs)
    ranks = {"tp1": 1, "tp3": 3, "tp4": 4}
    return Result(
        parity_version="1.2.3",
        created="2026-01-02T03:04:05Z",
        suite=suite,
        run_id="20260102T030405Z-01234567",
        steps=20,
        verdict=one.verdict,
        summary=one.summary,
        reproduce=f"parity run {suite}.yml",
        tested=f"Tested commit {'0123456789' * 4}, the head of pull request 7.",
        notes=[
            "The legs ran in a container of ghcr.io/org/parity-action:1.2.3, without a token, as there is Docker."
        ],
        legs=[
            LegResult(
                name=one.name,
                status="finished",
                layout={"tp": ranks[one.name]},
                ranks=ranks[one.name],
                command=f"torchrun --nproc-per-node {ranks[one.name]} train.py --tp {ranks[one.name]}",
                seconds=12.5 * ranks[one.name],
                device_seconds=12.5 * ranks[one.name] ** 2,
                peak_memory=ranks[one.name] * 123456789,
                samples=4,
                micro_batches=2,
                environment={**_ENVIRONMENT, "world_size": ranks[one.name]},
                source=f"legs/{one.name}/rank-0.jsonl",
                format="recorder",
                holds=holdings(one.records),
                sharded=sharded(one.records),
            )
            for one in legs
        ],
        comparisons=[one],
        curves=curves(legs),
    )


def _passes() -> Result:
    return _result("passes", _legs(noisy(LOSS, 1e-6, 1), noisy(NORM, 1e-6, 2), tp3()))


def _fails_at_first_step() -> Result:
    drawn = tp3()
    wrong = {**MODEL, Q0: MODEL[Q0] * 2.0, EXPERTS: MODEL[EXPERTS] * 1.01}
    drawn.gradients = {0: wrong, 1: wrong}
    return _result("fails-at-first-step", _legs(LOSS * 1.01, NORM * 1.3, drawn))


def _compounds() -> Result:
    return _result("compounds", _legs(LOSS * (1 + 1e-6 * 1.7**_STEPS), NORM * (1 + 2e-6 * 1.5**_STEPS), tp3()))


def _inconclusive() -> Result:
    drawn = tp3()
    drawn.weights = {**MODEL, EXPERTS: MODEL[EXPERTS] * 1.001}
    return _result("inconclusive", _legs(noisy(LOSS, 1e-6, 1), noisy(NORM, 1e-6, 2), drawn))


def _error() -> Result:
    whole = _passes()
    error = "rank 2 ended with exit code 1: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    lines = [
        "Traceback (most recent call last):",
        '  File "train.py", line 40, in <module>',
        "    loss.backward()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ]
    legs = {one.name: one for one in whole.legs}
    failed = legs["tp3"].model_copy(
        update={
            "status": "failed", "exit_code": 1, "failing_rank": 2, "error": error, "environment": {}, "source": None,
            "format": None, "samples": None, "micro_batches": None, "holds": [], "sharded": [],
            "tails": [LogTail(path="legs/tp3/rank-2.log", lines=lines)],
        }
    )  # fmt: skip
    (comparison,) = whole.comparisons
    told: dict[str, object] = {
        "verdict": "error",
        "summary": f"tp3 failed: {error}",
        "outcomes": [],
        "metrics": [],
        "hints": [],
    }
    told |= {"sensitivity": None, "warnings": [], "deciding": [], "beside": None, "gradients": None}
    return whole.model_copy(
        update={
            "suite": "error",
            "reproduce": "parity run error.yml",
            "verdict": "error",
            "summary": told["summary"],
            "legs": [legs["tp1"], failed, legs["tp4"]],
            "comparisons": [comparison.model_copy(update=told)],
        }
    )


def _many() -> Result:
    good, bad = _passes(), _fails_at_first_step()
    (passed,), (failed,) = good.comparisons, bad.comparisons
    ones = [passed.model_copy(update={"candidate": f"layout-{number:02}"}) for number in range(29)]
    ones.insert(17, failed)
    legs = [good.legs[0], *(good.legs[1].model_copy(update={"name": one.candidate}) for one in ones), good.legs[2]]
    return good.model_copy(
        update={
            "suite": "thirty-comparisons",
            "reproduce": "parity run thirty-comparisons.yml",
            "verdict": merge(Verdict(one.verdict) for one in ones).value,
            "summary": failed.summary,
            "comparisons": ones,
            "legs": legs,
        }
    )


def _without_gradients() -> Result:
    return _result("without-gradients", _legs(LOSS * (1 + np.where(_STEPS == 13, 1e-4, 0.0))))


CASES = {
    "pass": _passes,
    "fails-at-first-step": _fails_at_first_step,
    "compounds": _compounds,
    "inconclusive": _inconclusive,
    "error": _error,
    "thirty-comparisons": _many,
    "without-gradients": _without_gradients,
}
"""By name, what makes the result."""
