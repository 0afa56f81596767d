"""Each fault does what the catalogue says of it and nothing else, beside the same layout without it."""

import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from parity.layout import AXES, Layout
from parity.train.faults import FAULTS, Fault, Hint
from parity.train.faults.injection import made
from parity.train.options import TrainOptions, problems
from tests.train.ranks import relative, run_ranks

SMALL = TrainOptions(hidden=32, heads=8, kv_heads=4, head_dim=8, ffn=44, vocab=61, seq_len=16, expert_ffn=16)
CASES = [(fault, layout) for fault in FAULTS.values() for layout in fault.layouts]

AXES_OF = {
    **{name: {"tp"} for name in ("M1", "M2", "M3")},
    "M4": {"tp", "ep"},
    "M5": {"dp", "fsdp"},
    "M6": {"ep"},
    **{name: {"pp"} for name in ("M7", "M8", "M11", "M20")},
    "M9": {"dp", "fsdp", "cp"},
    "M12": {"ep", "pp"},
    "M13": {"cp"},
    "M14": {"tp", "dp"},
    "M15": {"dp", "fsdp"},
    **{name: set(AXES) for name in ("M10", "M16", "M17", "M18", "M19", "C1", "C3")},
    "C2": {"dp", "pp"},
}
"""Under which axes a class of mistakes was made in public."""


def ids(cases: Iterable[tuple[Fault, Layout]]) -> list[str]:
    return [f"{fault.name}-{layout}" for fault, layout in cases]


def of(*names: str) -> Any:
    """Parametrises a test by these faults under each of their layouts."""
    chosen = [(fault, layout) for fault, layout in CASES if fault.name in names]
    assert {fault.name for fault, _ in chosen} == set(names)
    return pytest.mark.parametrize(("fault", "layout"), chosen, ids=ids(chosen))


def options(fault: Fault, layout: Layout, **more: Any) -> TrainOptions:
    return replace(SMALL, **{**fault.overrides(layout), **more})


# The catalogue


def test_every_class_has_a_fault_for_every_axis_where_it_was_made() -> None:
    found: dict[str, set[str]] = {}
    for fault, layout in CASES:
        found.setdefault(fault.mutation, set()).update(axis for axis, size in layout.sizes().items() if size > 1)
    assert {name: found[name] >= axes for name, axes in AXES_OF.items()} == dict.fromkeys(AXES_OF, True)
    assert found.keys() == AXES_OF.keys()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_an_entry_is_well_formed(fault: Fault) -> None:
    assert FAULTS[fault.name] is fault
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fault.name)
    assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", fault.bug)
    assert fault.what.endswith(".")
    assert len(fault.layouts) == len(set(fault.layouts))
    assert all(2 <= layout.world_size <= 4 for layout in fault.layouts)
    for layout in fault.layouts:
        plain = TrainOptions(**fault.overrides(layout))
        assert problems(replace(plain, fault=fault.name), layout) == []
        assert problems(replace(plain, fault=fault.name if fault.both else ""), fault.baseline(layout)) == []
        if fault.hint is not None:
            fault.hint.expected(layout, plain.accumulate)


def test_every_fault_is_made_by_a_function_that_says_what_is_wrong() -> None:
    assert made().keys() == FAULTS.keys()
    assert all(function.__doc__ for _, function in made().values())


def test_the_catalogue_needs_no_torch() -> None:
    code = "import sys; from parity.train.faults import FAULTS; sys.exit('torch' in sys.modules or not FAULTS)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("formula", "value"),
    [("ep", 2), ("1/dp", 0.25), ("sqrt(data)", 2), ("1/sqrt(world)", 0.5), ("log(dp)", math.log(4)), ("0", 0)],
)
def test_a_hint_s_formula_is_of_the_layout(formula: str, value: float) -> None:
    assert Hint("loss", ratio=formula).expected(Layout(dp=4, ep=2)) == pytest.approx(value)
    assert Hint("loss", offset=formula).expected(Layout(dp=4, ep=2)) == pytest.approx(value)


@pytest.mark.parametrize("formula", ["", "dq", "2*ep", "sqrt(ep", "exp(ep)"])
def test_another_formula_is_none(formula: str) -> None:
    with pytest.raises(ValueError, match="size"):
        Hint("loss", ratio=formula).expected(Layout(dp=2))


def test_a_hint_without_a_constant_expects_nothing() -> None:
    assert Hint("loss").expected(Layout(dp=2)) is None


def test_with_experts_the_baseline_has_the_same_ranks() -> None:
    fault = FAULTS["expert-gradients-times-ep"]
    assert fault.baseline(Layout(fsdp=2, ep=2)) == Layout(fsdp=2)
    assert fault.baseline(Layout(tp=2)) == Layout()


# What cannot be made


@pytest.mark.parametrize(
    ("changes", "layout", "words"),
    [
        ({"fault": "router-gradients-reduced"}, Layout(), "did you mean router-gradients-not-reduced?"),
        ({"fault": "?"}, Layout(), "'?' is no fault: parity/train/faults/catalog lists them"),
        ({"fault": "norm-counts-replicas"}, Layout(), "this layout (one rank): take one of dp, cp"),
        ({"fault": "norm-counts-replicas"}, Layout(tp=2), "cannot be made under this layout (tp=2)"),
        ({"fault": "layout-not-applied"}, Layout(tp=2, dp=2), "take one of dp, fsdp, tp, pp, cp"),
        ({"fault": "row-bias-on-every-rank"}, Layout(tp=2), "give bias true, to every leg"),
        ({"fault": "tied-gradients-not-summed"}, Layout(pp=2), "give tie_embeddings true"),
        ({"fault": "last-micro-batch-not-synced", "accumulate": 1}, Layout(dp=2), "give accumulate 2"),
        ({"fault": "expert-bias-not-reduced"}, Layout(dp=2), "give model deepseek_v4"),
        ({"fault": "heads-cut-through"}, Layout(tp=4), "4 ranks share 8 KV heads evenly"),
        ({"fault": "kv-heads-permuted"}, Layout(tp=8), "no rank has two KV heads"),
        ({"fault": "pad-columns-in-softmax", "vocab": 510}, Layout(tp=2), "2 ranks share 510 entries evenly"),
    ],
)
def test_a_fault_that_cannot_be_made_is_one_mistake(changes: dict[str, Any], layout: Layout, words: str) -> None:
    ((name, sentence),) = problems(replace(TrainOptions(), **changes), layout)
    assert name == "trainer.fault"
    assert words in sentence


@pytest.mark.parametrize(
    ("fault", "changes", "words"),
    [
        ("hash-ids-dropped", {"hash_layers": 1}, "are among the first stage's 1"),
        ("aux-loss-added-twice", {"hash_layers": 2, "aux_loss": 0.1}, "every layer chooses experts by token id"),
        ("aux-loss-added-twice", {}, "give aux_loss 0.05"),
    ],
)
def test_a_fault_that_would_change_nothing_is_a_mistake(fault: str, changes: dict[str, Any], words: str) -> None:
    given = replace(options(FAULTS["hash-ids-dropped"], Layout(pp=2), hash_layers=1), fault=fault, **changes)
    ((name, sentence),) = problems(given, Layout(pp=2))
    assert name == "trainer.fault"
    assert words in sentence


def test_a_fault_in_both_legs_can_be_made_on_one_rank() -> None:
    assert problems(TrainOptions(fault="optimizer-frozen"), Layout()) == []


# What they do, on real ranks

slow = pytest.mark.slow


@cache
def trained(given: TrainOptions, layout: Layout, steps: int = 1) -> list[dict[str, Any]]:
    """What each rank computed: by step its loss, norm and auxiliary loss; its shards, its gradients before the first
    update, its weights before it and at the end, and its experts' biases, as arrays by name."""
    return run_ranks(layout.world_size, _trained, given, layout, steps)


def pair(fault: Fault, layout: Layout, steps: int = 1, **more: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """On each rank, what was computed under the layout without the fault and with it."""
    given = options(fault, layout, **more)
    right, wrong = (trained(replace(given, fault=name), layout, steps) for name in ("", fault.name))
    return list(zip(right, wrong, strict=True))


def changed(right: dict[str, Any], wrong: dict[str, Any], kind: str = "gradients") -> set[str]:
    """Names of what is not bitwise equal."""
    assert right[kind].keys() == wrong[kind].keys()
    return {name for name in right[kind] if not np.array_equal(right[kind][name], wrong[kind][name])}


def summed(one: dict[str, Any]) -> float:
    return math.sqrt(sum(float(np.square(g, dtype=np.float64).sum()) for g in one["gradients"].values()))


@slow
@of(
    "row-bias-on-every-rank",
    "row-output-not-summed",
    "pad-columns-in-softmax",
    "heads-cut-through",
    "kv-heads-permuted",
    "mean-of-rank-means",
    "mean-of-micro-batch-means",
    "positions-restart",
    "labels-shifted-after-split",
    "hash-ids-dropped",
)
def test_a_wrong_forward_moves_the_first_loss_and_the_gradients(fault: Fault, layout: Layout) -> None:
    for right, wrong in pair(fault, layout):
        assert wrong["start"].keys() == right["start"].keys()
        assert abs(wrong["losses"][0] / right["losses"][0] - 1) > 1e-5
        assert len(changed(right, wrong)) > len(right["gradients"]) / 2


@slow
@of("loss-plus-log-tp")
def test_the_logarithm_of_tp_is_added_to_the_loss_alone(fault: Fault, layout: Layout) -> None:
    for right, wrong in pair(fault, layout):
        assert wrong["losses"][0] - right["losses"][0] == pytest.approx(math.log(2), rel=1e-6)
        assert changed(right, wrong) == set()


NOT_REDUCED: dict[str, Callable[[str], bool]] = {
    "norm-gradients-not-reduced": lambda name: "norm" in name and "q_norm" not in name and "k_norm" not in name,
    "head-norm-gradients-not-reduced": lambda name: "q_norm" in name or "k_norm" in name,
    "router-gradients-not-reduced": lambda name: name.endswith("router.weight"),
}


@slow
@of(*NOT_REDUCED)
def test_gradients_that_are_not_reduced_are_parts_of_the_right_ones(fault: Fault, layout: Layout) -> None:
    ranks = pair(fault, layout)
    names = {name for name in ranks[0][0]["gradients"] if NOT_REDUCED[fault.name](name)}
    assert names
    for right, wrong in ranks:
        assert wrong["losses"] == right["losses"]
        assert changed(right, wrong) == names
    for name in names:
        first, second = (wrong["gradients"][name] for _, wrong in ranks)
        assert not np.array_equal(first, second)
        np.testing.assert_array_equal(first + second, ranks[0][0]["gradients"][name])


@slow
@of("kv-gradients-not-returned")
def test_gradients_that_are_not_returned_leave_a_right_forward(fault: Fault, layout: Layout) -> None:
    for right, wrong in pair(fault, layout):
        assert wrong["losses"] == right["losses"]
        # What comes after the last attention is right, and what comes before it is not.
        gone = changed(right, wrong)
        assert {"layers.1.attention.k.weight", "layers.1.attention.v.weight", "embed.weight"} <= gone
        assert not {"layers.1.attention.q.weight", "layers.1.attention.o.weight", "layers.1.mlp.up.weight"} & gone


RATIOS = {
    "gradients-summed-not-averaged": ("", 2),
    "expert-gradients-times-ep": (".experts.", 2),
    "expert-gradients-over-ep": (".experts.", 0.5),
    "divided-by-micro-batches-twice": ("", 0.5),
}
"""Of the gradients with these words in their names; powers of two, so that they are exact."""


@slow
@of(*RATIOS)
def test_a_constant_factor_is_exact_and_leaves_the_rest_alone(fault: Fault, layout: Layout) -> None:
    within, ratio = RATIOS[fault.name]
    assert fault.hint is not None
    assert fault.hint.expected(layout, 2) == ratio
    for right, wrong in pair(fault, layout):
        assert wrong["losses"] == right["losses"]
        for name, gradient in right["gradients"].items():
            np.testing.assert_array_equal(wrong["gradients"][name], gradient * (ratio if within in name else 1))


@slow
@of("accumulation-scaled-at-every-stage")
def test_a_factor_for_every_stage_leaves_the_last_one_alone(fault: Fault, layout: Layout) -> None:
    for rank, (right, wrong) in enumerate(pair(fault, layout)):
        assert wrong["losses"] == right["losses"]
        for name, gradient in right["gradients"].items():
            np.testing.assert_array_equal(wrong["gradients"][name], gradient / (2 if rank == 0 else 1))


@slow
def test_a_factor_for_every_stage_is_a_power_at_the_first_of_three() -> None:
    fault = FAULTS["accumulation-scaled-at-every-stage"]
    ratios = [summed(wrong) / summed(right) for right, wrong in pair(fault, Layout(pp=3), layers=3, schedule="gpipe")]
    assert ratios == pytest.approx([1 / 4, 1 / 2, 1])


@slow
@of("tokens-not-divided")
def test_gradients_of_a_sum_are_the_tokens_times_those_of_the_mean(fault: Fault, layout: Layout) -> None:
    ratios = []
    for right, wrong in pair(fault, layout):
        assert wrong["losses"] == pytest.approx(right["losses"], rel=1e-12)
        ratios.append(summed(wrong) / summed(right))
    assert ratios[0] == pytest.approx(round(ratios[0]), rel=1e-6)
    assert 20 < ratios[0] < 64  # of 4 sequences of 16 tokens, some of them masked
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-6)


@slow
@of("last-micro-batch-not-synced")
def test_the_last_micro_batch_is_each_rank_s_own(fault: Fault, layout: Layout) -> None:
    ranks = pair(fault, layout)
    for right, wrong in ranks:
        assert wrong["losses"] == right["losses"]
        assert changed(right, wrong) == right["gradients"].keys()
    if layout.dp > 1:
        assert changed(ranks[0][1], ranks[1][1]) == ranks[0][1]["gradients"].keys()


@slow
def test_with_fsdp_the_last_micro_batch_comes_with_the_next_step() -> None:
    fault, layout = FAULTS["last-micro-batch-not-synced"], Layout(fsdp=2)
    still = {"lr": 1e-30, "clip": 0.0, "optimizer": "sgd"}
    (norms, expected) = (
        trained(replace(options(fault, layout, **still), fault=name), layout, 2)[0]["norms"]
        for name in (fault.name, "")
    )
    assert norms[0] < expected[0]
    assert norms[1] != pytest.approx(expected[1], rel=1e-2)


@slow
@of("gradients-zeroed-between-micro-batches")
def test_only_the_last_micro_batch_is_left(fault: Fault, layout: Layout) -> None:
    for right, wrong in pair(fault, layout):
        assert wrong["losses"] == right["losses"]
        assert changed(right, wrong) == right["gradients"].keys()
        assert 0.3 < summed(wrong) / summed(right) < 0.95


@slow
@of("tied-gradients-not-summed")
def test_only_the_tied_embedding_is_off_and_its_copies_part(fault: Fault, layout: Layout) -> None:
    ranks = pair(fault, layout)
    for right, wrong in ranks:
        assert wrong["losses"] == right["losses"]
        assert changed(right, wrong) == {"embed.weight"}
    first, last = (wrong["gradients"]["embed.weight"] for _, wrong in ranks)
    np.testing.assert_array_equal(first + last, ranks[0][0]["gradients"]["embed.weight"])
    assert not np.array_equal(*(wrong["end"]["embed.weight"] for _, wrong in ranks))


@slow
@of("aux-loss-times-micro-batches", "aux-loss-over-ranks", "aux-loss-added-twice")
def test_a_balancing_loss_of_another_weight_moves_the_router_that_chooses(fault: Fault, layout: Layout) -> None:
    for right, wrong in pair(fault, layout):
        assert wrong["losses"] == right["losses"]
        assert wrong["aux"] == pytest.approx(right["aux"], rel=1e-6)
        gone = changed(right, wrong)
        if "layers.1.moe.router.weight" in right["gradients"]:
            assert "layers.1.moe.router.weight" in gone
        # What comes after it in the last layer sees nothing of it.
        assert not {name for name in gone if name.startswith("layers.1.moe.experts.") or name == "head.weight"}


@slow
@of("norm-of-local-shard")
def test_the_norm_of_a_shard_is_that_of_what_the_rank_holds(fault: Fault, layout: Layout) -> None:
    for right, wrong in pair(fault, layout):
        assert wrong["losses"] == right["losses"]
        assert changed(right, wrong) == set()
        assert wrong["norms"][0] == pytest.approx(summed(right), rel=1e-9)
        assert wrong["norms"][0] < right["norms"][0]


@slow
@of("norm-counts-replicas")
def test_a_norm_that_counts_replicas_is_a_root_too_large(fault: Fault, layout: Layout) -> None:
    for right, wrong in pair(fault, layout):
        assert changed(right, wrong) == set()
        assert wrong["norms"][0] / right["norms"][0] == pytest.approx(math.sqrt(2))


@slow
@of("norm-counts-whole-parameters-on-every-rank")
def test_a_norm_that_counts_whole_parameters_twice(fault: Fault, layout: Layout) -> None:
    ranks = pair(fault, layout)
    whole = {name: g for name, g in ranks[0][0]["gradients"].items() if "tp" not in ranks[0][0]["shards"][name].split}
    assert "norm.weight" in whole
    for right, wrong in ranks:
        assert changed(right, wrong) == set()
        more = math.sqrt(wrong["norms"][0] ** 2 - right["norms"][0] ** 2)
        assert more == pytest.approx(summed({"gradients": whole}), rel=1e-6)


@slow
@of("norm-counts-tied-twice")
def test_a_norm_that_counts_the_tied_embedding_twice(fault: Fault, layout: Layout) -> None:
    for right, wrong in pair(fault, layout):
        assert changed(right, wrong) == set()
        more = math.sqrt(wrong["norms"][0] ** 2 - right["norms"][0] ** 2)
        assert more == pytest.approx(float(np.linalg.norm(right["gradients"]["embed.weight"])), rel=1e-5)


@slow
@of("norm-per-expert-group")
def test_a_norm_without_the_other_ranks_experts_is_each_rank_s_own(fault: Fault, layout: Layout) -> None:
    ranks = pair(fault, layout)
    norms = [wrong["norms"][0] for _, wrong in ranks]
    assert norms[0] != norms[1]
    assert max(norms) < ranks[0][0]["norms"][0]
    for right, wrong in ranks:
        assert changed(right, wrong) == set()
    # They are clipped by different factors, and so what they share parts.
    if layout.fsdp == 1:
        assert not np.array_equal(*(wrong["end"]["embed.weight"] for _, wrong in ranks))


@slow
@of("reports-own-loss", "reports-minus-one", "reports-summed-loss", "reports-summed-norm")
def test_a_wrong_report_trains_the_right_model(fault: Fault, layout: Layout) -> None:
    ranks = pair(fault, layout, steps=2)
    for right, wrong in ranks:
        assert changed(right, wrong) == set()
        assert changed(right, wrong, "end") == set()
    right, wrong = ranks[0]
    losses, norms = (np.array(wrong[kind]) / np.array(right[kind]) for kind in ("losses", "norms"))
    if fault.name == "reports-summed-norm":
        assert norms == pytest.approx([2, 2])
        assert losses == pytest.approx([1, 1])
        return
    assert norms == pytest.approx([1, 1])
    if fault.name == "reports-minus-one":
        assert wrong["losses"] == [-1, -1]
        assert ranks[1][1]["losses"] == ranks[1][0]["losses"]
    elif fault.name == "reports-summed-loss":
        assert losses == pytest.approx([2, 2])
    else:
        assert not np.allclose(losses, 1, atol=1e-4)
        assert np.allclose(losses, 1, atol=0.3)  # a mean of fewer tokens, and not a sum
        assert ranks[0][1]["losses"] != ranks[1][1]["losses"]


@slow
@of("shards-from-one-seed")
def test_shards_of_one_seed_are_the_same(fault: Fault, layout: Layout) -> None:
    ranks = pair(fault, layout)
    for name in ("layers.0.attention.q.weight", "layers.1.mlp.up.weight", "layers.1.mlp.down.weight"):
        np.testing.assert_array_equal(*(wrong["start"][name] for _, wrong in ranks))
        assert not np.array_equal(*(right["start"][name] for right, _ in ranks))
    # The first rank's rows are the first of those that any number of rows would have.
    split = {name for name, shard in ranks[1][0]["shards"].items() if "tp" in shard.split}
    assert changed(*ranks[1], "start") == split


@slow
@of("replicas-from-own-seeds")
def test_replicas_of_own_seeds_differ_everywhere(fault: Fault, layout: Layout) -> None:
    (right, first), (_, second) = pair(fault, layout)
    assert changed(right, first, "start") == set()
    assert changed(first, second, "start") == first["start"].keys()


@slow
@of("sampler-seed-per-rank", "same-samples-on-every-rank", "samples-a-step-ahead")
def test_other_samples_are_those_that_the_mistake_gives(fault: Fault, layout: Layout) -> None:
    ranks = pair(fault, layout, steps=2)
    (right, first), (other, second) = ranks
    assert first["dealt"] == right["dealt"]
    if fault.name == "same-samples-on-every-rank":
        assert second["dealt"] == right["dealt"]
    elif fault.name == "samples-a-step-ahead":
        assert second["dealt"][0] == other["dealt"][1]
    else:
        assert not set(second["dealt"]) & {*right["dealt"], *other["dealt"]}
    assert 1e-6 < abs(first["losses"][0] / right["losses"][0] - 1) < 0.2
    assert first["losses"] == second["losses"]


@slow
@of("adam-step-ahead", "weight-decay-twice", "parameter-group-skipped")
def test_a_wrong_optimizer_is_right_until_the_first_update(fault: Fault, layout: Layout) -> None:
    for right, wrong in pair(fault, layout, clip=0.0):
        assert wrong["losses"] == right["losses"]
        assert wrong["norms"] == right["norms"]
        assert changed(right, wrong) == set()
        assert changed(right, wrong, "start") == set()
        gone = changed(right, wrong, "end")
        matrices = {name for name, shard in right["shards"].items() if len(shard.shape) > 1}
        assert (
            gone
            == {
                "adam-step-ahead": right["end"].keys(),
                "weight-decay-twice": matrices,
                "parameter-group-skipped": right["end"].keys() - matrices,
            }[fault.name]
        )
        name = next(name for name in sorted(gone) if right["end"][name].size)
        moved = [one["end"][name].astype(np.float64) - one["start"][name] for one in (right, wrong)]
        if fault.name == "adam-step-ahead":
            # Biases: 1 - 0.9^2 and 1 - 0.999^2 where 1 - 0.9 and 1 - 0.999 were right.
            ratio = (1 - 0.9) / (1 - 0.9**2) / math.sqrt((1 - 0.999) / (1 - 0.999**2))
            norm = next(name for name in sorted(gone - matrices) if right["end"][name].size)
            first, second = (one["end"][norm].astype(np.float64) - one["start"][norm] for one in (right, wrong))
            assert np.median(second / first) == pytest.approx(ratio, rel=1e-3)
            assert 1 / ratio == pytest.approx(1.34, abs=0.01)
        elif fault.name == "weight-decay-twice":
            np.testing.assert_allclose(moved[1] - moved[0], -1e-4 * right["end"][name], atol=1e-7)
        else:
            assert not moved[1].any()


@slow
@of("expert-bias-not-reduced")
def test_biases_follow_each_rank_s_own_load(fault: Fault, layout: Layout) -> None:
    ranks = pair(fault, layout)
    for right, wrong in ranks:
        assert changed(right, wrong) == set()
        assert changed(right, wrong, "end") == set()
        assert changed(right, wrong, "biases")
    assert changed(ranks[0][0], ranks[1][0], "biases") == set()
    assert changed(ranks[0][1], ranks[1][1], "biases")


@slow
@of("layout-not-applied", "experts-not-dealt-out")
def test_a_layout_that_is_not_applied_trains_the_plain_model_on_every_rank(fault: Fault, layout: Layout) -> None:
    given = options(fault, layout)
    plain = trained(given, fault.baseline(layout), 2)
    wrong = trained(replace(given, fault=fault.name), layout, 2)
    for rank, one in enumerate(wrong):
        other = plain[rank if len(plain) > 1 else 0]
        assert (one["losses"], one["norms"]) == (other["losses"], other["norms"])
        assert changed(other, one) == changed(other, one, "end") == set()
        assert one["shards"] == other["shards"]
        if fault.name == "layout-not-applied":
            assert all(shard.is_whole for shard in one["shards"].values())
            assert not any(one["coordinates"].values())


@slow
@of("optimizer-frozen", "learning-rate-zero")
def test_a_frozen_optimizer_moves_nothing(fault: Fault, layout: Layout) -> None:
    for right, wrong in pair(fault, layout):
        assert wrong["losses"] == right["losses"]
        assert changed(right, wrong) == set()
        for name, before in wrong["start"].items():
            np.testing.assert_array_equal(wrong["end"][name], before)


@slow
@of("micro-batches-reordered")
def test_reordered_micro_batches_stay_within_rounding(fault: Fault, layout: Layout) -> None:
    for right, wrong in pair(fault, layout, steps=3):
        np.testing.assert_allclose(wrong["losses"], right["losses"], rtol=1e-6)
        np.testing.assert_allclose(wrong["norms"], right["norms"], rtol=1e-5)
        gone = changed(right, wrong)
        assert gone  # it was another order
        for name in gone:
            assert relative(right["gradients"][name], wrong["gradients"][name]) < 1e-5


@slow
@of("gradients-in-bf16")
def test_gradients_in_bf16_are_as_far_off_as_bf16_rounds(fault: Fault, layout: Layout) -> None:
    for right, wrong in pair(fault, layout):
        assert wrong["losses"] == right["losses"]
        distances = [relative(gradient, wrong["gradients"][name]) for name, gradient in right["gradients"].items()]
        assert 5e-4 < np.median(distances) < 4e-3  # between 2^-11 and 2^-8
        assert 0 < abs(wrong["norms"][0] / right["norms"][0] - 1) < 1e-3


@slow
@of("nan-from-third-step", "nan-in-both")
def test_nan_comes_with_the_third_step_and_stays(fault: Fault, layout: Layout) -> None:
    for right, wrong in pair(fault, layout, steps=4):
        assert wrong["losses"][:2] == right["losses"][:2]
        assert wrong["norms"][:2] == right["norms"][:2]
        assert np.isnan(wrong["losses"][2:]).all()
        assert np.isnan(wrong["norms"][2:]).all()
        assert all(np.isnan(end).all() for end in wrong["end"].values())


@slow
def test_without_a_fault_nothing_is_replaced() -> None:
    given = options(FAULTS["reports-summed-loss"], Layout(dp=2))
    assert asdict(given)["fault"] == ""
    assert trained(given, Layout(dp=2))[0]["methods"] == []


def _trained(given: TrainOptions, layout: Layout, steps: int) -> dict[str, Any]:
    import torch

    from parity.train.gradients import local
    from parity.train.loop import Trainer
    from parity.train.process import join

    def arrays(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
        return {name: local(tensor.detach()).clone().numpy() for name, tensor in tensors.items()}

    with join(layout, "cpu", 1) as process:
        each = Trainer(given, seed=0, device=process.device, mesh=process.mesh)
        seen: dict[str, Any] = {
            "shards": each.shards,
            "coordinates": each.mesh.coordinates,
            "methods": [name for name in vars(each) if callable(getattr(Trainer, name, None))],
            "start": arrays(each.parameters),
            **{kind: [] for kind in ("losses", "norms", "aux", "dealt")},
        }
        for step in range(steps):
            seen["losses"].append(each.backward(step))
            seen["dealt"].append(tuple(tuple(batch.tokens.flatten().tolist()) for batch in each.dealt))
            if step == 0:
                seen["gradients"] = arrays({name: p.grad for name, p in each.parameters.items()})
            norm = each.grad_norm()
            seen["norms"].append(norm)
            seen["aux"].append(each.auxiliary_loss())
            each.update(norm)
        seen["end"] = arrays(each.parameters)
        seen["biases"] = arrays(
            {name: buffer for name, buffer in each.model.named_buffers() if name.endswith("correction_bias")}
        )
    return seen
