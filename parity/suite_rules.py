"""What a suite must fulfil beyond the type of each key.

These rules read the file's content before it is validated, as far as it can be read, so that a person sees every
mistake at once.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from parity.document import Problem, suggestion
from parity.layout import AXES, Layout
from parity.suite import _PLACEHOLDER, PLACEHOLDERS, Leg, Suite, Trainer, train_options
from parity.train.options import problems

__all__ = ["broken_rules"]


def broken_rules(content: Mapping[str, Any]) -> list[Problem]:
    """Every broken rule as the path of the key and what would be right."""
    legs = _mapping(content.get("legs"))
    return [
        *_comparisons(content, legs),
        *_trainers(content, legs),
        *_commands(content, ()),
        *(problem for name, leg in legs.items() for problem in _commands(_mapping(leg), ("legs", str(name)))),
        *_layouts(content, legs),
    ]


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _comparisons(content: Mapping[str, Any], legs: Mapping[str, Any]) -> Iterator[Problem]:
    compare = content.get("compare")
    seen: list[object] = []
    for index, item in enumerate(compare if isinstance(compare, list) else []):
        at = ("compare", index)
        roles = {role: item[role] for role in ("baseline", "candidate", "control") if role in _mapping(item)}
        for role, name in roles.items():
            if isinstance(name, str) and legs and name not in legs:
                yield (*at, role), f"no leg is named {name!r}{suggestion(name, map(str, legs))}"
        names = [name for name in roles.values() if name is not None]
        if len(set(map(str, names))) < len(names):
            yield at, "compares a leg with itself: baseline, candidate and control must be different legs"
        if roles and roles in seen:
            yield at, "the same comparison stands above"
        seen.append(roles)


def _trainers(content: Mapping[str, Any], legs: Mapping[str, Any]) -> Iterator[Problem]:
    suite_trainer = _mapping(content.get("trainer"))
    yield from _one_trainer(suite_trainer, ("trainer",))
    for name, value in legs.items():
        leg = _mapping(value)
        own = _mapping(leg.get("trainer"))
        yield from _one_trainer(own, ("legs", str(name), "trainer"))
        given = [leg.get("command"), own.get("command"), own.get("embedded")]
        if not any(given) and not suite_trainer.get("command") and not suite_trainer.get("embedded"):
            yield (
                ("legs", str(name)),
                "nothing says what to run: give `trainer:` with `embedded:` or `command:`, here or for the suite",
            )
        if leg.get("command") and any(given[1:]):
            yield ("legs", str(name)), "has both `command` and `trainer`: give one"


def _one_trainer(trainer: Mapping[str, Any], at: tuple[str | int, ...]) -> Iterator[Problem]:
    if trainer.get("command") and trainer.get("embedded"):
        yield at, "has both `embedded` and `command`: give one"
    options = [key for key in trainer if key not in ("embedded", "command") and key in Trainer.model_fields]
    if trainer.get("command") and options:
        yield (*at, options[0]), "is an option of the embedded trainer; a command takes it as an argument"


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
            for word in _PLACEHOLDER.findall(part) if isinstance(part, str) else []:
                if word not in PLACEHOLDERS:
                    yield path, f"nothing fills {{{word}}}{suggestion(word, PLACEHOLDERS)}"


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
