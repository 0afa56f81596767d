"""What a comparison would have caught, held to what the checks say of the change really made."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from parity.checks.comparison import Comparison, Leg
from parity.checks.groups import group_of
from parity.checks.outcome import Status
from parity.checks.profiles import PROFILES, Profile, with_bounds
from parity.checks.run import run_checks
from parity.checks.sensitivity import Least, Sensitivity, describe, sensitivity, warnings
from parity.curves.curve import Resolution
from parity.records.record import Fingerprints, LegRecords
from tests.drawing import LOSS, NORM, compare, curve, leg, noisy
from tests.records.drawing import MODEL, Drawn, draw, split

Tensors = Mapping[str, np.ndarray]

# The checks that a change of gradients or loss can move.
MOVED = ("forward", "loss", "grad_norm", "gradients", "drift", "control")
SKETCHED = (0, 1)
RECORDED = range(6)
GROUPS = {group_of(name) for name in MODEL}


def tensors(noise: float, seed: int, step: int) -> Tensors:
    """The gradients of a step, with a relative jitter."""
    random = np.random.default_rng(1000 * seed + step)
    return {
        name: value * (1 + 0.1 * step) + noise * random.normal(size=value.shape) * np.abs(value).mean()
        for name, value in MODEL.items()
    }


def records(noise: float, seed: int) -> LegRecords:
    drawn = draw(Drawn(gradients={step: tensors(noise, seed, step) for step in RECORDED}))
    (rank,) = drawn.ranks
    gradients = {step: one if step in SKETCHED else replace(one, sketch=None) for step, one in rank.gradients.items()}
    return LegRecords((replace(rank, gradients=gradients),))


def run(name: str, noise: float = 0.0, seed: int = 0, recorded: bool = True, steps: int = 20) -> Leg:
    """A leg that is off by rounding of a size, less so at the first step."""
    first = np.where(np.arange(20) == 0, 1 + 0.05 * noise * np.sin(seed), 1.0)
    # A loss of exactly 6 would be taken for one in bfloat16 if it were alone.
    loss, norm = noisy(LOSS + 0.0123, noise, seed) * first, noisy(NORM, noise, seed + 100) * first
    drawn = leg(name, loss=loss[:steps], grad_norm=norm[:steps])
    return replace(drawn, records=records(0.1 * noise, seed)) if recorded else drawn


def scaled(comparison: Comparison, factor: float, group: str | None = None) -> Comparison:
    """The candidate with the gradients of a group, or of all parameters, times a factor at every step."""
    candidate = comparison.candidate
    curves = dict(candidate.curves.curves)
    told = candidate.records
    if told is not None:
        (rank,) = told.ranks
        mine = np.array([group in (None, group_of(part.name)) for part in rank.parameters])
        times = np.where(mine, factor, 1.0)

        def of(one: Fingerprints) -> Fingerprints:
            sketch = None if one.sketch is None else one.sketch * times[:, None]
            return replace(one, norms=one.norms * times, sketch=sketch)

        told = LegRecords((replace(rank, gradients={step: of(one) for step, one in rank.gradients.items()}),))
    norm = curves.get("grad_norm")
    if norm is not None:
        values = norm.values.copy()
        for at, step in enumerate(norm.steps.tolist()):
            if group is None:
                values[at] *= factor
            elif told is not None and step in told.ranks[0].gradients:
                after, before = (np.linalg.norm(one.gradients[step].norms) for one in (told.ranks[0], rank))
                values[at] *= after / before
        curves["grad_norm"] = replace(norm, values=values)
    return replace(
        comparison, candidate=replace(candidate, curves=replace(candidate.curves, curves=curves), records=told)
    )


def offset(comparison: Comparison, size: float) -> Comparison:
    """The candidate with something added to its loss at every step."""
    candidate = comparison.candidate
    loss = candidate.curves.curves["loss"]
    curves = {**candidate.curves.curves, "loss": replace(loss, values=loss.values + size)}
    return replace(comparison, candidate=replace(candidate, curves=replace(candidate.curves, curves=curves)))


def green(comparison: Comparison, without: str = "") -> bool:
    return all(
        one.status is Status.PASS or (one.status is Status.NOT_RUN and not one.required)
        for one in run_checks(comparison)
        if one.check in MOVED and one.check != without
    )


def failed(comparison: Comparison) -> bool:
    return any(one.status is Status.FAIL for one in run_checks(comparison) if one.check in MOVED)


def change(comparison: Comparison, what: str, size: float) -> Comparison:
    """`loss` moved by a size, or the gradients of `all` parameters or of a group times 1 + size."""
    if what == "loss":
        return offset(comparison, size)
    return scaled(comparison, 1 + size, None if what == "all" else what)


def least_of(comparison: Comparison, what: str) -> Least:
    found = sensitivity(comparison)
    return {"all": found.gradient_factor, "loss": found.loss_offset, **found.group_factors}[what]


def assert_exact(comparison: Comparison, what: str) -> None:
    """Just above what is said nothing is green, whichever way; just below, one of the two ways is."""
    size = least_of(comparison, what).size
    assert size
    assert not green(change(comparison, what, 1.0001 * size))
    assert not green(change(comparison, what, -1.0001 * size))
    # What `drift` sees of one group's gradients is not counted on.
    without = "" if what in ("all", "loss") else "drift"
    for part in (0.5, 0.99):
        assert any(green(change(comparison, what, sign * part * size), without) for sign in (1, -1))


sizes = st.floats(-9, -5).map(lambda power: 10**power)


@st.composite
def comparisons(draw_: st.DrawFn) -> Comparison:
    noise, seed = draw_(sizes), draw_(st.integers(0, 1000))
    recorded, steps = draw_(st.booleans()), draw_(st.sampled_from([1, 2, 6, 20]))
    roles = draw_(st.sets(st.sampled_from(["controls", "perturbed", "repeats"]), max_size=2))
    profile = PROFILES["fp32-cpu"]
    if draw_(st.booleans()):
        for metric in ("loss", "grad_norm"):
            first, later = draw_(st.floats(-6, -2)), draw_(st.floats(-6, -1))
            profile = with_bounds(profile, metric, first_rtol=10**first, rtol=10**later)
    legs = {
        role: (run(role, noise * draw_(st.floats(0.1, 10)), seed + at, recorded, steps),)
        for at, role in enumerate(sorted(roles), start=1)
    }
    return Comparison(
        run("tp1", 0, 0, recorded, steps),
        run("tp3", noise, seed, recorded, steps),
        profile,
        expected_steps=np.arange(steps),
        **legs,  # type: ignore[arg-type]
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(comparisons(), st.sampled_from(["all", "loss", *sorted(GROUPS)]))
def test_what_is_said_is_what_the_checks_say_of_the_change_made(comparison: Comparison, what: str) -> None:
    assume(what in ("all", "loss") or comparison.candidate.records is not None)
    assume(green(comparison))
    assert_exact(comparison, what)


def test_equal_legs_are_held_to_the_bound_itself() -> None:
    found = sensitivity(compare(leg("tp1", loss=LOSS, grad_norm=NORM), leg("tp3", loss=LOSS, grad_norm=NORM)))
    assert found.gradient_factor.size == pytest.approx(1e-5)
    assert (found.gradient_factor.check, found.gradient_factor.step) == ("grad_norm", 0)
    assert found.loss_offset.size == pytest.approx(6e-6)
    assert (found.loss_offset.check, found.loss_offset.step) == ("forward", 0)
    assert found.loss_relative == pytest.approx(1e-6)
    assert found.group_factors == {}


def test_the_worse_sign_counts() -> None:
    """A candidate that is 6e-6 too high already sees another 4e-6, and only 1.6e-5 downwards."""
    first = np.where(np.arange(20) == 0, 1 + 6e-6, 1.0)
    profile = with_bounds(PROFILES["fp32-cpu"], "grad_norm", rtol=1.0, first_rtol=1e-5)
    base, candidate = leg("tp1", loss=LOSS, grad_norm=NORM), leg("tp3", loss=LOSS, grad_norm=NORM * first)
    assert least_of(compare(base, candidate, profile=profile), "all").size == pytest.approx(1.6e-5, rel=1e-3)


def test_a_perturbed_leg_is_finer_than_the_profile() -> None:
    legs = run("tp1"), run("tp3", 1e-8, 1)
    moved = (run("tp1.perturbed", 1e-8, 2),)
    comparison = Comparison(*legs, PROFILES["fp32-cpu"], perturbed=moved, expected_steps=np.arange(20))
    least = least_of(comparison, "all")
    assert least.size is not None
    assert least.size < 2.5e-6 < (least_of(Comparison(*legs, PROFILES["fp32-cpu"]), "all").size or 0)
    assert_exact(comparison, "all")


def test_a_log_that_begins_late_is_judged_by_drift_first() -> None:
    late = [curve("loss", LOSS, np.arange(10, 30)), curve("grad_norm", NORM, np.arange(10, 30))]
    comparison = compare(leg("tp1", *late), leg("tp3", *late))
    assert (least_of(comparison, "all").check, least_of(comparison, "all").step) == ("drift", None)
    assert "(drift)" in describe(sensitivity(comparison))
    assert_exact(comparison, "all")
    assert_exact(comparison, "loss")


@pytest.mark.parametrize("what", ["all", "loss", *sorted(GROUPS)])
def test_steps_that_are_not_finite_are_left_out(what: str) -> None:
    profile = with_bounds(PROFILES["fp32-cpu"], "grad_norm", rtol=1e-4, first_rtol=1e-4)
    profile = with_bounds(profile, "loss", rtol=1e-4, first_rtol=1e-4)
    base, candidate = run("tp1"), run("tp3", 1e-7, 1)
    for one in candidate.curves.curves.values():
        one.values[[0, 7]] = np.nan, np.inf
    comparison = compare(base, candidate, profile=profile, steps=20)
    size = least_of(comparison, what).size
    assert size
    for sign in (1, -1):
        assert failed(change(comparison, what, sign * 1.001 * size))
    assert not all(failed(change(comparison, what, sign * 0.5 * size)) for sign in (1, -1))


def test_a_norm_of_zero_says_nothing_and_the_other_steps_do() -> None:
    norm = np.where(np.arange(20) == 0, 0.0, NORM)
    found = sensitivity(compare(leg("tp1", loss=LOSS, grad_norm=norm), leg("tp3", loss=LOSS, grad_norm=norm)))
    assert found.gradient_factor.size == pytest.approx(2e-5, rel=0.1)
    nothing = sensitivity(
        compare(leg("tp1", loss=LOSS, grad_norm=norm * 0), leg("tp3", loss=LOSS, grad_norm=norm * 0))
    )
    assert nothing.gradient_factor == Least(
        reason="not even gradients of zero would have been beyond what is allowed"
    )


def test_gradients_of_zero_could_be_multiplied_by_anything() -> None:
    gradients = {step: {**MODEL, "norm.weight": MODEL["norm.weight"] * 0} for step in SKETCHED}
    told = draw(Drawn(gradients=gradients))
    base, candidate = (replace(run(name, recorded=False), records=told) for name in ("tp1", "tp3"))
    found = sensitivity(compare(base, candidate))
    assert found.group_factors["norms"].size is None
    assert next(iter(found.group_factors)) == "norms"
    assert "would not have caught: a factor of gradients of norms (not even" in describe(found)


def test_bounds_wider_than_the_gradients_see_nothing() -> None:
    profile = with_bounds(PROFILES["fp32-cpu"], "grad_norm", rtol=2.0, first_rtol=2.0, mean_rtol=2.0)
    base = leg("tp1", loss=LOSS, grad_norm=NORM)
    least = least_of(compare(base, base, profile=profile), "all")
    assert least.size is None
    assert "not even gradients of zero" in least.reason


def test_legs_that_are_apart_already_are_said_to_be() -> None:
    comparison = compare(leg("tp1", loss=LOSS, grad_norm=NORM), leg("tp3", loss=LOSS, grad_norm=NORM * 1.41))
    found = sensitivity(comparison)
    assert found.gradient_factor == Least(0.0, "grad_norm", 0)
    assert "beyond what is allowed as they are: all gradients (grad_norm, step 0)" in describe(found)


def test_a_change_that_the_log_rounds_away_is_not_counted_on() -> None:
    """Both legs print four decimals; whatever the candidate's true norm was, the change shows in what it prints."""
    true = NORM + 4.9e-5
    coarse = Resolution(decimals=4, significant=5)
    profile = with_bounds(PROFILES["fp32-cpu"], "grad_norm", rtol=1e-3, first_rtol=1e-3)

    def candidate(factor: float) -> Leg:
        return leg("tp3", curve("loss", LOSS), curve("grad_norm", np.round(true * factor, 4), resolution=coarse))

    base = leg("tp1", curve("loss", LOSS), curve("grad_norm", np.round(NORM, 4), resolution=coarse))
    size = least_of(compare(base, candidate(1), profile=profile), "all").size
    assert size
    # The mean over the steps is held to 2.5e-4.
    assert size > 2.5e-4
    for sign in (1, -1):
        assert not green(compare(base, candidate(1 + sign * 1.0001 * size), profile=profile))


def test_groups_are_known_by_their_part_of_the_norm_where_nothing_was_sketched() -> None:
    def unsketched(name: str) -> Leg:
        (rank,) = records(0, 0).ranks
        gradients = {step: replace(one, sketch=None) for step, one in rank.gradients.items()}
        return replace(run(name, recorded=False), records=LegRecords((replace(rank, gradients=gradients),)))

    comparison = compare(unsketched("tp1"), unsketched("tp3"))
    found = sensitivity(comparison).group_factors
    norms = records(0, 0).norms("gradients", 0)
    whole = sum(norm**2 for norm in norms.values())
    for group, least in found.items():
        part = sum(norm**2 for name, norm in norms.items() if group_of(name) == group) / whole
        assert least.size == pytest.approx(1e-5 / part, rel=1e-2)
        assert (least.check, least.step) == ("grad_norm", 0)
    # Both ways are seen; the way down needs a little more.
    group, least = next(iter(found.items()))
    assert least.size is not None
    for sign in (1, -1):
        assert not green(change(comparison, group, sign * 1.0001 * least.size), "gradients")


def test_it_does_not_matter_how_the_gradients_are_cut() -> None:
    name = "layers.0.attention.q_proj.weight"
    gradients = {step: tensors(1e-6, 1, step) for step in SKETCHED}
    whole = Drawn(gradients=gradients)
    cut = Drawn(
        coordinates=[{"tp": rank} for rank in range(3)],
        boxes={name: split(MODEL[name], 0, (6, 6, 4))},
        owners={"layers.0.experts.w1": {2}},
        gradients=gradients,
    )
    base = replace(run("tp1", recorded=False), records=records(0, 0))
    one, three = (
        sensitivity(compare(base, replace(run("tp3", 1e-7, 1, recorded=False), records=draw(drawn))))
        for drawn in (whole, cut)
    )
    assert set(one.group_factors) == GROUPS
    for group, least in one.group_factors.items():
        assert three.group_factors[group].size == pytest.approx(least.size)
        assert three.group_factors[group].check == least.check


SILENT = leg("x")
SHIFTED = leg("x", curve("loss", LOSS, np.arange(1, 21)), curve("grad_norm", NORM, np.arange(1, 21)))
APART = leg("x", curve("loss", LOSS[:9], np.arange(50, 59)), curve("grad_norm", NORM[:9], np.arange(50, 59)))
BROKEN = leg("x", loss=LOSS * np.nan, grad_norm=NORM * np.inf)
BOTH = leg("tp1", loss=LOSS, grad_norm=NORM)
ONLY_LOSS = leg("tp1", loss=LOSS)


@pytest.mark.parametrize(
    ("baseline", "candidate", "gradients", "loss"),
    [
        (ONLY_LOSS, ONLY_LOSS, "loss only: no gradient error would have been seen at the first step", ""),
        (BOTH, ONLY_LOSS, "tp1 does not log grad_norm, and no gradients were recorded", ""),
        (SILENT, SILENT, "neither leg logs grad_norm, and no gradients were recorded", "neither leg logs loss"),
        (BOTH, SILENT, "x does not log grad_norm, and no gradients were recorded", "x does not log loss"),
        (BOTH, SHIFTED, "the legs count their steps from different numbers", "the legs count their steps"),
        (BOTH, APART, "the legs have no step of grad_norm in common", "the legs have no step of loss in common"),
        (BOTH, BROKEN, "grad_norm is finite in both legs at no step", "loss is finite in both legs at no step"),
    ],
)
def test_where_nothing_could_be_caught_there_is_a_reason(
    baseline: Leg, candidate: Leg, gradients: str, loss: str
) -> None:
    comparison = compare(baseline, candidate)
    found = sensitivity(comparison)
    assert found.gradient_factor.size is None
    assert found.gradient_factor.reason.startswith(gradients)
    assert found.loss_offset.reason.startswith(loss)
    assert (found.loss_offset.size is None) == bool(loss)
    assert gradients in describe(found)
    assert all(" " in one and "\n" not in one for one in warnings(comparison))


@st.composite
def odd_legs(draw_: st.DrawFn) -> Leg:
    """What a log may hold: any numbers, at any steps, of any metrics."""
    curves = []
    for metric in draw_(st.sets(st.sampled_from(["loss", "grad_norm"]))):
        values = draw_(st.lists(st.floats() | st.sampled_from([0.0, -0.0, 2.0, 1e308, -1.0]), min_size=1, max_size=8))
        first = draw_(st.integers(0, 3))
        curves.append(curve(metric, values, np.arange(first, first + len(values))))
    return leg("odd", *curves)


@settings(max_examples=200, deadline=None)
@given(st.lists(odd_legs(), min_size=2, max_size=4), st.sampled_from(["fp32-cpu", "bf16"]), st.booleans())
def test_nothing_that_a_log_holds_makes_it_raise(legs: list[Leg], profile: str, perturbed: bool) -> None:
    baseline, candidate, *others = legs
    noise = {"perturbed" if perturbed else "controls": tuple(others)}
    comparison = Comparison(baseline, candidate, PROFILES[profile], **noise)  # type: ignore[arg-type]
    found = sensitivity(comparison)
    for least in (found.gradient_factor, found.loss_offset):
        assert bool(least.reason) == (least.size is None)
        assert least.size is None or (least.size >= 0 and np.isfinite(least.size) and least.check)
    assert describe(found)
    assert all(" " in one and "\n" not in one for one in warnings(comparison))


def test_records_of_one_leg_alone_tell_of_groups_by_the_norm() -> None:
    comparison = compare(run("tp1"), run("tp3", recorded=False))
    found = sensitivity(comparison)
    assert {one.check for one in found.group_factors.values()} == {"grad_norm"}
    lone = compare(replace(leg("tp1", loss=LOSS), records=records(0, 0)), leg("tp3", loss=LOSS))
    reason = sensitivity(lone).gradient_factor.reason
    assert reason == "neither leg logs grad_norm, and only tp1 recorded gradients"


def test_nothing_is_said_of_steps_after_the_evidence_horizon() -> None:
    base = run("tp1", recorded=False)
    loss, norm = (base.curves.curves[metric].values for metric in ("loss", "grad_norm"))
    wild = leg("perturbed", loss=noisy(loss, 1e-2, 5), grad_norm=noisy(norm, 1e-2, 6))
    comparison = Comparison(base, run("tp3", 1e-8, 1, False), PROFILES["fp32-cpu"], perturbed=(wild,))
    # Nothing after the first update is judged, so the verdict is inconclusive whatever the first step would see.
    assert least_of(comparison, "all").step == 0
    assert not green(comparison)


def test_one_line_says_it() -> None:
    found = Sensitivity(
        gradient_factor=Least(4e-4, "grad_norm", 3),
        group_factors={
            "router": Least(reason="not seen"),
            "experts": Least(2.0001e-5, "gradients", 0),
            "other": Least(1e-5, "gradients", 1),
            "mlp": Least(1e-6, "gradients", 1),
        },
        groups_reason="",
        loss_offset=Least(3e-6, "forward", 0),
        loss_relative=5e-7,
    )
    assert describe(found) == (
        "would have caught: all gradients × 1 ± 0.0004 (grad_norm, step 3), gradients of experts × 1 ± 2e-05"
        " (gradients, step 0), gradients of other parameters × 1 ± 1e-05 (gradients, step 1), the loss ± 3e-06 (5e-07"
        " of the first; forward, step 0); would not have caught: a factor of gradients of router (not seen)"
    )


def warned(loss: np.ndarray, profile: Profile = PROFILES["fp32-cpu"], control: Leg | None = None) -> tuple[str, ...]:
    return warnings(compare(leg("tp1", loss=LOSS), leg("tp3", loss=loss), control, profile=profile))


def test_a_bound_far_wider_than_what_was_observed_is_told_with_one_that_is_not() -> None:
    profile = with_bounds(PROFILES["fp32-cpu"], "loss", rtol=1e-2)
    loss = LOSS.copy()
    loss[5] *= 1 + 1e-6
    # The worst step is looked for in units of what is allowed: at the first the legs are equal.
    assert warned(loss, profile) == (
        "the bound of loss, 0.01 relative at its worst step 5, is 10,000 times the 1e-06 observed there: rtol of"
        " 1e-05 would be 10 times what was observed",
    )
    (text,) = warned(LOSS, profile=with_bounds(profile, "loss", first_rtol=1e-3, atol=1e-3))
    assert (
        "is far beyond the 0 observed there: first_rtol (and no atol) of 2.38e-06 would be 10 times the least" in text
    )
    loss[5] = LOSS[5] * (1 + 2e-3)
    assert warned(loss, profile) == ()


def test_a_bound_that_noise_was_measured_for_is_not_called_wide() -> None:
    loss = noisy(LOSS, 1e-7, 1)
    assert len(warned(loss)) == 1
    assert warned(loss, control=leg("tp4", loss=noisy(LOSS, 1e-7, 2))) == ()
    perturbed = leg("perturbed", loss=noisy(LOSS, 1e-7, 3))
    assert warnings(replace(compare(leg("tp1", loss=LOSS), leg("tp3", loss=loss)), perturbed=(perturbed,))) == ()


def test_a_bound_finer_than_the_log_prints_is_told() -> None:
    printed = curve("loss", np.round(LOSS, 3), resolution=Resolution(decimals=3, significant=4))
    (text,) = warnings(compare(leg("tp1", printed), leg("tp3", printed)))
    assert text == (
        "the log prints loss in steps of 0.001 at 6, coarser than the 6e-06 allowed at step 0 (too fine at 20 steps):"
        " log full precision, or give a bound of at least 0.000198 relative"
    )


def test_a_bound_finer_than_the_dtype_is_told() -> None:
    loss = np.full(20, 10.9375) - np.arange(20) * 0.0625
    profile = with_bounds(PROFILES["bf16"], "loss", first_rtol=1e-3, rtol=1e-3)
    (text,) = warnings(compare(leg("tp1", loss=loss), leg("tp3", loss=loss), profile=profile))
    assert text.startswith("the neighbours of a loss in bfloat16 are apart by 0.0625 at")
    assert "train in fp32, or give a bound of at least" in text
    tight = with_bounds(PROFILES["fp32-cpu"], "loss", first_rtol=1e-8, rtol=1e-8)
    (text,) = warned(LOSS, tight)
    assert text.startswith("fp32-cpu resolves loss in steps of 4.77e-07 at")
    # A bound of exactly 0 asks for the same numbers, which any dtype can give.
    equal = with_bounds(PROFILES["fp32-cpu"], "loss", first_rtol=0.0, rtol=0.0)
    assert not any("resolves" in text for text in warned(LOSS, equal))


def test_a_log_of_full_precision_in_bf16_may_be_held_to_the_profile() -> None:
    assert not any("resolves" in text for text in warned(noisy(LOSS, 3e-4, 1), PROFILES["bf16"]))
