"""What is tried: every fault under every layout that it applies to, and correct layouts over several seeds."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from parity.layout import Layout
from parity.train.faults import FAULTS, Fault

__all__ = ["CLEAN", "Case", "clean_suite", "fault_cases", "fault_suite", "label"]

_MICRO_BATCHES = {"micro_batch": 2, "accumulate": 2}
_QWEN: Mapping[str, Any] = {"embedded": "qwen3", "tie_embeddings": True, "bias": True, **_MICRO_BATCHES}
_DEEPSEEK: Mapping[str, Any] = {"embedded": "deepseek_v4", "layers": 3, "heads": 8, "kv_heads": 1, **_MICRO_BATCHES}

CLEAN: Mapping[str, tuple[Mapping[str, Any], tuple[Layout, ...]]] = {
    "qwen3": (
        _QWEN,
        (
            Layout(tp=2),
            Layout(tp=3),
            Layout(dp=2),
            Layout(fsdp=2),
            Layout(pp=2),
            Layout(cp=2),
            Layout(dp=2, tp=2),
            Layout(tp=2, pp=2),
            Layout(dp=2, pp=2),
        ),
    ),
    "deepseek_v4": (
        _DEEPSEEK,
        (
            Layout(dp=2),
            Layout(fsdp=2),
            Layout(pp=2),
            Layout(cp=2),
            Layout(fsdp=2, ep=2),
            Layout(dp=2, ep=2),
            Layout(dp=2, pp=2, ep=2),
        ),
    ),
}
"""By model: its options, and the correct layouts of every axis, of at most four ranks."""


@dataclass(frozen=True)
class Case:
    """A fault under a layout.

    Attributes:
        fault, layout: which.
    """

    fault: Fault
    layout: Layout

    @property
    def name(self) -> str:
        """Of the candidate's leg."""
        return f"{self.fault.name}.{label(self.layout)}"


def label(layout: Layout) -> str:
    """A layout in a leg's name: `tp2-pp2`, or `plain`."""
    return "-".join(f"{axis}{size}" for axis, size in layout.sizes().items() if size > 1) or "plain"


def fault_cases(quick: bool = False, names: Iterable[str] = ()) -> tuple[Case, ...]:
    """The cases in the order of the classes.

    Args:
        quick: one fault of each class, under the layout with the fewest ranks.
        names: only these faults; all if there are none.
    """
    wanted = set(names)
    faults = [fault for fault in FAULTS.values() if not wanted or fault.name in wanted]
    faults.sort(key=lambda fault: (fault.mutation[0] == "C", int(fault.mutation[1:])))
    if not quick:
        return tuple(Case(fault, layout) for fault in faults for layout in fault.layouts)
    first: dict[str, Fault] = {}
    for fault in faults:
        first.setdefault(fault.mutation, fault)
    return tuple(Case(fault, min(fault.layouts, key=lambda layout: layout.world_size)) for fault in first.values())


def fault_suite(cases: Iterable[Case], *, steps: int, seed: int, dtype: str) -> dict[str, Any]:
    """The content of a suite that compares each case with its baseline, and with that baseline perturbed."""
    legs: dict[str, Any] = {}
    compare: list[dict[str, Any]] = []
    baselines: dict[str, str] = {}
    for case in cases:
        fault = case.fault
        options = _options(fault.overrides(case.layout), dtype)
        plain = fault.baseline(case.layout)
        own = {**options, **({"fault": fault.name} if fault.both else {})}
        baseline = {"layout": _sizes(plain), "trainer": own}
        key = json.dumps(baseline, sort_keys=True)
        if key not in baselines:
            baselines[key] = f"base-{len(baselines) + 1}"
            legs[baselines[key]] = baseline
        legs[case.name] = {"layout": _sizes(case.layout), "trainer": {**options, "fault": fault.name}}
        item: dict[str, Any] = {"baseline": baselines[key], "candidate": case.name}
        if fault.profile != "auto":
            item["profile"] = fault.profile
        compare.append(item)
    return _suite("faults", legs, compare, steps, seed)


def clean_suite(*, steps: int, seed: int, dtype: str) -> dict[str, Any]:
    """The content of a suite that compares every correct layout with one rank, or with its ranks without `ep`."""
    legs: dict[str, Any] = {}
    compare = []
    for model, (options, layouts) in CLEAN.items():
        for layout in layouts:
            plain = Layout(**{**layout.sizes(), "ep": 1}) if layout.ep > 1 else Layout()
            for one in (plain, layout):
                legs.setdefault(
                    f"{model}.{label(one)}", {"layout": _sizes(one), "trainer": {**options, "dtype": dtype}}
                )
            compare.append({"baseline": f"{model}.{label(plain)}", "candidate": f"{model}.{label(layout)}"})
    return _suite("correct layouts", legs, compare, steps, seed)


def _options(overrides: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    options = dict(overrides)
    model = options.pop("model", "qwen3")
    return {"embedded": model, "dtype": dtype, **options}


def _sizes(layout: Layout) -> dict[str, int]:
    return {axis: size for axis, size in layout.sizes().items() if size > 1}


def _suite(name: str, legs: dict[str, Any], compare: list[dict[str, Any]], steps: int, seed: int) -> dict[str, Any]:
    return {
        "name": name,
        "steps": steps,
        "seed": seed,
        "device": "cpu",
        "floor": "perturbed",
        "legs": legs,
        "compare": compare,
    }
