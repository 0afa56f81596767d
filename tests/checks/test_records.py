"""Checks that look beyond curves: what ranks hold, started from, computed and updated."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parity.checks import (
    gradients,
    initial_state,
    layout,
    norm_consistent,
    replicas,
    run_checks,
    same_data,
    update,
)
from parity.checks.comparison import Comparison, Leg, LogEvidence
from parity.checks.groups import group_of
from parity.checks.outcome import Outcome, Status, Verdict
from parity.checks.verdict import of_outcomes, summary
from parity.layout import Layout
from parity.records.record import Batch, LegRecords
from tests.drawing import LOSS, NORM, compare, curve
from tests.drawing import leg as drawn_leg
from tests.records.drawing import ADAMW, MODEL, Drawn, draw, split

Q0, Q1 = "layers.0.attention.q_proj.weight", "layers.1.attention.q_proj.weight"
EXPERTS, ROUTER = "layers.0.experts.w1", "layers.0.router.weight"


def plain_run() -> Drawn:
    return Drawn()


def tp3() -> Drawn:
    """Attention cut 6/6/4, the embedding 11/10/10; the rest whole on every rank."""
    return Drawn(
        coordinates=[{"tp": rank} for rank in range(3)],
        boxes={
            Q0: split(MODEL[Q0], 0, (6, 6, 4)),
            Q1: split(MODEL[Q1], 0, (6, 6, 4)),
            "embed.weight": split(MODEL["embed.weight"], 0, (11, 10, 10)),
        },
    )


def pp2() -> Drawn:
    first = {"embed.weight", Q0, EXPERTS, ROUTER}
    return Drawn(
        coordinates=[{"pp": 0}, {"pp": 1}],
        owners={name: {0} if name in first else {1} for name in MODEL},
        layers=[(0,), (1,)],
    )


def ep2() -> Drawn:
    return Drawn(
        coordinates=[{"fsdp": 0, "ep": 0}, {"fsdp": 1, "ep": 1}],
        boxes={
            EXPERTS: split(MODEL[EXPERTS], 0, (2, 2)),
            Q0: split(MODEL[Q0], 0, (8, 8)),
            Q1: split(MODEL[Q1], 0, (8, 8)),
        },
        experts=[{"layers.0.experts": (0, 1)}, {"layers.0.experts": (2, 3)}],
    )


def dp2() -> Drawn:
    return Drawn(coordinates=[{"dp": 0}, {"dp": 1}])


SIZES = {"tp3": Layout(tp=3), "pp2": Layout(pp=2), "ep2": Layout(fsdp=2, ep=2), "dp2": Layout(dp=2)}
LEGS: dict[str, Callable[[], Drawn]] = {"tp3": tp3, "pp2": pp2, "ep2": ep2, "dp2": dp2}


def comparison(candidate: Drawn, name: str = "tp3", baseline: Drawn | None = None, **more: Any) -> Comparison:
    def made(label: str, drawn: Drawn, shape: Layout) -> Leg:
        curves = drawn_leg(label, loss=LOSS, grad_norm=NORM).curves
        return Leg(label, curves, shape, draw(drawn))

    control = more.pop("control", None)
    return compare(
        made("base", baseline or plain_run(), Layout()),
        made(name, candidate, SIZES[name]),
        made("control", control, SIZES[name]) if control else None,
        steps=20,
        **more,
    )


def assert_fails(outcome: Outcome, said: str) -> None:
    assert outcome.status is Status.FAIL, outcome.reason
    assert said in outcome.reason


@pytest.mark.parametrize("name", LEGS)
def test_a_correct_layout_passes_whatever_the_sharding(name: str) -> None:
    pair = comparison(LEGS[name](), name)
    for check in (initial_state, layout, norm_consistent, gradients, update, replicas):
        outcome = check.check(pair)
        assert outcome.status is Status.PASS, (check.__name__, outcome.reason)


# initial_state


def test_one_bit_in_one_weight_is_another_start() -> None:
    weights = {**MODEL, Q1: MODEL[Q1].copy()}
    weights[Q1].view(np.uint64)[7, 3] ^= np.uint64(1)
    candidate = tp3()
    candidate.weights = weights
    outcome = initial_state.check(comparison(candidate))
    assert_fails(outcome, f"other initial values of 1 parameter ({Q1})")
    assert outcome.verdict is Verdict.INCONCLUSIVE


def test_replicas_that_start_apart_are_found_within_a_leg() -> None:
    candidate = dp2()
    candidate.own[(1, "weights", "norm.weight")] = MODEL["norm.weight"] + 1e-9
    assert_fails(
        initial_state.check(comparison(candidate, "dp2")), "dp2: ranks start with different copies of 1 parameter"
    )


def test_a_shard_that_no_rank_holds_is_a_gap() -> None:
    candidate = tp3()
    candidate.boxes[Q0] = split(MODEL[Q0], 0, (6, 6, 3))
    assert_fails(
        initial_state.check(comparison(candidate)),
        f"tp3: the ranks' parts leave gaps or overlap in 1 parameter ({Q0})",
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"optimizer": {**ADAMW, "weight_decay": 0.0}}, "other optimizer setting weight_decay: 0.01 against 0.0"),
        ({"optimizer": {**ADAMW, "class": "SGD"}}, "other optimizer setting class: AdamW against SGD"),
        ({"state_step": 1.0}, "other optimizer setting steps made before: 0.0 against 1.0"),
    ],
)
def test_other_optimizer_settings_are_another_start(change: dict[str, Any], said: str) -> None:
    candidate = tp3()
    for key, value in change.items():
        setattr(candidate, key, value)
    assert_fails(initial_state.check(comparison(candidate)), said)


def test_a_parameter_that_only_one_leg_has_is_another_start() -> None:
    candidate = tp3()
    candidate.weights = {name: value for name, value in MODEL.items() if name != "norm.weight"}
    candidate.gradients = candidate.updates = {0: candidate.weights}
    assert_fails(initial_state.check(comparison(candidate)), "only base has 1 parameter (norm.weight)")


# same_data


def batches(*hashes: int, samples: int = 4, micro: int | None = 2) -> dict[int, Batch]:
    return {step: Batch(value, samples, micro) for step, value in enumerate(hashes)}


def data_pair(mine: dict[int, dict[int, Batch]], whole: dict[int, Batch], name: str = "dp2") -> Comparison:
    baseline, candidate = plain_run(), LEGS[name]()
    baseline.batches, candidate.batches = {0: whole}, mine
    return replace(comparison(candidate, name, baseline), expected_steps=np.arange(len(whole)))


def test_samples_dealt_over_data_parallel_ranks_are_the_same_samples() -> None:
    pair = data_pair({0: batches(2**64 - 1, 5, samples=2), 1: batches(8, 6, samples=2)}, batches(7, 11))
    outcome = same_data.check(pair)
    assert outcome.status is Status.PASS
    assert outcome.reason == "2 steps of 4 samples in 2 micro-batches, equal"


def test_tensor_parallel_ranks_share_their_samples() -> None:
    assert same_data.check(data_pair({r: batches(7) for r in range(3)}, batches(7), "tp3")).status is Status.PASS
    odd = {0: batches(7), 1: batches(7), 2: batches(9)}
    assert_fails(
        same_data.check(data_pair(odd, batches(7), "tp3")), "ranks of one data-parallel group train on different"
    )


@pytest.mark.parametrize(
    ("ranks", "whole", "said"),
    [
        ({0: batches(7, 5), 1: batches(8, 6)}, batches(15, 12, samples=8), "other samples at 1 step (1)"),
        (
            {0: batches(7), 1: batches(7)},
            batches(14, samples=8),
            "several data-parallel ranks train on the same samples",
        ),
        ({0: batches(7), 1: batches(8)}, batches(15), "other global batch: 4 samples in base, 8 in dp2"),
        (
            {0: batches(7), 1: batches(8)},
            batches(15, samples=8, micro=1),
            "other number of micro-batches: 1 in base, 2",
        ),
    ],
)
def test_other_data_is_no_ground_for_a_comparison(ranks: Any, whole: Any, said: str) -> None:
    outcome = same_data.check(data_pair(ranks, whole))
    assert_fails(outcome, said)
    # Ranks of one leg that share samples they should not are that layout's fault; other data is no comparison.
    assert outcome.verdict is (Verdict.FAIL if "several data-parallel" in said else Verdict.INCONCLUSIVE)


def test_another_learning_rate_is_told_even_without_records() -> None:
    rates = np.full(20, 1e-3)
    legs = [
        drawn_leg(n, curve("lr", r), loss=LOSS)
        for n, r in (("a", rates), ("b", np.where(np.arange(20) > 4, 9e-4, rates)))
    ]
    assert_fails(
        same_data.check(compare(*legs)), "other learning rate at 15 steps, first 0.001 against 0.0009 at step 5"
    )


# layout


def test_expert_parallelism_asked_for_and_not_applied_fails_in_one_sentence() -> None:
    candidate = ep2()
    del candidate.boxes[EXPERTS]
    candidate.experts = [{"layers.0.experts": (0, 1, 2, 3)}] * 2
    pair = comparison(candidate, "ep2")
    outcome = layout.check(pair)
    assert_fails(outcome, "ep2: asked for ep=2, but every rank holds all 4 experts of layers.0.experts")
    assert "\n" not in outcome.reason
    # The curve is perfect, and everything else too: only this check can tell.
    outcomes = run_checks(pair)
    assert [one.check for one in outcomes if one.status is Status.FAIL] == ["layout"]
    assert of_outcomes(outcomes) is Verdict.FAIL


def test_tensor_parallelism_that_was_never_applied_fails() -> None:
    candidate = tp3()
    candidate.boxes = {}
    assert_fails(
        layout.check(comparison(candidate)),
        "no parameter is cut into 3 parts by tp: tensor parallelism was not",
    )


def test_a_pipeline_whose_stages_hold_everything_fails() -> None:
    candidate = pp2()
    candidate.owners = {}
    assert_fails(
        layout.check(comparison(candidate, "pp2")),
        "every rank holds every layer: pipeline parallelism was not applied",
    )


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ([(0,), (0, 1)], "several stages own layer 0"),
        ([(0,), (2,)], "no stage owns layer 1"),
        ([(0, 1), ()], "owns no layer"),
    ],
)
def test_layers_owned_twice_or_by_nobody_fail(layers: list[tuple[int, ...]], said: str) -> None:
    candidate = pp2()
    candidate.layers = layers
    assert_fails(layout.check(comparison(candidate, "pp2")), said)


def test_experts_owned_twice_fail() -> None:
    candidate = ep2()
    candidate.experts = [{"layers.0.experts": (0, 1, 2)}, {"layers.0.experts": (2, 3)}]
    assert_fails(layout.check(comparison(candidate, "ep2")), "are not spread over 2 owners once each")


def test_a_layer_that_fell_back_to_another_router_is_named() -> None:
    candidate, baseline = pp2(), plain_run()
    baseline.traits = [{"layers.2.moe.router": "experts by token id"}]
    candidate.traits = [{}, {"layers.2.moe.router": "experts by score"}]
    assert_fails(
        layout.check(comparison(candidate, "pp2", baseline)),
        "pp2: layers.2.moe.router has experts by score on rank 1, where base has experts by token id",
    )


def test_fewer_ranks_than_asked_for_fail() -> None:
    candidate = tp3()
    candidate.coordinates = candidate.coordinates[:2]
    assert_fails(layout.check(comparison(candidate)), "3 ranks asked for (tp=3), 2 recorded")


def test_a_passing_layout_says_what_was_cut_and_by_which_source() -> None:
    reason = layout.check(comparison(tp3())).reason
    assert "tp3 by its records: tp=3 cuts 3 parameters (embed.weight as 11/10/10)" in reason
    assert "pp=2 spreads the layers over the stages (layers 0 | 1)" in layout.check(comparison(pp2(), "pp2")).reason


def logged(evidence: LogEvidence | None, **more: Any) -> Comparison:
    def made(name: str, shape: Layout, shown: LogEvidence | None) -> Leg:
        return Leg(name, drawn_leg(name, loss=LOSS, grad_norm=NORM).curves, shape, None, shown)

    return compare(made("pp1", Layout(), None), made("pp2", Layout(pp=2), evidence), steps=20, **more)


def test_layouts_that_differ_without_any_evidence_are_inconclusive_unless_the_suite_says_so() -> None:
    pair = logged(None)
    assert layout.check(pair).status is Status.NOT_RUN
    assert of_outcomes(run_checks(pair)) is Verdict.INCONCLUSIVE
    assert "nothing shows that pp2 ran under the layout asked for" in layout.check(pair).reason
    assert of_outcomes(run_checks(logged(None, layout_unproven=True))) is Verdict.PASS


def test_log_lines_are_evidence_and_named_as_such() -> None:
    shown = LogEvidence(found=(("Precomputed", "Precomputed pipeline stage shapes (seq_len=33)"),))
    outcome = layout.check(logged(shown))
    assert outcome.status is Status.PASS
    assert "pp2 by its log: Precomputed pipeline stage shapes (seq_len=33)" in outcome.reason
    missing = LogEvidence(missing=("Precomputed",))
    assert_fails(layout.check(logged(missing)), "its log never says 'Precomputed'")
    fallback = LogEvidence(found=shown.found, forbidden=(("dynamic", "using dynamic metadata inference"),))
    assert_fails(layout.check(logged(fallback)), "which 'dynamic' forbids")


def test_logs_that_nobody_gave_a_layout_need_no_evidence() -> None:
    pair = compare(drawn_leg("a", loss=LOSS), drawn_leg("b", loss=LOSS), steps=20)
    assert layout.check(pair).status is Status.NOT_RUN
    assert of_outcomes(run_checks(pair)) is Verdict.PASS


# norm_consistent


def test_a_norm_of_the_local_shard_is_not_the_norm_of_the_gradients() -> None:
    candidate = tp3()
    true = float(np.sqrt(sum((value**2).sum() for value in MODEL.values())))
    candidate.grad_norms = {rank: {0: true / 3**0.5} for rank in range(3)}
    assert_fails(norm_consistent.check(comparison(candidate)), "(ratio 0.5774; 1 step)")


def test_ranks_that_log_different_norms_are_found_though_each_log_looks_fine() -> None:
    candidate = tp3()
    true = float(np.sqrt(sum((value**2).sum() for value in MODEL.values())))
    candidate.grad_norms = {0: {0: true}, 1: {0: true / 10}, 2: {0: true}}
    assert_fails(norm_consistent.check(comparison(candidate)), "rank 1 logs a gradient norm of")


def test_gradients_read_after_clipping_are_no_ground_for_a_verdict() -> None:
    candidate = tp3()
    candidate.read = "at the optimizer step"
    candidate.grad_norms = {rank: {0: 1e3, 1: 1e3} for rank in range(3)}
    outcome = norm_consistent.check(comparison(candidate))
    assert outcome.status is Status.NOT_RUN
    assert "call recorder.gradients() before it" in outcome.reason


# gradients and update


def scaled(name: str, factor: float) -> dict[str, np.ndarray]:
    return {**MODEL, name: MODEL[name] * factor}


def test_doubled_expert_gradients_are_named_with_ratio_and_share() -> None:
    candidate = ep2()
    candidate.gradients = {0: scaled(EXPERTS, 2.0)}
    outcome = gradients.check(comparison(candidate, "ep2"))
    assert_fails(outcome, "(0.0001 allowed), ratio 2, cosine 1.000000")
    assert f"worst {EXPERTS} at step 0" in outcome.reason
    assert outcome.parameters[0].distance == pytest.approx(1.0, rel=0.2)
    worst = outcome.parameters[0]
    assert (worst.name, worst.group) == (EXPERTS, "experts")
    assert worst.share == pytest.approx(1.0)
    assert dict(outcome.shares)["experts"] == pytest.approx(1.0)


def test_one_wrong_norm_weight_is_found_though_it_is_nothing_in_the_whole_model_s_norm() -> None:
    candidate = tp3()
    candidate.gradients = {0: scaled("norm.weight", 1.001)}
    outcome = gradients.check(comparison(candidate))
    assert_fails(outcome, "1 of 6 parameters beyond what is allowed at step 0; worst norm.weight")
    assert outcome.parameters[0].distance == pytest.approx(1e-3, rel=0.5)


def test_a_gradient_that_is_nothing_but_rounding_is_measured_against_the_model_s() -> None:
    tiny = {**MODEL, "norm.weight": np.full(8, 1e-12)}
    other = {**MODEL, "norm.weight": -np.full(8, 1e-12)}
    candidate, baseline = tp3(), plain_run()
    candidate.gradients, baseline.gradients = {0: other}, {0: tiny}
    assert gradients.check(comparison(candidate, baseline=baseline)).status is Status.PASS


def test_a_parameter_without_a_gradient_in_one_leg_fails() -> None:
    candidate = tp3()
    for rank in range(3):
        candidate.own[(rank, "gradients", ROUTER)] = np.full_like(MODEL[ROUTER], np.nan)
    assert_fails(gradients.check(comparison(candidate)), f"only base has gradients of {ROUTER} at step 0")


def test_the_control_s_noise_widens_later_steps_and_the_first_only_so_far() -> None:
    def noisy(size: float, seed: int) -> dict[str, np.ndarray]:
        generator = np.random.default_rng(seed)
        return {name: value * (1 + size * generator.normal(size=value.shape)) for name, value in MODEL.items()}

    candidate, control = tp3(), tp3()
    candidate.gradients = {0: noisy(5e-4, 1), 1: noisy(5e-2, 2)}
    control.gradients = {0: noisy(5e-4, 3), 1: noisy(5e-2, 4)}
    assert gradients.check(comparison(candidate)).status is Status.FAIL
    assert gradients.check(comparison(candidate, control=control)).status is Status.PASS
    candidate.gradients = control.gradients = {0: scaled(EXPERTS, 1.1), 1: MODEL}
    assert gradients.check(comparison(candidate, control=control)).status is Status.FAIL


def test_an_update_that_is_a_little_off_everywhere_is_found_by_its_median() -> None:
    candidate = tp3()
    generator = np.random.default_rng(1)
    candidate.updates = {0: {n: v * (1 + 2e-3 * generator.normal(size=v.shape)) for n, v in MODEL.items()}}
    assert_fails(update.check(comparison(candidate)), "the median parameter is 0.00")


def test_one_parameter_whose_update_is_mostly_rounding_passes() -> None:
    candidate = tp3()
    generator = np.random.default_rng(1)
    noisy_one = MODEL["norm.weight"] * (1 + 5e-2 * generator.normal(size=8))
    candidate.updates = {0: {**MODEL, "norm.weight": noisy_one}}
    assert update.check(comparison(candidate)).status is Status.PASS


def test_a_first_update_too_small_by_a_third_is_found_though_gradients_agree() -> None:
    candidate = tp3()
    candidate.updates = {0: {name: value / 1.34 for name, value in MODEL.items()}}
    pair = comparison(candidate)
    assert gradients.check(pair).status is Status.PASS
    assert_fails(update.check(pair), "ratio 0.7463")


# replicas


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


# all


def test_records_in_one_leg_alone_are_inconclusive() -> None:
    base = drawn_leg("base", loss=LOSS, grad_norm=NORM)
    pair = compare(base, Leg("tp3", base.curves, None, draw(tp3())), steps=20)
    assert of_outcomes(run_checks(pair)) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("model.layers.3.mlp.experts.gate_up_proj", "experts"),
        ("layers.0.moe.shared_experts.down.weight", "shared experts"),
        ("model.layers.0.mlp.gate.weight", "router"),
        ("model.layers.0.mlp.gate.e_score_correction_bias", "router"),
        ("layers.2.moe.experts.gate", "experts"),
        ("model.layers.3.mlp.gate", "router"),
        ("layers.0.attention.q_norm.weight", "norms"),
        ("model.layers.0.input_layernorm.weight", "norms"),
        ("model.layers.0.self_attn.q_proj.weight", "attention"),
        ("layers.0.attention.wq.weight", "attention"),
        ("model.layers.0.mlp.gate_proj.weight", "mlp"),
        ("layers.0.feed_forward.w1.weight", "mlp"),
        ("lm_head.weight", "embeddings"),
        ("tok_embeddings.weight", "embeddings"),
        ("layers.0.attention_streams.coefficients.weight", "connections"),
        ("visual.patch.conv", "other"),
    ],
)
def test_groups_of_names_that_frameworks_give(name: str, group: str) -> None:
    assert group_of(name) == group


def test_a_gate_beside_an_up_is_half_of_a_gated_mlp_and_no_router() -> None:
    names = ["layers.0.mlp.gate.weight", "layers.0.mlp.up.weight", "layers.1.mlp.gate.weight"]
    assert [group_of(name, names) for name in names] == ["mlp", "mlp", "router"]


def test_the_parameter_with_the_largest_share_of_the_error_is_named_though_others_are_further_out() -> None:
    generator = np.random.default_rng(3)
    many = {f"layers.{i}.norm.weight": generator.normal(size=4) for i in range(12)}
    weights = {"embed.weight": generator.normal(size=(500, 8)), **many}
    candidate, baseline = tp3(), plain_run()
    candidate.boxes = {}
    candidate.weights = baseline.weights = weights
    baseline.gradients = baseline.updates = {0: weights}
    candidate.gradients = {0: {n: v * (1.1 if n == "embed.weight" else 1.5) for n, v in weights.items()}}
    candidate.updates = {0: weights}
    named = gradients.check(comparison(candidate, baseline=baseline)).parameters
    assert "embed.weight" in {one.name for one in named}
    assert named[0].name != "embed.weight"


def test_a_cut_that_another_axis_made_does_not_show_the_one_that_was_asked_for() -> None:
    candidate = tp3()
    candidate.split = {name: {0: "fsdp"} for name in candidate.boxes}
    assert_fails(layout.check(comparison(candidate)), "no parameter is cut into 3 parts by tp")
    candidate.split = {name: {0: "tp"} for name in candidate.boxes}
    assert layout.check(comparison(candidate)).status is Status.PASS


def test_experts_that_nobody_said_who_owns_show_no_expert_parallelism() -> None:
    candidate = ep2()
    candidate.experts = None
    pair = comparison(candidate, "ep2")
    assert layout.check(pair).status is Status.NOT_RUN
    assert "give recorder.start the experts that each rank owns" in layout.check(pair).reason
    assert of_outcomes(run_checks(pair)) is Verdict.INCONCLUSIVE


def test_data_parallel_ranks_without_recorded_places_are_not_shown() -> None:
    candidate = dp2()
    candidate.coordinates = [{}, {}]
    assert layout.check(comparison(candidate, "dp2")).status is Status.NOT_RUN


def test_another_start_keeps_later_checks_from_judging_and_is_inconclusive() -> None:
    candidate = tp3()
    candidate.weights = {**MODEL, Q1: MODEL[Q1] * 1.01}
    candidate.gradients = {0: scaled(Q1, 1.5)}
    pair = comparison(candidate)
    outcomes = run_checks(pair)
    assert of_outcomes(outcomes) is Verdict.INCONCLUSIVE
    assert next(one for one in outcomes if one.check == "gradients").status is Status.NOT_RUN
    assert summary(pair, outcomes).startswith("tp3 against base: initial_state other initial values of 1 parameter")


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


def test_a_replicated_gradient_that_was_never_summed_over_its_ranks_is_found() -> None:
    candidate = dp2()
    candidate.own[(1, "gradients", "norm.weight")] = MODEL["norm.weight"] * 1.2
    assert_fails(
        replicas.check(comparison(candidate, "dp2")), "dp2: at step 0 ranks have other gradients of norm.weight"
    )


def with_ranks(change: Callable[[Any], Any]) -> Comparison:
    """A leg of three ranks that logged 20 steps, the last of them changed."""
    pair = comparison(tp3())
    assert pair.candidate.records is not None
    losses = {step: float(value) for step, value in enumerate(LOSS)}
    ranks = [replace(rank, losses=losses) for rank in pair.candidate.records.ranks]
    changed = change(ranks[-1])
    kept = (*ranks[:-1], changed) if changed is not None else tuple(ranks[:-1])
    return replace(pair, candidate=replace(pair.candidate, records=LegRecords(kept)))


@pytest.mark.parametrize(
    ("change", "check", "verdict", "said"),
    [
        (lambda rank: None, "complete", Verdict.INCONCLUSIVE, "tp3: 2 of 3 ranks left a readable record, not 2"),
        (lambda rank: replace(rank, losses={0: 6.0}), "complete", Verdict.INCONCLUSIVE, "1 of 20 steps on rank 2"),
        (lambda rank: replace(rank, ended=False), "complete", Verdict.INCONCLUSIVE, "never wrote its end on rank 2"),
        (
            lambda rank: replace(rank, losses={**rank.losses, 7: np.nan}),
            "finite",
            Verdict.FAIL,
            "tp3 has NaN or infinite loss on rank 2 alone, first at step 7",
        ),
        (
            lambda rank: replace(rank, grad_norms={**rank.grad_norms, 1: np.nan}),
            "norm_consistent",
            Verdict.FAIL,
            "tp3: rank 2 logs a gradient norm of nan at step 1",
        ),
    ],
)
def test_what_another_rank_than_the_first_shows(
    change: Callable[[Any], Any], check: str, verdict: Verdict, said: str
) -> None:
    outcome = next(one for one in run_checks(with_ranks(change)) if one.check == check)
    assert outcome.verdict is verdict
    assert said in outcome.reason


def test_a_first_gap_after_a_start_shown_to_be_the_same_is_the_forward_s_and_nothing_else_s() -> None:
    baseline, candidate = plain_run(), tp3()
    twenty = {step: Batch(step, 4, 2) for step in range(20)}
    baseline.batches, candidate.batches = {0: twenty}, dict.fromkeys(range(3), twenty)
    pair = comparison(candidate, baseline=baseline)
    wrong = drawn_leg("tp3", loss=LOSS * 1.01, grad_norm=NORM).curves
    outcomes = run_checks(replace(pair, candidate=replace(pair.candidate, curves=wrong)))
    forward = next(one for one in outcomes if one.check == "forward")
    assert forward.reason.endswith("the forward is wrong, for weights and data are the same")
