"""Suites by file or by the name of a recipe, and what the command line says instead of them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from parity.errors import UsageError

__all__ = [
    "RECIPES",
    "cache_options",
    "devices_option",
    "durations_option",
    "folder_of",
    "override_options",
    "override_words",
    "overrides",
    "recipes",
    "slots_option",
    "suite_path",
]

RECIPES = Path(__file__).parent.parent / "recipes"

slots_option = click.option("--slots", type=click.IntRange(1), help="CPU ranks that may run at the same time.")


# An index, with that of a part of it (XPU); or a uuid or its beginning (`GPU-5a`, `MIG-GPU-5a/1/0`). One rank would
# be given a name that stands for several devices, or for none; and 00 is device 0 a second time.
_DEVICE = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*))?|[A-Za-z]+-[\w.:/-]+", re.ASCII)


def _device_names(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    names = None if value is None else tuple(name.strip() for name in value.split(","))
    if names is not None and not all(names):
        raise click.BadParameter(f"{value!r} is no list such as 0,1,3")
    if other := next((name for name in names or () if not _DEVICE.fullmatch(name)), None):
        raise click.BadParameter(f"{other!r} is no device's index or uuid; name each, such as 0,1,3")
    return names


devices_option = click.option(
    "--devices", callback=_device_names, metavar="LIST", help="Accelerators to use, such as 0,1,3; else all."
)
durations_option = click.option(
    "--durations",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="RUN_DIR",
    help="Earlier run that tells how long legs take; else the one in the output folder.",
)


def cache_options(command: Callable[..., int]) -> Callable[..., int]:
    """`cache` and `no_cache`."""
    for option in (
        click.option("--no-cache", is_flag=True, help="Run every leg, whatever PARITY_CACHE says."),
        click.option(
            "--cache",
            type=click.Path(path_type=Path, file_okay=False),
            envvar="PARITY_CACHE",
            metavar="DIR",
            help="Take legs from there that finished before under the same code, command, environment and devices,"
            " and keep those that do now; never a candidate. Also by PARITY_CACHE.",
        ),
    ):
        command = option(command)
    return command


def override_options(command: Callable[..., int]) -> Callable[..., int]:
    """Options of a command that each stand instead of the suite's: `steps`, `seed` and `device`."""
    for option in (
        click.option(
            "--device",
            type=click.Choice(["auto", "cpu", "cuda", "npu", "xpu"]),
            help="Instead of the suite's device.",
        ),
        click.option("--seed", type=click.IntRange(0), help="Instead of the suite's seed."),
        click.option("--steps", type=click.IntRange(1), help="Instead of the suite's steps."),
    ):
        command = option(command)
    return command


def overrides(**given: Any) -> dict[str, Any]:
    """Those of these options that were given."""
    return {key: value for key, value in given.items() if value is not None}


def override_words(given: dict[str, Any]) -> list[str]:
    """The same as words of a command line."""
    return [word for key, value in given.items() for word in (f"--{key}", str(value))]


def recipes() -> list[str]:
    """The names of all recipes."""
    return sorted(str(path.relative_to(RECIPES).with_suffix("")) for path in RECIPES.glob("*/*.yml"))


def suite_path(suite: str) -> Path:
    """A file, or else the name of a recipe.

    Raises:
        UsageError: it is neither.
    """
    path = Path(suite)
    if path.exists() or path.suffix in (".yml", ".yaml"):
        return path
    if suite in recipes():
        return RECIPES / f"{suite}.yml"
    raise UsageError(f"{suite}: neither a file nor a recipe; the recipes are {', '.join(recipes())}")


def folder_of(path: Path) -> Path:
    """What a suite's working folders are relative to: its own folder; for a recipe, the current one."""
    return Path() if path.is_relative_to(RECIPES) else path.parent
