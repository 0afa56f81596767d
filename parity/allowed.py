"""Which profile holds for a comparison, and with which bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from parity.checks.profiles import PROFILES, Profile, with_bounds
from parity.suite import Bounds, BoundsByMetric

__all__ = ["choose_profile"]


def choose_profile(
    asked: str | None,
    environments: Sequence[Mapping[str, object]],
    granted: str = "cpu",
    bounds: Sequence[BoundsByMetric | None] = (),
) -> tuple[Profile, str]:
    """The profile with a person's bounds, and why that one.

    Args:
        asked: what a person said, if anything but `auto`.
        environments: what the legs recorded of dtype and device, the baseline first.
        granted: `cpu` or `cuda`, for legs that did not record their device.
        bounds: a person's; of several, the later win number by number.
    """
    name, reason = _by_environment(environments, granted)
    profile = PROFILES[name]
    if asked and asked != "auto":
        coarser = PROFILES[asked].epsilon > profile.epsilon and not reason.startswith("assumed")
        profile, reason = replace(PROFILES[asked], only_widens=coarser), ""
    for metric in BoundsByMetric.model_fields:
        given: dict[str, Any] = {}
        for by_metric in bounds:
            one: Bounds | None = getattr(by_metric, metric, None)
            given |= one.model_dump(exclude_none=True) if one is not None else {}
        if given:
            profile = with_bounds(profile, metric, **given)
    return profile, reason


def _by_environment(environments: Sequence[Mapping[str, object]], granted: str) -> tuple[str, str]:
    dtype = next((env["dtype"] for env in environments if env.get("dtype") in ("fp32", "fp64", "bf16")), None)
    device = next((str(env["device"]) for env in environments if env.get("device")), granted)
    kind = "cpu" if device.startswith("cpu") else "gpu"
    if dtype is None:
        return f"fp32-{kind}", "assumed, for nothing says in which dtype the legs ran"
    name = "bf16" if dtype == "bf16" else f"fp32-{kind}"
    return name, f"from dtype {dtype} on {kind.upper()}"
