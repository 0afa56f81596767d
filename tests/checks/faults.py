"""A drawn fault of each mutation class."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.records.record import Batch, LegRecords
from tests.checks.pairs import (
    ATTENTION,
    EXPERTS,
    LAYER_0,
    MODEL,
    NORMS,
    ROUTER,
    Pair,
    first_loss,
    gradients,
    in_pieces,
    scaled,
    shaken,
)
from tests.drawing import LOSS


def m1_row_bias(of: Pair) -> None:
    first_loss(of, 1.001)
    gradients(of, shaken(0.45))


def m2_log_tp(of: Pair) -> None:
    of.curves["loss"] = LOSS + np.log(2)


def m3_heads(of: Pair) -> None:
    first_loss(of, 1.002)
    gradients(of, {**shaken(0.1), **{n: v for n, v in shaken(1.2, ATTENTION).items() if n in ATTENTION}})


def m4_norms(of: Pair) -> None:
    in_pieces(of, NORMS)


def m4_router(of: Pair) -> None:
    in_pieces(of, [ROUTER])


def m4_same_part_everywhere(of: Pair) -> None:
    gradients(of, {**MODEL, **{n: v for n, v in shaken(0.5).items() if n in NORMS}})


def m5_summed(of: Pair) -> None:
    gradients(of, scaled(list(MODEL), 2.0))


def m5_never_averaged(of: Pair) -> None:
    in_pieces(of, list(MODEL), mean=True)


def m5_last_not_synced(of: Pair) -> None:
    for name, value in MODEL.items():
        for rank in range(2):
            noise = np.random.default_rng(rank).normal(size=value.shape)
            of.candidate.own[(rank, "gradients", name)] = value + 0.5 * noise


def m6_times_ep(of: Pair) -> None:
    gradients(of, scaled(EXPERTS, 2.0))


def m6_over_ep(of: Pair) -> None:
    gradients(of, scaled(EXPERTS, 0.5))


def m7_last_micro_batch(of: Pair) -> None:
    first = {"embed.weight", *LAYER_0}
    half = {n: v / 2 + (shaken(0.5)[n] - v) for n, v in MODEL.items()}
    gradients(of, {n: half[n] if n in first else v for n, v in MODEL.items()})


def m8_at_every_stage(of: Pair) -> None:
    gradients(of, scaled(["embed.weight", *LAYER_0], 0.5))


def m8_tokens(of: Pair) -> None:
    gradients(of, scaled(list(MODEL), 113.0))


def m9_mean_of_means(of: Pair) -> None:
    first_loss(of, 1.002)
    gradients(of, shaken(0.1))


def total(names: list[str] | None = None) -> float:
    return float(np.sqrt(sum((MODEL[n] ** 2).sum() for n in names or list(MODEL))))


def logged(of: Pair, norm: float) -> None:
    of.candidate.grad_norms = {rank: {0: norm, 1: norm} for rank in range(len(of.candidate.coordinates))}


def m10_local_shard(of: Pair) -> None:
    own = [MODEL[n][: box[0][1][0]] for n, box in of.candidate.boxes.items()]
    logged(of, float(np.sqrt(sum((value**2).sum() for value in own))))


def m10_counted_twice(of: Pair) -> None:
    whole = [n for n in MODEL if n not in of.candidate.boxes]
    logged(of, float(np.sqrt(total() ** 2 + total(whole) ** 2)))


def m10_own_experts(of: Pair) -> None:
    missing = sum((MODEL[n][2:] ** 2).sum() for n in EXPERTS)
    logged(of, float(np.sqrt(total() ** 2 - missing)))


def m10_over_micro_batches(of: Pair) -> None:
    logged(of, 2 * total())


def m11_tied(of: Pair) -> None:
    of.candidate.owners["embed.weight"] = {0, 1}
    in_pieces(of, ["embed.weight"])


def m12_router_over_dp(of: Pair) -> None:
    gradients(of, scaled([ROUTER], 0.5))


def m12_auxiliary(of: Pair) -> None:
    gradients(of, {**shaken(1e-2, [n for n in LAYER_0 if n not in EXPERTS]), ROUTER: shaken(0.5)[ROUTER]})


def m13_positions(of: Pair) -> None:
    first_loss(of, 1.002)
    gradients(of, shaken(0.6))


def m14_copies(of: Pair) -> None:
    for name, value in MODEL.items():
        of.candidate.own[(1, "weights", name)] = value + 1


def m14_shards(of: Pair) -> None:
    of.candidate.weights = {n: v + 1 if n in of.candidate.boxes else v for n, v in MODEL.items()}


def m15_ahead(of: Pair) -> None:
    mine = [{s: Batch(1000 * (rank + 1) + s * s, 2, 2) for s in range(21)} for rank in range(2)]
    whole = {s: Batch(mine[0][s].hash + mine[1][s].hash, 4, 2) for s in range(20)}
    of.known = False
    of.baseline.batches = {0: whole}
    of.candidate.batches = {
        0: {s: mine[0][s] for s in range(20)},
        1: {s: mine[1][s + 1] for s in range(20)},
    }


def m15_same(of: Pair) -> None:
    m15_ahead(of)
    of.candidate.batches[1] = of.candidate.batches[0]


def m15_other(of: Pair) -> None:
    m15_ahead(of)
    of.candidate.batches[1] = {step: Batch(31 * step + 5, 2, 2) for step in range(20)}


def m15_unknown(of: Pair) -> None:
    of.known = False
    first_loss(of, 1.003)
    gradients(of, shaken(2.0))


def m16_adam(of: Pair) -> None:
    of.candidate.updates = {step: scaled(list(MODEL), np.sqrt(1.999) / 1.9) for step in (0, 1)}


def m16_skipped(of: Pair) -> None:
    of.candidate.updates = {step: scaled(NORMS, 0.0) for step in (0, 1)}


def m16_decay(of: Pair) -> None:
    matrices = [n for n in MODEL if MODEL[n].ndim > 1]
    noise = shaken(0.05, seed=50)
    twice = {n: noise[n] if n in matrices else v for n, v in MODEL.items()}
    of.candidate.updates = {0: twice, 1: twice}
    of.curves["loss"] = np.concatenate([LOSS[:1], LOSS[1:] * 1.01])

    def grouped(records: LegRecords) -> LegRecords:
        def groups(of_rank: Any) -> Any:
            one = of_rank.optimizer[0]
            free = tuple(n for n in one.parameters if n not in matrices)
            held = tuple(n for n in one.parameters if n in matrices)
            return (
                replace(one, parameters=held),
                replace(one, parameters=free, settings={**one.settings, "weight_decay": 0.0}),
            )

        return LegRecords(tuple(replace(rank, optimizer=groups(rank)) for rank in records.ranks))

    of.grouped = grouped


def m16_state(of: Pair) -> None:
    of.candidate.gradients = {0: MODEL, 1: shaken(0.3, [ROUTER, *EXPERTS])}
    of.curves["loss"] = np.concatenate([LOSS[:1], LOSS[1:] * 1.01])


def m18_placeholder(of: Pair) -> None:
    of.curves["loss"] = np.full(20, -1.0)


def m18_summed(of: Pair) -> None:
    first_loss(of, 2.0)


def m18_own(of: Pair) -> None:
    of.curves["loss"] = LOSS * 1.1

    def losses(records: LegRecords) -> LegRecords:
        mine = [{s: float(v) * factor for s, v in enumerate(LOSS)} for factor in (1.1, 0.9)]
        return LegRecords(tuple(replace(rank, losses=mine[rank.rank]) for rank in records.ranks))

    of.changed = losses


def m18_own_alone(of: Pair) -> None:
    of.curves["loss"] = LOSS * 1.1


def m19_frozen(of: Pair) -> None:
    for leg in (of.baseline, of.candidate):
        leg.updates = {0: scaled(list(MODEL), 0.0)}
    first_loss(of, 1.1)


def frozen_in_one(of: Pair) -> None:
    gradients(of, scaled(EXPERTS, 0.0))


def only_in_candidate(of: Pair) -> None:
    of.baseline.gradients = {0: scaled([ROUTER], 0.0), 1: MODEL}


def later_layers_agree(of: Pair) -> None:
    gradients(of, shaken(0.3, ["embed.weight", *LAYER_0]))


def c2_bf16(of: Pair) -> None:
    def bf16(value: NDArray[np.float64]) -> NDArray[np.float64]:
        mantissa, exponent = np.frexp(value)
        return np.asarray(np.ldexp(np.round(mantissa * 256) / 256, exponent))

    gradients(of, {name: bf16(value) for name, value in MODEL.items()})


def c4_computes_in_bf16(of: Pair) -> None:
    first_loss(of, 1 + 2.5e-5)
    gradients(of, shaken(0.012))


def c3_nan(of: Pair) -> None:
    of.curves = {name: np.where(np.arange(20) < 3, values, np.nan) for name, values in of.curves.items()}
