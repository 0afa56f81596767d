"""What is known of a fault: where it applies, what it needs, and what it should be found to be."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from parity.layout import Layout

__all__ = ["EXPERTS", "Fault", "Hint"]

EXPERTS: Mapping[str, Any] = MappingProxyType({"model": "deepseek_v4", "kv_heads": 1, "hash_layers": 1})
"""Options of a model with experts, of whose two layers the second chooses them by score."""

NEEDED = ("model", "bias", "tie_embeddings", "sequence_parallel", "optimizer")
"""Options that a fault needs as they are; of the other ones that it names it would do with more or less as well."""

AT_LEAST = ("accumulate", "aux_loss", "bias_update_rate", "weight_decay")
"""Options of which a fault needs some, if it names them."""


@dataclass(frozen=True)
class Hint:
    """What in a comparison gives a fault away.

    Attributes:
        of: which numbers are off: "loss", "grad_norm", "gradients" or "updates".
        group: whose, where these are parameters': "all", or a group of parameters (`parity.checks.groups`), or
            "first stage".
        ratio: the candidate's over the baseline's, as a formula of the layout: a size (`ep`), `1/size`,
            `sqrt(size)`, `1/sqrt(size)`, or a number. Sizes are the axes', `data` (dp × fsdp), `world` (all ranks)
            and `accumulate` (micro-batches). None where it is no constant.
        offset: the candidate's less the baseline's, as `log(size)`; None where it is no constant.
    """

    of: Literal["loss", "grad_norm", "gradients", "updates"]
    group: str = "all"
    ratio: str | None = None
    offset: str | None = None

    def expected(self, layout: Layout, accumulate: int = 1) -> float | None:
        """The ratio or the offset under a layout; None where neither is a constant.

        Raises:
            ValueError: the formula is none that is described above.
        """
        formula = self.ratio if self.ratio is not None else self.offset
        return None if formula is None else _value(formula, layout, accumulate)


def _value(formula: str, layout: Layout, accumulate: int) -> float:
    found = re.fullmatch(r"(1/)?(?:(sqrt|log)\((\w+)\)|(\w+))", formula)
    if found is None:
        raise ValueError(f"{formula!r} is no formula of a layout's sizes")
    inverse, function, inner, plain = found.groups()
    sizes = {**layout.sizes(), "data": layout.dp * layout.fsdp, "world": layout.world_size, "accumulate": accumulate}
    name = inner or plain
    if name not in sizes and not name.isdecimal():
        raise ValueError(f"{formula!r}: {name!r} is no size of a layout")
    value = float(sizes.get(name, name))
    value = {"sqrt": math.sqrt, "log": math.log}[function](value) if function else value
    return 1 / value if inverse else value


@dataclass(frozen=True)
class Fault:
    """One mistake.

    Attributes:
        name: in kebab case, as `TrainOptions.fault` gives it.
        mutation: the class of mistakes that it belongs to, "M1" to "M20", or "C1" to "C3" for controls.
        what: what is wrong, in one sentence.
        bug: the public bug that it stands for, as owner/repository#number.
        layouts: small layouts under which it is tried. It can be made under any layout with the axes of one of
            these, of whatever size.
        options: options that candidate and baseline need so that it can show, beside `EXPERTS` where `ep` is used.
        both: whether it is put into the baseline too, and can therefore be made on one rank as well.
        expected: the verdict of a candidate that has it.
        profile: under which that verdict is meant.
        hint: what gives it away; None if nothing that can be said in a formula.
        elsewhere: why it is under no other layout, where its class names more.
    """

    name: str
    mutation: str
    what: str
    bug: str
    layouts: tuple[Layout, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    both: bool = False
    expected: Literal["fail", "inconclusive", "pass"] = "fail"
    profile: str = "auto"
    hint: Hint | None = None
    elsewhere: str = ""

    def baseline(self, layout: Layout) -> Layout:
        """What a layout with this fault is compared with: the same ranks without expert parallelism, which takes
        none of its own, or else one rank."""
        return replace(layout, ep=1) if layout.ep > 1 else Layout()

    def overrides(self, layout: Layout) -> dict[str, Any]:
        """Options of both legs, by the names of `TrainOptions`, the fault itself left out."""
        return {**(EXPERTS if layout.ep > 1 else {}), **self.options}

    def applies(self, layout: Layout) -> bool:
        """Whether there is anything to do wrong under a layout."""
        used = _axes(layout)
        return (self.both and not used) or any(_axes(one) == used for one in self.layouts)

    def where(self) -> str:
        """The layouts under which it applies, in words."""
        return ", ".join(dict.fromkeys(" with ".join(sorted(_axes(one))) for one in self.layouts))

    def lacking(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options, all of them given by name, that would have to be others for the fault to show."""
        exact = {name: value for name, value in self.options.items() if name in NEEDED and options[name] != value}
        few = {name: value for name, value in self.options.items() if name in AT_LEAST and not _enough(name, options)}
        return {**exact, **few}


def _axes(layout: Layout) -> set[str]:
    return {axis for axis, size in layout.sizes().items() if size > 1}


def _enough(name: str, options: Mapping[str, Any]) -> bool:
    return bool(options[name] > (1 if name == "accumulate" else 0))
