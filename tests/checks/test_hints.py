"""What a difference looks like: a drawn fault of each mutation class, and differences that look like nothing."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from parity.checks.hints import MOST_HINTS, hints, reporting_bug
from parity.checks.hints.sizes import Size, match
from parity.checks.run import run_checks
from parity.compare import compare as judged
from parity.layout import Layout
from parity.records.record import LegRecords, RankRecord
from tests.checks.faults import (
    c2_bf16,
    c3_nan,
    c4_computes_in_bf16,
    frozen_in_one,
    later_layers_agree,
    m1_row_bias,
    m2_log_tp,
    m3_heads,
    m4_norms,
    m4_router,
    m4_same_part_everywhere,
    m5_last_not_synced,
    m5_never_averaged,
    m5_summed,
    m6_over_ep,
    m6_times_ep,
    m7_last_micro_batch,
    m8_at_every_stage,
    m8_tokens,
    m9_mean_of_means,
    m10_counted_twice,
    m10_local_shard,
    m10_over_micro_batches,
    m10_own_experts,
    m11_tied,
    m12_auxiliary,
    m12_router_over_dp,
    m13_positions,
    m14_copies,
    m14_shards,
    m15_ahead,
    m15_other,
    m15_same,
    m15_unknown,
    m16_adam,
    m16_decay,
    m16_skipped,
    m16_state,
    m18_own,
    m18_own_alone,
    m18_placeholder,
    m18_summed,
    m19_frozen,
    only_in_candidate,
    total,
)
from tests.checks.pairs import EXPERTS, LAYOUTS, MODEL, Pair, gradients, pair, scaled, shaken
from tests.drawing import LOSS, NORM, compare, curve, noisy
from tests.drawing import leg as drawn_leg


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
        ("tp2", c4_computes_in_bf16, ["only 2.5e-05 off", "point almost where", "one leg computes in bf16"]),
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
            bug = reporting_bug(comparison, outcomes)
            assert not bug or bug.startswith("looks like a reporting bug")


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


def test_a_loss_of_zero_at_every_step_is_a_placeholder_and_no_factor() -> None:
    told = curves_only(loss=np.zeros(20))
    assert any("0 at all 20 steps" in one for one in told)
    assert not any("times the baseline's" in one for one in told)
    assert any("0 at all 20 steps" in one for one in curves_only(loss=np.zeros(20), grad_norm=np.zeros(20)))


ODD = st.lists(
    st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 1.0, -1.0, 6.0, 1e300, 1.7e308, np.inf, -np.inf, np.nan]),
    min_size=4,
    max_size=4,
) | st.floats().map(lambda value: [value] * 4)


@given(baseline=st.tuples(ODD, ODD), candidate=st.tuples(ODD, ODD))
def test_no_numbers_whatever_keep_a_comparison_from_its_verdict(
    baseline: tuple[list[float], list[float]], candidate: tuple[list[float], list[float]]
) -> None:
    base = replace(drawn_leg("base", loss=baseline[0], grad_norm=baseline[1]), layout=Layout())
    other = replace(drawn_leg("tp2", loss=candidate[0], grad_norm=candidate[1]), layout=LAYOUTS["tp2"])
    found = judged(compare(base, other, steps=4), "")
    assert found.verdict != "pass" or np.isfinite([baseline, candidate]).all()


def test_nan_in_both_legs_is_the_training_s() -> None:
    values = np.where(np.arange(20) < 5, LOSS, np.nan)
    comparison = compare(drawn_leg("base", loss=values), drawn_leg("other", loss=values), steps=20)
    assert "both legs are nan or infinite from step 5 on" in hints(comparison, run_checks(comparison))[0].lower()


# Replicas.


def test_ranks_that_clip_by_their_own_norms_part() -> None:
    drawn = pair("dp2")
    for name, value in MODEL.items():
        drawn.candidate.own[(1, "weights after", name)] = value * 1.001
    drawn.candidate.grad_norms = {0: {0: total(), 1: total()}, 1: {0: total() / 10, 1: total() / 10}}
    told = drawn.said()
    assert any("no longer equal after step 0" in one and "a gradient norm of its own" in one for one in told)
