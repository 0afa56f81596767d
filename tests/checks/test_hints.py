"""What a difference looks like: a drawn fault of each mutation class, and differences that look like nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from parity.checks import run_checks
from parity.checks.comparison import Comparison, Leg
from parity.checks.groups import group_of
from parity.checks.hints import MOST_HINTS, hints, reporting_bug
from parity.checks.hints.sizes import Size, match
from parity.layout import Layout
from parity.records.record import Batch, LegRecords, RankRecord
from tests.drawing import LOSS, NORM, compare, curve, noisy
from tests.drawing import leg as drawn_leg
from tests.records.drawing import ADAMW, Drawn, draw, split

Tensors = dict[str, NDArray[np.float64]]

SHAPES = {
    "embed.weight": (31, 8),
    "layers.0.attention.q.weight": (16, 8),
    "layers.0.attention.q.bias": (16,),
    "layers.0.attention_norm.weight": (8,),
    "layers.0.moe.experts.up": (4, 6, 8),
    "layers.0.moe.experts.down": (4, 8, 6),
    "layers.0.moe.gate.weight": (4, 8),
    "layers.1.attention.q.weight": (16, 8),
    "layers.1.attention.q.bias": (16,),
    "layers.1.attention_norm.weight": (8,),
    "layers.1.mlp.up.weight": (12, 8),
    "norm.weight": (8,),
}
MODEL: Tensors = {
    name: np.random.default_rng(at).normal(size=shape) for at, (name, shape) in enumerate(SHAPES.items())
}
EXPERTS = [name for name in MODEL if "experts" in name]
ROUTER = "layers.0.moe.gate.weight"
NORMS = [name for name in MODEL if "norm" in name]
ATTENTION = [name for name in MODEL if "attention.q" in name]
LAYER_0 = [name for name in MODEL if name.startswith("layers.0")]

LAYOUTS = {
    "dp2": Layout(dp=2),
    "fsdp4": Layout(fsdp=4),
    "tp2": Layout(tp=2),
    "pp2": Layout(pp=2),
    "ep2": Layout(dp=2, ep=2),
    "cp2": Layout(cp=2),
}


def part(value: NDArray[np.float64], parts: int) -> list[Any]:
    sizes = [value.shape[0] // parts + (rank < value.shape[0] % parts) for rank in range(parts)]
    return split(value, 0, sizes)


def laid_out(name: str) -> Drawn:
    """A leg of correct records under one of the layouts."""
    if name == "dp2":
        return Drawn(coordinates=[{"dp": rank} for rank in range(2)])
    if name == "fsdp4":
        return Drawn(
            coordinates=[{"fsdp": rank} for rank in range(4)],
            boxes={n: part(value, 4) for n, value in MODEL.items()},
            split={n: {0: "fsdp"} for n in MODEL},
        )
    if name == "tp2":
        cut = [*ATTENTION, "layers.1.mlp.up.weight", "embed.weight"]
        return Drawn(coordinates=[{"tp": 0}, {"tp": 1}], boxes={n: part(MODEL[n], 2) for n in cut})
    if name == "pp2":
        first = {"embed.weight", *LAYER_0}
        owners = {n: {0} if n in first else {1} for n in MODEL}
        return Drawn(coordinates=[{"pp": 0}, {"pp": 1}], owners=owners, layers=[(0,), (1,)])
    if name == "ep2":
        return Drawn(
            coordinates=[{"dp": rank, "ep": rank} for rank in range(2)],
            boxes={n: part(MODEL[n], 2) for n in EXPERTS},
            experts=[{"layers.0.moe.experts": (0, 1)}, {"layers.0.moe.experts": (2, 3)}],
        )
    return Drawn(coordinates=[{"cp": 0}, {"cp": 1}])


@dataclass
class Pair:
    """A baseline and a candidate to be broken: their records and curves."""

    name: str
    baseline: Drawn
    candidate: Drawn
    curves: dict[str, NDArray[np.float64]] = field(default_factory=lambda: {"loss": LOSS, "grad_norm": NORM})
    changed: Callable[[LegRecords], LegRecords] = field(default=lambda records: records)
    grouped: Callable[[LegRecords], LegRecords] = field(default=lambda records: records)
    known: bool = True

    def compared(self, **more: Any) -> Comparison:
        ranks = len(self.candidate.coordinates)
        dealt = LAYOUTS[self.name].dp * LAYOUTS[self.name].fsdp
        if self.known and not self.candidate.batches:
            whole = {step: Batch(1000 + step, 4, 2) for step in range(20)}
            self.baseline.batches = {0: whole}
            # The hashes of what ranks were dealt add up to the whole's.
            mine = (
                [
                    {
                        s: Batch(b.hash - 7 if not r else 7 // (dealt - 1) if dealt == 2 else r, 4 // dealt, 2)
                        for s, b in whole.items()
                    }
                    for r in range(dealt)
                ]
                if dealt > 1
                else [whole]
            )
            if dealt == 4:
                mine[0] = {s: Batch(b.hash - 6, 1, 2) for s, b in whole.items()}
            self.candidate.batches = {rank: mine[rank % dealt] for rank in range(ranks)}
        base = Leg(
            "base", drawn_leg("base", loss=LOSS, grad_norm=NORM).curves, Layout(), self.grouped(draw(self.baseline))
        )
        curves = drawn_leg(self.name, **self.curves).curves
        other = Leg(self.name, curves, LAYOUTS[self.name], self.changed(self.grouped(draw(self.candidate))))
        return compare(base, other, steps=20, **more)

    def said(self) -> tuple[str, ...]:
        comparison = self.compared()
        return hints(comparison, run_checks(comparison))


def pair(name: str) -> Pair:
    def leg(drawn: Drawn) -> Drawn:
        drawn.weights = MODEL
        drawn.gradients = {0: MODEL, 1: MODEL}
        drawn.updates = {0: MODEL, 1: MODEL}
        drawn.optimizer = {**ADAMW, "betas": "[0.9, 0.999]"}
        return drawn

    return Pair(name, leg(Drawn()), leg(laid_out(name)))


def scaled(names: Mapping[str, float] | list[str], factor: float = 1.0) -> Tensors:
    factors = names if isinstance(names, Mapping) else dict.fromkeys(names, factor)
    return {name: value * factors.get(name, 1.0) for name, value in MODEL.items()}


def shaken(size: float, names: list[str] | None = None, seed: int = 1) -> Tensors:
    """The model with noise of a relative size, in some parameters or in all."""
    made = {}
    for at, (name, value) in enumerate(MODEL.items()):
        noise = np.random.default_rng(seed + at).normal(size=value.shape)
        scale = size * np.linalg.norm(value) / np.linalg.norm(noise)
        made[name] = value + scale * noise if names is None or name in names else value
    return made


def gradients(of: Pair, whole: Tensors) -> None:
    of.candidate.gradients = {0: whole, 1: MODEL}


def in_pieces(of: Pair, names: list[str], mean: bool = False) -> None:
    """Each rank is left with its own addend of these gradients."""
    ranks = len(of.candidate.coordinates)
    for at, name in enumerate(names):
        noise = np.random.default_rng(100 + at).normal(size=(ranks, *MODEL[name].shape))
        addends = (MODEL[name] if mean else MODEL[name] / ranks) + noise - noise.mean(0)
        for rank in range(ranks):
            of.candidate.own[(rank, "gradients", name)] = addends[rank]


def first_loss(of: Pair, factor: float) -> None:
    of.curves["loss"] = LOSS * factor


# One drawn fault each.


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


def c3_nan(of: Pair) -> None:
    of.curves = {name: np.where(np.arange(20) < 3, values, np.nan) for name, values in of.curves.items()}


@pytest.mark.parametrize(
    ("layout", "fault", "said"),
    [
        ("tp2", m1_row_bias, ["first loss is 0.001 off", "row-parallel bias"]),
        ("tp2", m2_log_tp, ["0.6931 above", "at all 20 steps", "log(tp), with tp = 2"]),
        ("tp2", m3_heads, ["Attention's gradients are furthest out", "heads that are cut"]),
        ("tp2", m4_norms, ["norms' gradients", "the tensor parallel ranks", "add up to", "all-reduce over tp"]),
        ("ep2", m4_router, ["router's gradients", "add up to", "all-reduce over ep"]),
        ("tp2", m4_same_part_everywhere, ["only parameters that ranks hold whole", "norms", "over tp"]),
        ("dp2", m5_summed, ["All gradients are 2.000 times", "12 of 12", "dp = 2", "summed over the data parallel"]),
        ("fsdp4", m5_summed, ["All gradients are 2.000 times", "micro-batches = 2"]),
        ("dp2", m5_never_averaged, ["average to the baseline's", "never reduced over dp"]),
        ("dp2", m5_last_not_synced, ["not the same on the data parallel ranks", "left out of the all-reduce"]),
        (
            "ep2",
            m6_times_ep,
            ["experts' gradients are 2.000 times", "2 of 2 parameters", "ep = 2", "should be averaged"],
        ),
        ("ep2", m6_over_ep, ["experts' gradients are 0.5000 times", "1/ep, with ep = 2"]),
        (
            "pp2",
            m7_last_micro_batch,
            ["first loss agrees", "of stage 0", "about 1/micro-batches", "part of the batch"],
        ),
        (
            "pp2",
            m8_at_every_stage,
            ["0.5000 on stage 0, 1.000 on stage 1", "1/micro-batches", "every pipeline stage"],
        ),
        ("pp2", m8_tokens, ["113.0 times", ": 113;", "division by a count"]),
        ("cp2", m9_mean_of_means, ["only 0.002 off", "point almost where", "weighted otherwise"]),
        ("fsdp4", m10_local_shard, ["rank 0's own gradients", "local shard"]),
        ("tp2", m10_counted_twice, ["several ranks hold counted on each", "not left out of the sum"]),
        ("ep2", m10_own_experts, ["without the experts that other ranks hold"]),
        ("dp2", m10_over_micro_batches, ["2.000 times that of its gradients", "micro-batches = 2"]),
        ("pp2", m11_tied, ["embeddings' gradients", "add up to", "tied embedding between the first and the last"]),
        ("dp2", m12_router_over_dp, ["router's gradients are 0.5000 times", "1/dp, with dp = 2", "auxiliary loss"]),
        ("ep2", m12_auxiliary, ["router's gradients are furthest out", "auxiliary loss"]),
        ("cp2", m13_positions, ["first loss is 0.002 off", "positions or labels"]),
        ("dp2", m14_copies, ["data parallel ranks start from other copies of 12 of 12", "seed of its own"]),
        ("tp2", m14_shards, ["only parameters that ranks split", "the tensor parallel ranks fill their shards"]),
        ("dp2", m15_ahead, ["1 of 2 data parallel ranks", "a step ahead"]),
        ("dp2", m15_same, ["all 2 data parallel ranks train on the same samples at 20 steps", "its rank"]),
        ("dp2", m15_other, ["samples are others at all 20 steps", "a seed of its own on each rank"]),
        ("dp2", m15_unknown, ["another start or other data", "0.003 off"]),
        ("tp2", m16_adam, ["0.7441 times", "1 step already made", "step count is advanced"]),
        ("tp2", m16_skipped, ["norms' weights are not updated in tp2", "3 of 3", "parameter group"]),
        ("tp2", m16_decay, ["same vector at steps 0 and 1", "weight decay applied twice"]),
        (
            "ep2",
            m16_state,
            ["loss, gradients and updates agree", "at step 1", "experts", "state that is no parameter"],
        ),
        ("pp2", m18_placeholder, ["logs is -1 at all 20 steps", "placeholder"]),
        ("dp2", m18_summed, ["2.000 times", "dp = 2", "equal gradient norm", "reporting error"]),
        ("dp2", m18_own, ["6.6, 5.4", "mean is the baseline's", "rank 0's is logged for the whole"]),
        ("tp2", m19_frozen, ["no weight of base or of tp2 moves"]),
        ("ep2", frozen_in_one, ["experts' gradients are zero in ep2 and not in base", "frozen"]),
        ("ep2", only_in_candidate, ["router's gradients are zero in base and not in ep2"]),
        ("pp2", later_layers_agree, ["gradients differ up to layer 0", "between layers 0 and 1"]),
        ("dp2", c2_bf16, ["all gradients are 0.00", "everywhere alike", "rounded to bf16"]),
        ("tp2", c3_nan, ["values of tp2 are NaN or infinite from step 3 on", "those of base never are"]),
    ],
)
def test_a_fault_is_called_by_what_it_looks_like(layout: str, fault: Callable[[Pair], None], said: list[str]) -> None:
    drawn = pair(layout)
    fault(drawn)
    told = drawn.said()
    assert told
    assert len(told) <= MOST_HINTS
    assert all("looks like" in one for one in told)
    first = told[0]
    for words in said:
        assert words.lower() in first.lower(), told


# Differences that look like nothing in particular.

SIZED = ("dp =", "tp =", "ep =", "pp =", "cp =", "fsdp =", "micro-batches =", "world size")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pair_that_agrees_but_for_rounding_has_no_hints(layout: str) -> None:
    drawn = pair(layout)
    drawn.candidate.gradients = {0: shaken(1e-6, seed=1), 1: shaken(1e-6, seed=2)}
    drawn.candidate.updates = {0: shaken(1e-6, seed=3), 1: shaken(1e-6, seed=4)}
    drawn.curves = {"loss": noisy(LOSS, 1e-7), "grad_norm": noisy(NORM, 1e-6)}
    assert drawn.said() == ()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [1e-2, 0.3])
def test_a_random_difference_is_no_ratio_of_the_layout(layout: str, size: float) -> None:
    drawn = pair(layout)
    gradients(drawn, shaken(size))
    drawn.curves["loss"] = noisy(LOSS, size)
    drawn.curves["grad_norm"] = noisy(NORM, size)
    comparison = drawn.compared()
    outcomes = run_checks(comparison)
    assert not [one for one in hints(comparison, outcomes) if any(word in one for word in SIZED)]
    assert reporting_bug(comparison, outcomes) == ""


@pytest.mark.parametrize("factor", [2.02, 1.41, 0.51])
def test_a_ratio_that_is_only_near_a_size_is_not_called_one(factor: float) -> None:
    drawn = pair("ep2")
    gradients(drawn, scaled(EXPERTS, factor))
    told = drawn.said()
    assert "ratio" in told[0] or "times the baseline's" in told[0]
    assert not any(word in told[0] for word in SIZED)


def test_ratios_that_differ_from_parameter_to_parameter_are_no_ratio_of_the_layout() -> None:
    drawn = pair("dp2")
    generator = np.random.default_rng(5)
    gradients(drawn, scaled({name: float(generator.uniform(1.8, 2.2)) for name in MODEL}))
    assert not [one for one in drawn.said() if any(word in one for word in SIZED)]


@pytest.mark.parametrize(
    ("ratio", "formula"),
    [(3.0, "tp"), (1 / 3, "1/tp"), (3**0.5, "√tp"), (3**-0.5, "1/√tp"), (9.0, "tp²"), (1.5, None), (1.0, None)],
)
def test_sizes_are_found_by_their_powers(ratio: float, formula: str | None) -> None:
    found = match(ratio, [Size("tp", 3), Size("dp", 5)], 1e-3)
    assert (found.formula if found else None) == formula


@pytest.mark.parametrize("ratio", [float("nan"), float("inf"), 0.0, -2.0])
def test_what_is_no_ratio_matches_no_size(ratio: float) -> None:
    assert match(ratio, [Size("tp", 2)], 1e-3) is None


def test_a_size_that_the_baseline_shares_is_the_last_to_be_named() -> None:
    found = match(2.0, [Size("dp", 2, shared=True), Size("tp", 2)], 1e-3, ("dp", "tp"))
    assert str(found) == "tp = 2, like dp"


def test_curves_that_part_after_equal_steps_may_be_rounding_s_doing() -> None:
    drawn = pair("tp2")
    drawn.curves["loss"] = LOSS * (1 + 1e-3 * (np.arange(20) > 10))
    told = drawn.said()
    assert len(told) == 1
    assert "the curves part later; looks like rounding that training amplifies, or state" in told[0]


# Records that say less.


def without_places(rank: RankRecord) -> RankRecord:
    return replace(rank, coordinates={}, layers=None, experts=None)


def without_steps(rank: RankRecord) -> RankRecord:
    return replace(rank, gradients={}, updates={}, grad_norms={}) if rank.rank else rank


def without_optimizer(rank: RankRecord) -> RankRecord:
    return replace(rank, optimizer=(), batches={}, losses={})


def overflown(rank: RankRecord) -> RankRecord:
    taken = rank.gradients[0]
    return replace(rank, gradients={0: replace(taken, norms=taken.norms * np.inf), 1: rank.gradients[1]})


def without_gradients(rank: RankRecord) -> RankRecord:
    taken = {
        s: replace(t, norms=np.where(np.arange(t.norms.size) % 2, t.norms, np.nan)) for s, t in rank.gradients.items()
    }
    return replace(rank, gradients=taken)


def empty_elsewhere(rank: RankRecord) -> RankRecord:
    if not rank.rank or "pp" in rank.coordinates:
        return rank
    empty = replace(rank.parameters[0], start=(0, 0), stop=(0, 0))
    return replace(rank, parameters=(empty, *rank.parameters[1:]))


def without_model(rank: RankRecord) -> RankRecord:
    return replace(rank, parameters=(), has_model=False, gradients={}, updates={})


@pytest.mark.parametrize("layout", ["tp2", "pp2", "ep2"])
@pytest.mark.parametrize(
    "less",
    [without_places, without_steps, without_optimizer, overflown, without_gradients, empty_elsewhere, without_model],
)
def test_records_that_lack_something_break_no_hint(layout: str, less: Callable[[RankRecord], RankRecord]) -> None:
    for fault in (m4_norms, m10_over_micro_batches, m14_copies, m18_own_alone):
        drawn = pair(layout)
        fault(drawn)
        changed = drawn.changed
        drawn.changed = lambda r, changed=changed: LegRecords(tuple(less(rank) for rank in changed(r).ranks))  # type: ignore[misc]
        for shape in (LAYOUTS[layout], None):
            comparison = drawn.compared()
            comparison = replace(comparison, candidate=replace(comparison.candidate, layout=shape))
            outcomes = run_checks(comparison)
            told = hints(comparison, outcomes)
            assert len(told) <= MOST_HINTS
            assert all("looks like" in one and "\n" not in one for one in told)
            assert isinstance(reporting_bug(comparison, outcomes), str)


# Curves alone.


def curves_only(name: str = "tp2", **values: NDArray[np.float64]) -> tuple[str, ...]:
    candidate = replace(drawn_leg(name, **{"loss": LOSS, "grad_norm": NORM, **values}), layout=LAYOUTS[name])
    comparison = compare(replace(drawn_leg("base", loss=LOSS, grad_norm=NORM), layout=Layout()), candidate, steps=20)
    return hints(comparison, run_checks(comparison))


def test_without_records_the_curves_still_tell() -> None:
    assert "log(tp)" in curves_only(loss=LOSS + np.log(2))[0]
    assert "reporting error" in curves_only(loss=LOSS * 2)[0]
    assert "summed where it should be averaged" in curves_only(loss=LOSS * 2, grad_norm=NORM * 2)[0]
    assert "√tp, with tp = 2" in curves_only(grad_norm=NORM * 2**0.5)[0]
    assert "a term that only" in curves_only(loss=LOSS + 0.02)[0]


def test_losses_equal_to_the_last_bit_look_like_a_layout_that_is_not_applied() -> None:
    told = curves_only()
    assert len(told) == 1
    assert "equal to the last bit at all 20 steps" in told[0]
    assert "the layout is not applied" in told[0]
    assert curves_only("pp2") == ()


def test_legs_without_layouts_or_with_one_step_have_no_wrong_hints() -> None:
    base, other = drawn_leg("base", loss=[6.0]), drawn_leg("other", loss=[6.5])
    comparison = compare(base, other)
    assert all("looks like" in one for one in hints(comparison, run_checks(comparison)))
    apart = compare(drawn_leg("base", loss=LOSS), drawn_leg("other", curve("loss", LOSS, steps=np.arange(20) + 40)))
    assert hints(apart, run_checks(apart)) == ()


def test_nan_in_both_legs_is_the_training_s() -> None:
    values = np.where(np.arange(20) < 5, LOSS, np.nan)
    comparison = compare(drawn_leg("base", loss=values), drawn_leg("other", loss=values), steps=20)
    assert "both legs are nan or infinite from step 5 on" in hints(comparison, run_checks(comparison))[0].lower()


# Groups.


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("layers.0.mlp.gate.bias", "mlp"),
        ("layers.0.moe.shared.gate.weight", "shared experts"),
        ("layers.0.moe.shared.up.weight", "shared experts"),
        ("layers.0.moe.gate.bias", "router"),
    ],
)
def test_a_bias_beside_an_up_and_shared_experts_are_of_the_group_of_their_weights(name: str, group: str) -> None:
    names = ["layers.0.mlp.up.weight", "layers.0.moe.shared.up.weight", name]
    assert group_of(name, names) == group


# Replicas.


def test_ranks_that_clip_by_their_own_norms_part() -> None:
    drawn = pair("dp2")
    for name, value in MODEL.items():
        drawn.candidate.own[(1, "weights after", name)] = value * 1.001
    drawn.candidate.grad_norms = {0: {0: total(), 1: total()}, 1: {0: total() / 10, 1: total() / 10}}
    told = drawn.said()
    assert any("no longer equal after step 0" in one and "a gradient norm of its own" in one for one in told)


# Reporting bugs.


@pytest.mark.parametrize(
    ("layout", "fault", "said"),
    [
        ("dp2", m18_summed, "only the logged loss differs (2.000 times the baseline's: dp = 2"),
        ("pp2", m18_placeholder, "-1 at all 20 steps: the placeholder"),
        ("dp2", m18_own, "mean is the baseline's"),
        ("tp2", m2_log_tp, "0.693 more than the baseline's"),
    ],
)
def test_a_metric_that_alone_differs_is_a_reporting_bug(
    layout: str, fault: Callable[[Pair], None], said: str
) -> None:
    drawn = pair(layout)
    fault(drawn)
    comparison = drawn.compared()
    text = reporting_bug(comparison, run_checks(comparison))
    assert text.startswith("looks like a reporting bug: gradients and updates of all 12 parameters agree")
    assert said in text


def test_a_norm_that_is_only_logged_wrong_is_a_reporting_bug() -> None:
    drawn = pair("fsdp4")
    drawn.curves["grad_norm"] = NORM / 2
    comparison = drawn.compared()
    assert "only the logged gradient norm differs (0.5000 times the baseline's" in reporting_bug(
        comparison, run_checks(comparison)
    )


@pytest.mark.parametrize("fault", [m1_row_bias, m4_norms, m16_adam, m14_shards])
def test_what_trains_otherwise_is_no_reporting_bug(fault: Callable[[Pair], None]) -> None:
    drawn = pair("tp2")
    fault(drawn)
    drawn.curves["loss"] = drawn.curves["loss"] * 1.5
    comparison = drawn.compared()
    assert reporting_bug(comparison, run_checks(comparison)) == ""


def test_a_loss_that_parts_after_the_sketched_steps_is_not_called_a_reporting_bug() -> None:
    drawn = pair("tp2")
    drawn.curves["loss"] = np.where(np.arange(20) < 10, LOSS, LOSS * 2)
    comparison = drawn.compared()
    assert reporting_bug(comparison, run_checks(comparison)) == ""


def test_a_loss_off_by_no_more_than_the_gradients_is_not_called_a_reporting_bug() -> None:
    drawn = pair("tp2")
    gradients(drawn, shaken(5e-5))
    drawn.curves["loss"] = LOSS * (1 + 1e-4)
    comparison = drawn.compared()
    assert reporting_bug(comparison, run_checks(comparison)) == ""
