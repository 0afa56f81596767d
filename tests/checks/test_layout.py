"""Whether the layout that was asked for was applied, by records and by log lines."""

from typing import Any

import pytest

from parity.checks import layout
from parity.checks.comparison import Comparison, Leg, LogEvidence
from parity.checks.outcome import Status, Verdict
from parity.checks.run import run_checks
from parity.checks.verdict import of_outcomes
from parity.layout import Layout
from tests.checks.recorded import EXPERTS, assert_fails, comparison, dp2, ep2, plain_run, pp2, tp3
from tests.drawing import LOSS, NORM, compare
from tests.drawing import leg as drawn_leg


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
