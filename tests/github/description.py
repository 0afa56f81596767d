"""GitHub's description of its REST API: which operation a request is, and what is wrong with it or with an answer."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import unquote

from .schemas import Schema, Schemas

__all__ = ["Description", "Operation", "description"]

# Every operation may answer these, whatever its description lists: GitHub's are not listed for most of them.
_EVERYWHERE = {400, 401, 403, 404, 410, 422, 429, 500, 502, 503}
_ERRORS = ["validation-error", "validation-error-simple", "basic-error"]


@dataclass(frozen=True)
class Operation:
    """One verb on one path."""

    name: str
    """GitHub's `operationId`, such as `issues/create-comment`."""
    verb: str
    pattern: re.Pattern[str]
    parameters: dict[tuple[str, str], dict[str, Any]]
    """By where it is (`path`, `query`) and its name."""
    body: Schema | None
    body_required: bool
    responses: dict[int, dict[str, Schema]]
    """By status and media type; no media type where the answer has no body."""


class Description:
    def __init__(self) -> None:
        self.schemas = Schemas("openapi.json")
        self.operations = [
            self._operation(path, verb, entry)
            for path, verbs in self.schemas.document["paths"].items()
            for verb, entry in verbs.items()
        ]
        # The most literal path first: `commits/{ref}` matches what `commits/{ref}/status` does.
        self.operations.sort(key=lambda operation: -len(re.sub(r"\(.*?\)", "", operation.pattern.pattern)))

    def _operation(self, path: str, verb: str, entry: dict[str, Any]) -> Operation:
        resolve = self.schemas.resolve
        parameters = {(p["in"], p["name"]): p for p in map(resolve, entry.get("parameters", ()))}

        def segment(match: re.Match[str]) -> str:
            found = parameters["path", match[1]]
            if resolve(found["schema"]).get("type") == "integer":
                return rf"(?P<{match[1]}>\d+)"
            return rf"(?P<{match[1]}>{'.+' if found.get('x-multi-segment') else '[^/]+'})"

        body = resolve(entry.get("requestBody", {}))
        return Operation(
            name=entry["operationId"],
            verb=verb.upper(),
            pattern=re.compile(re.sub(r"{(\w+)}", segment, path)),
            parameters=parameters,
            body=body["content"]["application/json"]["schema"] if body else None,
            body_required=body.get("required", False),
            responses={
                int(status): {kind: content["schema"] for kind, content in resolve(answer).get("content", {}).items()}
                for status, answer in entry["responses"].items()
            },
        )

    def find(self, verb: str, path: str) -> tuple[Operation, dict[str, str]] | None:
        """Return the operation that a request is, and the parameters in its path."""
        for operation in self.operations:
            found = operation.pattern.fullmatch(path)
            if found and operation.verb == verb:
                return operation, {name: unquote(value) for name, value in found.groupdict().items()}
        return None

    def refused(self, operation: Operation, query: Mapping[str, str], body: Any) -> Iterator[str]:
        """Yield what GitHub would refuse in a request."""
        for name, text in query.items():
            schema = operation.parameters.get(("query", name), {}).get("schema", {})
            integer = self.schemas.resolve(schema).get("type") == "integer" and text.lstrip("-").isdecimal()
            yield from (
                f"{name}: {problem}" for problem in self.schemas.problems(schema, int(text) if integer else text)
            )
        if operation.body is not None and body is not None:
            yield from (f"body {problem}" for problem in self.schemas.problems(operation.body, body))
        elif operation.body is not None and operation.body_required:
            yield "body is missing"

    def ignored(self, operation: Operation, query: Mapping[str, str], body: Any) -> Iterator[str]:
        """Yield what GitHub would silently ignore in a request: a mistake of the client, too."""
        yield from (f"no query parameter {name!r}" for name in query if ("query", name) not in operation.parameters)
        if query.get("per_page", "").isdecimal() and int(query["per_page"]) > 100:
            yield "per_page is 100 at most"
        if operation.body is None and body is not None:
            yield "no body"
        if operation.body is not None and isinstance(body, dict):
            known = operation.body.get("properties", {})
            yield from (f"no {name!r} in the body" for name in body if known and name not in known)

    def response_schema(
        self, operation: Operation, status: int, media_type: str = "application/json"
    ) -> Schema | None:
        """Return the schema of an answer; None where it has no body or is not described."""
        described = operation.responses.get(status, {})
        if media_type in described:
            return described[media_type]
        if status in _EVERYWHERE:
            return {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in _ERRORS]}
        return None

    def response_problems(self, operation: Operation, status: int, media_type: str, body: Any) -> Iterator[str]:
        """Yield where an answer of the stand-in is not what GitHub's description says."""
        if status not in operation.responses and status not in _EVERYWHERE and status != 304:
            yield f"{operation.name} never answers {status}"
            return
        schema = self.response_schema(operation, status, media_type)
        if body is None:
            if schema is not None:
                yield f"{operation.name} answers {status} with a body"
        elif schema is None:
            yield f"{operation.name} answers {status} without {media_type}"
        else:
            problems = list(self.schemas.problems(schema, body))
            if status < 400:  # errors repeat their status, which the description forgets
                problems += self.schemas.unknown(schema, body)
            yield from (f"{operation.name} {status} {problem}" for problem in problems)


@cache
def description() -> Description:
    """Return the one description; reading it takes longer than any exchange."""
    return Description()
