"""JSON Schema over one document: what is wrong with a value, and a value completed with what its schema requires."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft7Validator, Draft202012Validator, FormatChecker

__all__ = ["Schemas"]

Schema = dict[str, Any]
_FORMATS = FormatChecker(formats=())
# What a value is that nobody gave, by its format.
_NEUTRAL = {"date-time": "2026-01-01T00:00:00Z", "uri": "https://github.test/", "email": "nobody@github.test"}


def _is_time(value: object) -> bool:
    return not isinstance(value, str) or (value[10:11] == "T" and datetime.fromisoformat(value).tzinfo is not None)


def _is_uri(value: object) -> bool:
    return not isinstance(value, str) or bool(urlsplit(value).scheme)


_FORMATS.checks("date-time", raises=ValueError)(_is_time)
_FORMATS.checks("uri", raises=ValueError)(_is_uri)


class Schemas:
    """The schemas in one of the JSON files beside this module."""

    def __init__(self, name: str) -> None:
        self.document: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_text())
        draft7 = "draft-07" in self.document.get("$schema", "")
        self._validator = Draft7Validator if draft7 else Draft202012Validator
        # What `$ref` points to has to be in the schema that a validator is made of.
        self._targets = {key: self.document[key] for key in ("components", "definitions") if key in self.document}

    def resolve(self, node: Schema) -> Schema:
        """Follow `$ref` until there is none."""
        while "$ref" in node:
            target: Any = self.document
            for key in node["$ref"].removeprefix("#/").split("/"):
                target = target[key]
            node = target
        return node

    def problems(self, schema: Schema, value: Any) -> Iterator[str]:
        """Yield what is wrong with `value`, each with the path to it."""
        validator = self._validator({**self._targets, "allOf": [schema]}, format_checker=_FORMATS)
        for error in validator.iter_errors(value):
            deepest = error
            while deepest.context:
                deepest = min(deepest.context, key=lambda e: (-len(e.absolute_path), len(str(e.message))))
            yield f"{deepest.json_path}: {deepest.message[:200]}"

    def unknown(self, schema: Schema, value: Any, path: str = "$") -> Iterator[str]:
        """Yield the keys in `value` that `schema` does not name, which JSON Schema itself lets pass."""
        schema = self._merged(schema)
        properties = schema.get("properties")
        if isinstance(value, list):
            for number, entry in enumerate(value):
                yield from self.unknown(schema.get("items", {}), entry, f"{path}[{number}]")
        elif isinstance(value, dict) and properties:
            for key, entry in value.items():
                if key in properties:
                    yield from self.unknown(properties[key], entry, f"{path}.{key}")
                elif not schema.get("additionalProperties"):
                    yield f"{path}.{key} is not described"

    def complete(self, schema: Schema, value: Any, *, trim: bool = False) -> Any:
        """Return `value` with everything that `schema` requires and `value` lacks, in some neutral form.

        `trim`: without what the schema says that there must not be.
        """
        schema = self._merged(schema)
        if isinstance(value, list):
            return [self.complete(schema.get("items", {}), entry, trim=trim) for entry in value]
        if not isinstance(value, dict):
            return value
        properties = schema.get("properties", {})
        if trim and schema.get("additionalProperties") is False:
            value = {key: entry for key, entry in value.items() if key in properties}
        missing = [key for key in schema.get("required", ()) if key not in value]
        return {key: self.complete(properties.get(key, {}), entry, trim=trim) for key, entry in value.items()} | {
            key: self._neutral(properties.get(key, {})) for key in missing
        }

    def _merged(self, schema: Schema) -> Schema:
        """Return one schema without alternatives: all of `allOf`, and of `oneOf` and `anyOf` the first but null."""
        schema = self.resolve(schema)
        parts = [self._merged(part) for part in schema.get("allOf", ())]
        for key in ("oneOf", "anyOf"):
            parts += [self._merged(part) for part in schema.get(key, ()) if part.get("type") != "null"][:1]
        merged = schema
        for part in parts:
            merged = {
                **part,
                **merged,
                "properties": {**part.get("properties", {}), **merged.get("properties", {})},
                "required": [*part.get("required", ()), *merged.get("required", ())],
            }
        return merged

    def _neutral(self, schema: Schema) -> Any:
        plain = self.resolve(schema)
        kinds = plain.get("type")
        if "null" in (kinds or ()) or any(self._neutral_is_null(part) for part in _alternatives(plain)):
            return None
        merged = self._merged(plain)
        if "const" in merged or "enum" in merged:
            return merged.get("const", next(iter(merged.get("enum", ())), None))
        kind = merged.get("type", "object" if "properties" in merged else "string")
        if isinstance(kind, list):
            kind = kind[0]
        if kind == "object":
            return self.complete(merged, {})
        neutral = {"array": [], "boolean": False, "integer": merged.get("minimum", 0), "number": 0}
        return neutral.get(kind, _NEUTRAL.get(merged.get("format", ""), ""))

    def _neutral_is_null(self, schema: Schema) -> bool:
        kind = self.resolve(schema).get("type")
        return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _alternatives(schema: Schema) -> list[Schema]:
    return [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
