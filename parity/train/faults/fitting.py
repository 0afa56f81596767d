"""Whether a fault can show under a layout and options."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from parity.layout import Layout
from parity.train.faults.catalog import FAULTS

__all__ = ["misfit"]


def misfit(name: str, options: Mapping[str, Any], layout: Layout) -> str | None:
    """Why a fault cannot be made, in a sentence that says what would be right; None if it can.

    Args:
        name: the fault's.
        options: all of `TrainOptions`, by name.
        layout: the leg's.
    """
    fault = FAULTS.get(name)
    if fault is None:
        near = get_close_matches(name, FAULTS, n=1)
        meant = f"did you mean {near[0]}?" if near else "parity/train/faults/catalog lists them"
        return f"{name!r} is no fault: {meant}"
    if not fault.applies(layout):
        return f"{name} cannot be made under this layout ({layout}): take one of {fault.where()}"
    lacking = fault.lacking(options)
    if lacking:
        wanted = ", ".join(f"{option} {_said(value)}" for option, value in lacking.items())
        return f"{name} cannot show with these options: give {wanted}, to every leg"
    idle = _IDLE.get(name)
    why = idle(options, layout) if idle is not None else None
    return None if why is None else f"{name} changes nothing here: {why}"


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _no_head_is_cut(options: Mapping[str, Any], layout: Layout) -> str | None:
    if options["kv_heads"] % layout.tp:
        return None
    return f"{layout.tp} ranks share {options['kv_heads']} KV heads evenly: give kv_heads that tp does not divide"


def _one_head_each(options: Mapping[str, Any], layout: Layout) -> str | None:
    if options["kv_heads"] > layout.tp:
        return None
    return f"no rank has two KV heads: give more kv_heads than {layout.tp}"


def _no_column_is_padded(options: Mapping[str, Any], layout: Layout) -> str | None:
    if options["vocab"] % layout.tp:
        return None
    return f"{layout.tp} ranks share {options['vocab']} entries evenly: give a vocab that tp does not divide"


def _no_hash_layer_is_later(options: Mapping[str, Any], layout: Layout) -> str | None:
    first = options["first_stage_layers"] or -(-options["layers"] // layout.pp)
    if options["hash_layers"] > first:
        return None
    return f"all layers that are routed by token id are among the first stage's {first}: give more hash_layers"


def _all_layers_are_hash_routed(options: Mapping[str, Any], _layout: Layout) -> str | None:
    if options["hash_layers"] < options["layers"]:
        return None
    return "every layer chooses experts by token id: give fewer hash_layers than layers"


_IDLE: dict[str, Callable[[Mapping[str, Any], Layout], str | None]] = {
    "heads-cut-through": _no_head_is_cut,
    "kv-heads-permuted": _one_head_each,
    "pad-columns-in-softmax": _no_column_is_padded,
    "hash-ids-dropped": _no_hash_layer_is_later,
    "aux-loss-times-micro-batches": _all_layers_are_hash_routed,
    "aux-loss-over-ranks": _all_layers_are_hash_routed,
    "aux-loss-added-twice": _all_layers_are_hash_routed,
    "expert-bias-not-reduced": _all_layers_are_hash_routed,
}
"""Faults that some options or layouts leave without an effect."""
