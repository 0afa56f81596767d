"""The trainer's command line, generated from `TrainOptions` and the layout's axes."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from parity.layout import AXES, Layout
from parity.train.options import TrainOptions

__all__ = ["Arguments", "parse", "to_argv"]


@dataclass(frozen=True)
class Arguments:
    """What one rank is asked to do.

    Attributes:
        options: the training, the same under every layout.
        layout: the parallel sizes; their product is the number of ranks.
        steps: optimizer steps.
        seed: of the weights and the data.
        device: "cpu" (gloo) or "cuda" (NCCL).
    """

    options: TrainOptions
    layout: Layout
    steps: int
    seed: int
    device: Literal["cpu", "cuda"]


def parse(argv: Sequence[str] | None = None) -> Arguments:
    """Read a command line; `sys.argv` when None. A malformed one exits with code 2, as argparse does."""
    given = vars(_parser().parse_args(argv))
    return Arguments(
        options=TrainOptions(**{field.name: given[field.name] for field in fields(TrainOptions)}),
        layout=Layout(**{axis: given[axis] for axis in AXES}),
        steps=given["steps"],
        seed=given["seed"],
        device=given["device"],
    )


def to_argv(arguments: Arguments) -> list[str]:
    """The shortest command line that `parse` reads back as these arguments."""
    argv = ["--steps", str(arguments.steps), "--seed", str(arguments.seed), "--device", arguments.device]
    for axis, size in arguments.layout.sizes().items():
        if size != 1:
            argv += [f"--{axis}", str(size)]
    for field in fields(TrainOptions):
        value = getattr(arguments.options, field.name)
        if value == field.default:
            continue
        if isinstance(value, bool):
            argv.append(_flag(field.name) if value else _flag(field.name).replace("--", "--no-", 1))
        else:
            argv += [_flag(field.name), str(value)]
    return argv


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m parity.train",
        description="Train a small model under a parallel layout. Each rank is one process: start them with"
        " torchrun, or let parity do it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--steps", type=_at_least(1), default=40, help="optimizer steps")
    parser.add_argument("--seed", type=_at_least(0), default=0, help="seed of the weights and the data")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="gloo on cpu, NCCL on cuda")
    sizes = parser.add_argument_group("layout")
    for axis in AXES:
        sizes.add_argument(f"--{axis}", type=_at_least(1), default=1, metavar="N", help=f"{axis} size")
    training = parser.add_argument_group("training")
    types = get_type_hints(TrainOptions)
    for field in fields(TrainOptions):
        kind: dict[str, Any]
        if types[field.name] is bool:
            kind = {"action": argparse.BooleanOptionalAction}
        elif get_origin(types[field.name]) is Literal:
            kind = {"choices": get_args(types[field.name])}
        else:
            kind = {"type": types[field.name], "metavar": types[field.name].__name__.upper()}
        training.add_argument(
            _flag(field.name), dest=field.name, default=field.default, help=field.metadata["help"], **kind
        )
    return parser


def _at_least(least: int) -> Any:
    def whole_number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is too few: give {least} or more")
        return value

    return whole_number
