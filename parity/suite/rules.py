"""What a suite must fulfil beyond the type of each key.

These rules read the file's content before it is validated, as far as it can be read, so that a person sees every
mistake at once.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from parity.document import Problem, suggestion
from parity.layout import AXES, Layout
from parity.placeholders import PLACEHOLDER, PLACEHOLDERS, fill
from parity.suite.launcher import Launcher, LauncherSetting
from parity.suite.suite import Leg, Suite, Trainer, train_options
from parity.suite.values import PERTURB
from parity.train.options import problems

__all__ = ["LAUNCHERS", "ROLES", "broken_rules"]

ROLES = ("baseline", "candidate", "control", "repeat", "perturbed", "reference")
LAUNCHERS = ("PARITY_RUN_ID", "PARITY_LEG", "PARITY_NODE", "PARITY_RECORD_DIR", "PARITY_STORE_FD")
"""Variables by which the launcher tells a leg who it is."""


def broken_rules(content: Mapping[str, Any]) -> list[Problem]:
    """Every broken rule as the path of the key and what would be right."""
    legs = _mapping(content.get("legs"))
    return [
        *_comparisons(content, legs),
        *_environments(content, legs),
        *_trainers(content, legs),
        *_commands(content, ()),
        *(problem for name, leg in legs.items() for problem in _commands(_mapping(leg), ("legs", str(name)))),
        *_launchers(content, legs),
        *_layouts(content, legs),
        *_same_commands(content, legs),
        *_same_sources(content, legs),
    ]


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _roles(item: object) -> Iterator[tuple[tuple[str | int, ...], object]]:
    """A comparison's legs as they are named, each with its place in the comparison."""
    for role in ROLES:
        value = _mapping(item).get(role)
        if isinstance(value, list):
            yield from (((role, index), name) for index, name in enumerate(value))
        elif value is not None:
            yield (role,), value


def _comparisons(content: Mapping[str, Any], legs: Mapping[str, Any]) -> Iterator[Problem]:
    compare = content.get("compare")
    seen: list[object] = []
    for index, item in enumerate(compare if isinstance(compare, list) else []):
        at = ("compare", index)
        roles = list(_roles(item))
        for place, name in roles:
            if isinstance(name, str) and legs and name not in legs:
                yield (*at, *place), f"no leg is named {name!r}{suggestion(name, map(str, legs))}"
        if len({str(name) for _, name in roles}) < len(roles):
            yield at, "compares a leg with itself: every role takes another leg"
        same = [(place[0], name) for place, name in roles], _mapping(item).get("floor")
        if roles and same in seen:
            yield at, "the same comparison stands above"
        seen.append(same)


def _environments(content: Mapping[str, Any], legs: Mapping[str, Any]) -> Iterator[Problem]:
    """Variables that make a leg another than its role says."""
    environments = {("env",): content.get("env")} | {
        ("legs", str(n), "env"): _mapping(v).get("env") for n, v in legs.items()
    }
    for at, env in environments.items():
        for variable in LAUNCHERS:
            if variable in _mapping(env):
                yield (*at, variable), "is set by the launcher, to another value for every leg"
    if PERTURB in _mapping(content.get("env")):
        yield ("env", PERTURB), "would move the weights of every leg: `floor: perturbed` makes legs for that"
    compare = content.get("compare")
    for index, item in enumerate(compare if isinstance(compare, list) else []):
        for place, name in _roles(item):
            if not isinstance(name, str) or name not in legs:
                continue
            env = _mapping(_mapping(legs[name]).get("env"))
            if place[0] != "perturbed":
                if PERTURB in env:
                    text = f"moves the weights of {name}, which is a {place[0]}: only a perturbed leg's may be moved"
                    yield ("legs", name, "env", PERTURB), text
            elif PERTURB not in env:
                yield (
                    ("compare", index, *place),
                    f"{name} moves no weights: give it `env: {{{PERTURB}: 1}}`, or let `floor: perturbed` make a leg",
                )
            elif not re.fullmatch("True|0*[1-9][0-9]{0,8}", str(env[PERTURB])):
                yield ("legs", name, "env", PERTURB), f"must be a whole number from 1, not {env[PERTURB]!r}"


def _trainers(content: Mapping[str, Any], legs: Mapping[str, Any]) -> Iterator[Problem]:
    shared = _mapping(content.get("trainer"))
    yield from _one_trainer(shared, ("trainer",))
    for name, value in legs.items():
        leg, at = _mapping(value), ("legs", str(name))
        own = _mapping(leg.get("trainer"))
        yield from _one_trainer(own, (*at, "trainer"))
        if leg.get("command") and (own.get("command") or own.get("embedded")):
            yield at, "has both `command` and `trainer`: give one"
        runs_command = leg.get("command") or own.get("command") or (shared.get("command") and not own.get("embedded"))
        if not runs_command and not shared.get("embedded") and not own.get("embedded"):
            yield (
                at,
                "nothing says what to run: give `trainer:` with `embedded:` or `command:`, here or for the suite",
            )
        if runs_command and not own.get("command"):
            yield from _misplaced_options(own, (*at, "trainer"))


def _one_trainer(trainer: Mapping[str, Any], at: tuple[str | int, ...]) -> Iterator[Problem]:
    if trainer.get("command") and trainer.get("embedded"):
        yield at, "has both `embedded` and `command`: give one"
    if trainer.get("command"):
        yield from _misplaced_options(trainer, at)


def _misplaced_options(trainer: Mapping[str, Any], at: tuple[str | int, ...]) -> Iterator[Problem]:
    for key in trainer:
        if key not in ("embedded", "command") and key in Trainer.model_fields:
            yield (*at, key), "is an option of the embedded trainer; a command takes it as an argument"


def _commands(holder: Mapping[str, Any], at: tuple[str | int, ...]) -> Iterator[Problem]:
    """Placeholders that nothing fills."""
    trainer = _mapping(holder.get("trainer"))
    source = holder.get("source")
    texts = [
        ((*at, "command"), holder.get("command")),
        ((*at, "trainer", "command"), trainer.get("command")),
        ((*at, "cwd"), holder.get("cwd")),
        ((*at, "source"), source if isinstance(source, str) else None),
        ((*at, "source", "file"), _mapping(source).get("file")),
    ]
    for path, text in texts:
        for part in text if isinstance(text, list) else [text]:
            for word in PLACEHOLDER.findall(part) if isinstance(part, str) else []:
                if word and word not in PLACEHOLDERS:
                    yield (
                        path,
                        f"nothing fills {{{word}}}{suggestion(word, PLACEHOLDERS)}; for braces write {{{{{word}}}}}",
                    )


def _launchers(content: Mapping[str, Any], legs: Mapping[str, Any]) -> Iterator[Problem]:
    """Legs on other machines than this one."""
    shared = _launcher(content)
    own = {name: _launcher(_mapping(value)) or shared for name, value in legs.items()}
    slurm = any(launcher is not None and launcher.slurm is not None for launcher in (shared, *own.values()))
    if slurm and content.get("device", "auto") == "auto":
        yield ("device",), "must say what Slurm's nodes have, cpu or cuda: that cannot be found out from here"
    for name, launcher in own.items():
        leg, trainer = _mapping(legs[name]), _mapping(_mapping(legs[name]).get("trainer"))
        ranks = _ranks(legs[name])
        if launcher is None or ranks is None or launcher.nodes(ranks) == 1:
            continue
        command = leg.get("command") or trainer.get("command") or _mapping(content.get("trainer")).get("command")
        if "--standalone" in str(command):
            text = f"takes {launcher.nodes(ranks)} nodes, so torchrun must not be --standalone: leave that out"
            yield ("legs", str(name)), text


def _launcher(holder: Mapping[str, Any]) -> Launcher | None:
    try:
        return TypeAdapter[Launcher | None](LauncherSetting).validate_python(holder.get("launcher"))
    except ValidationError:  # told elsewhere
        return None


def _ranks(leg: object) -> int | None:
    """A leg's ranks, where they can be read."""
    layout = _mapping(_mapping(leg).get("layout"))
    ranks = _mapping(leg).get("nproc") or _world_size(layout)
    return ranks if type(ranks) is int and 0 < ranks <= 1 << 20 else None


def _world_size(layout: Mapping[str, Any]) -> int | None:
    sizes = {axis: layout.get(axis, 1) for axis in AXES}
    if not all(type(size) is int and size >= 1 for size in sizes.values()):
        return None
    return Layout(**sizes).world_size


def _layouts(content: Mapping[str, Any], legs: Mapping[str, Any]) -> Iterator[Problem]:
    for name, value in legs.items():
        at = ("legs", str(name))
        layout = _mapping(_mapping(value).get("layout"))
        sizes = {axis: layout.get(axis, 1) for axis in AXES}
        if not all(type(size) is int and size >= 1 for size in sizes.values()):
            continue
        shape = Layout(**sizes)
        shared = shape.dp * shape.fsdp * shape.cp
        if shared % shape.ep:
            yield (
                (*at, "layout", "ep"),
                f"experts are spread over the {shared} ranks of dp × fsdp × cp, which {shape.ep} does not divide",
            )
        yield from _misfits(content, value, shape, at)


def _misfits(content: Mapping[str, Any], value: object, shape: Layout, at: tuple[str, str]) -> Iterator[Problem]:
    """What the embedded trainer says of its options and the layout."""
    raw = [content.get("trainer"), _mapping(value).get("trainer")]
    try:
        # Unknown keys are told elsewhere and must not keep these mistakes from being told.
        shared, own_trainer = (
            Trainer.model_validate(
                {key: item for key, item in _mapping(trainer).items() if key in Trainer.model_fields}
            )
            for trainer in raw
        )
        leg = Leg(trainer=own_trainer, command=_mapping(value).get("command"))
    except ValidationError:
        return
    suite = Suite.model_construct(trainer=shared)
    if not (shared.embedded or own_trainer.embedded) or suite.command_of(leg) is not None:
        return
    for field, text in problems(train_options(suite, leg), shape):
        group, _, key = field.partition(".")
        if group == "layout" or key in own_trainer.model_fields_set:
            yield (*at, *field.split(".")), text
        else:
            yield tuple(field.split(".")), text
    if _mapping(value).get("nproc", shape.world_size) != shape.world_size:
        yield (*at, "nproc"), f"the embedded trainer runs one rank for each part of the layout, {shape.world_size}"


def _filled(content: Mapping[str, Any], name: str, value: object, text: str) -> str:
    """A text with the leg's placeholders, those that differ for every leg and run left as they are."""
    sizes = {axis: _mapping(_mapping(value).get("layout")).get(axis, 1) for axis in AXES}
    ranks = _mapping(value).get("nproc") or Layout(**sizes).world_size
    return fill(text, {**sizes, "nproc": ranks, "steps": content.get("steps"), "seed": content.get("seed", 1234)})


def _runs(content: Mapping[str, Any], name: str, value: object) -> tuple[object, ...] | None:
    """What a leg's processes would see of its layout; None for the embedded trainer, which always does."""
    leg, shared = _mapping(value), _mapping(content.get("trainer"))
    own = _mapping(leg.get("trainer"))
    command = leg.get("command") or own.get("command") or (None if own.get("embedded") else shared.get("command"))
    if not command:
        return None
    parts = command if isinstance(command, list) else [command]
    try:
        filled = [_filled(content, name, value, str(part)) for part in (*parts, leg.get("cwd") or "")]
    except TypeError:
        return None
    return (*filled, repr(sorted(_mapping(leg.get("env")).items(), key=str)))


def _same_commands(content: Mapping[str, Any], legs: Mapping[str, Any]) -> Iterator[Problem]:
    """Compared legs that claim different layouts and run the very same command."""
    compare = content.get("compare")
    for index, item in enumerate(compare if isinstance(compare, list) else []):
        known = [name for _, name in _roles(item) if isinstance(name, str) and name in legs]
        for i, name in enumerate(known):
            for other in known[:i]:
                mine, theirs = _mapping(legs[name]).get("layout"), _mapping(legs[other]).get("layout")
                runs = _runs(content, name, legs[name])
                if mine != theirs and runs is not None and runs == _runs(content, other, legs[other]):
                    yield (
                        ("compare", index),
                        f"{other} and {name} claim different layouts and run the same command: let it name {{nproc}}"
                        " or a size such as {tp}, or give a leg its own command or env",
                    )


def _same_sources(content: Mapping[str, Any], legs: Mapping[str, Any]) -> Iterator[Problem]:
    """Legs that would write their metrics to one file, so that one leg's could be taken for another's."""
    seen: dict[object, str] = {}
    for name, value in legs.items():
        leg = _mapping(value)
        source = leg.get("source") or content.get("source")
        path = source if isinstance(source, str) else _mapping(source).get("file")
        if not isinstance(path, str) or any(f"{{{word}}}" in path for word in ("out", "leg", "run_id")):
            continue
        try:
            place = (_filled(content, str(name), value, path), str(leg.get("cwd") or content.get("cwd")))
        except TypeError:
            continue
        if place in seen:
            yield (
                ("legs", str(name)),
                f"its metrics are in the same file as those of {seen[place]}: let `source` name {{out}} or {{leg}}",
            )
        seen.setdefault(place, str(name))
