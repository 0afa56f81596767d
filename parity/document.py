"""A YAML file whose mistakes can be told with their place."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from parity.errors import UsageError
from parity.plain import plain
from parity.untrusted import MissingError, open_regular

__all__ = ["Document", "Problem", "explain", "suggestion"]

Key = str | int
Problem = tuple[tuple[Key, ...], str]

# How pydantic names the members of a union, and a key, in an error's place.
_MEMBERS = (
    "[key]",
    "str",
    "list[str]",
    "function-after[_without_nul(), str]",
    "list[function-after[_without_nul(), str]]",
)

# A suite is written by hand; anything larger is another file.
_MOST_BYTES = 1 << 20
_MOST_DEPTH = 32


@dataclass(frozen=True)
class Document:
    """A parsed file and the line of each key.

    Attributes:
        path: the file, as given.
        content: what it holds.
        line_of: 1-based line by path of keys.
    """

    path: Path
    content: Any
    line_of: Mapping[tuple[Key, ...], int]

    @classmethod
    def read(cls, path: Path) -> "Document":
        """Parse a file.

        Raises:
            UsageError: the file cannot be read, is no YAML, repeats a key or nests without end.
        """
        try:
            with open_regular(path, limit=_MOST_BYTES, follow=True) as file:
                data = file.read()
        except MissingError:
            raise UsageError(f"{path}: no such file; `parity init` writes one to begin with") from None
        try:
            root = yaml.compose(data.decode("utf-8-sig"), yaml.SafeLoader)
        except UnicodeDecodeError:
            raise UsageError(f"{path}: not UTF-8 text") from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            where = f":{mark.line + 1}" if mark else ""
            what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be parsed"
            raise UsageError(f"{path}{where}: not YAML: {what}") from None
        except RecursionError:
            raise UsageError(f"{path}: nested too deeply") from None
        if root is None:
            raise UsageError(f"{path}: empty; `parity init` writes a suite to begin with")
        nodes = list(_walk(root, (), frozenset(), path))
        repeated = [f"{path}:{line}: {plain(_dotted(at))}: given twice" for at, line, twice in nodes if twice]
        if repeated:
            raise UsageError(*repeated)
        try:
            content = yaml.SafeLoader.construct_document(yaml.SafeLoader(""), root)
        except yaml.YAMLError as error:
            raise UsageError(f"{path}: not YAML: {getattr(error, 'problem', error)}") from None
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path}: not YAML: {error}") from None
        return cls(path, content, {at: line for at, line, _ in nodes})

    def lines(self, problems: Iterable[Problem]) -> list[str]:
        """Each problem as `file:line: path.of.key: what`, in the order of the file, each once."""
        placed = []
        for at, text in problems:
            known = at
            while known and known not in self.line_of:
                known = known[:-1]
            line = self.line_of.get(known, 1)
            where = f"{_dotted(at)}: " if at else ""
            placed.append((line, f"{self.path}:{line}: {plain(f'{where}{text}', 500)}"))
        return list(dict.fromkeys(text for _, text in sorted(placed, key=lambda pair: pair[0])))


def _dotted(at: tuple[Key, ...]) -> str:
    text = ""
    for key in at:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def _walk(
    node: yaml.Node, at: tuple[Key, ...], above: frozenset[int], source: Path
) -> Iterator[tuple[tuple[Key, ...], int, bool]]:
    """Every key's path, line, and whether it repeats a key of the same mapping."""
    if id(node) in above or len(at) > _MOST_DEPTH:
        raise UsageError(f"{source}:{node.start_mark.line + 1}: nested more than {_MOST_DEPTH} deep")
    above |= {id(node)}
    yield at, node.start_mark.line + 1, False
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            path = (*at, name)
            if name in seen and name != "<<":
                yield path, key.start_mark.line + 1, True
            seen.add(name)
            yield from _walk(value, path, above, source)
            yield path, key.start_mark.line + 1, False
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _walk(value, (*at, index), above, source)


def suggestion(word: object, known: Iterable[str]) -> str:
    """`; did you mean 'tp'?`, or what there is to choose from."""
    names = list(known)
    close = difflib.get_close_matches(str(word), names, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there is {', '.join(names)}" if names else ""


def explain(error: ValidationError, schema: Mapping[str, Any]) -> list[Problem]:
    """Each validation error as its path and what would be right."""
    problems: list[Problem] = []
    for item in error.errors(include_url=False):
        at = tuple(key for key in item["loc"] if key not in _MEMBERS)
        given = item["input"]
        match item["type"]:
            case "extra_forbidden":
                text = f"unknown key{suggestion(at[-1], _keys_at(schema, at[:-1]))}"
            case "missing":
                text = "missing"
            case "literal_error":
                text = f"must be {item['ctx']['expected']}, not {given!r}"
            case "string_pattern_mismatch":
                text = f"{given!r} must be letters, digits, '.', '_' or '-', at most 64, the first a letter or digit"
            case "too_short":
                text = "must not be empty"
            case "model_type" | "dict_type":
                text = f"must be a mapping of keys to values, not {_short(given)}"
            case "model_attributes_type":
                text = f"must be a mapping of keys to values, not {_short(given)}"
            case _:
                message = item["msg"][0].lower() + item["msg"][1:]
                text = f"{message.replace('input should be', 'must be')}, not {_short(given)}"
        problems.append((at, text))
    return problems


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _keys_at(schema: Mapping[str, Any], at: tuple[Key, ...]) -> list[str]:
    """The property names that a JSON schema knows at a path."""
    nodes: list[Mapping[str, Any]] = [schema]
    for key in at:
        nodes = [child for node in _resolved(nodes, schema) for child in _children(node, key)]
    return [name for node in _resolved(nodes, schema) for name in node.get("properties", {})]


def _children(node: Mapping[str, Any], key: Key) -> Iterator[Mapping[str, Any]]:
    if isinstance(key, int):
        yield node.get("items", {})
    elif key in node.get("properties", {}):
        yield node["properties"][key]
    else:
        yield from node.get("patternProperties", {}).values()
        if isinstance(node.get("additionalProperties"), dict):
            yield node["additionalProperties"]


def _resolved(nodes: Iterable[Mapping[str, Any]], schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for node in nodes:
        if "$ref" in node:
            yield from _resolved([schema["$defs"][node["$ref"].rpartition("/")[2]]], schema)
        for choice in ("anyOf", "allOf", "oneOf"):
            yield from _resolved(node.get(choice, []), schema)
        yield node
