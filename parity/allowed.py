"""Which profile holds for a comparison, and with which bounds."""

from parity.checks.profiles import PROFILES, Profile, with_bounds
from parity.suite import Bounds, BoundsByMetric

__all__ = ["profile_name", "profile_of"]


def profile_name(asked: str | None, dtype: object, device: object) -> tuple[str, str]:
    """The profile's name, and why that one."""
    if asked and asked != "auto":
        return asked, ""
    if dtype not in ("fp32", "fp64", "bf16"):
        return f"fp32-{'gpu' if device == 'cuda' else 'cpu'}", "assumed, for nothing says in which dtype the legs ran"
    name = "bf16" if dtype == "bf16" else f"fp32-{'gpu' if device == 'cuda' else 'cpu'}"
    return name, f"from dtype {dtype} on {'GPU' if device == 'cuda' else 'CPU'}"


def profile_of(name: str, *bounds: BoundsByMetric | None) -> Profile:
    """A profile with a person's bounds; later ones win."""
    profile = PROFILES[name]
    for by_metric in bounds:
        for metric in ("loss", "grad_norm"):
            given: Bounds | None = getattr(by_metric, metric, None)
            if given is not None:
                profile = with_bounds(profile, metric, **given.model_dump())
    return profile
