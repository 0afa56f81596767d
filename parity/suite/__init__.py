"""`parity.yml`: its schema, defaults and rules."""

from parity.suite.suite import (
    Bounds,
    BoundsByMetric,
    Compare,
    LayoutSizes,
    Leg,
    Source,
    Suite,
    digest,
    load,
    run_of,
    train_options,
)

__all__ = [
    "Bounds",
    "BoundsByMetric",
    "Compare",
    "LayoutSizes",
    "Leg",
    "Source",
    "Suite",
    "digest",
    "load",
    "run_of",
    "train_options",
]
