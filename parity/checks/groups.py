"""What kind of parameter a name stands for, in the names that frameworks give."""

import re
from collections.abc import Collection

__all__ = ["GROUPS", "group_of"]

# The first pattern that is found decides: a router sits beside the experts, a norm inside attention.
_PATTERNS = (
    ("connections", r"hyper|(^|\.)hc_|connection|streams?\."),
    ("norms", r"norm|(^|\.)ln_?\d*(\.|_|$)"),
    (
        "router",
        r"router|gate\.(weight|bias|e_score)|gate_weight|(?<!experts)(?<!expert)\.gate$|^gate$|e_score_correction|tid2eid",
    ),
    ("shared experts", r"shared_?expert|(^|\.)shared\."),
    ("experts", r"expert"),
    ("embeddings", r"embed|wte|wpe|lm_head|(^|\.)(head|output)\.|tok_embeddings"),
    ("attention", r"attn|attention|qkv|(^|\.)(q|k|v|o)(_proj|_a|_b|_down|_up)?\.|(^|\.)w[qkvo]\."),
    ("mlp", r"mlp|ffn|feed_forward|gate_up|(gate|up|down)_proj|(^|\.)(gate|up|down|w[123])\."),
)

GROUPS = (*(name for name, _ in _PATTERNS), "other")

_COMPILED = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _PATTERNS)


def group_of(name: str, names: Collection[str] = ()) -> str:
    """The group of a parameter by its name; `other` where no pattern knows it.

    Args:
        name: the parameter.
        names: those of the whole model. A `gate` beside an `up` is half of a gated MLP; alone it is a router.
    """
    beside, gate, _ = name.rpartition("gate.")
    if gate and f"{beside}up.weight" in names:
        return "shared experts" if "shared" in name else "mlp"
    return next((group for group, pattern in _COMPILED if pattern.search(name)), "other")
