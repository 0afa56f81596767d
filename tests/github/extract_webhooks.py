"""Write `webhooks.json`: the schemas of the event payloads that `events.py` builds.

python -m tests.github.extract_webhooks [octokit-webhooks-schemas-7.6.1.tgz]
"""

import sys
from typing import Any

from .extract_openapi import load, references, write

PACKAGE, VERSION = "@octokit/webhooks-schemas", "7.6.1"
EVENTS = [
    "issue_comment$created",
    "issue_comment$edited",
    "pull_request$opened",
    "pull_request$synchronize",
    "pull_request$closed",
    "push$event",
    "workflow_dispatch$event",
]
READING_MATTER = {"description", "title", "examples", "tsAdditionalProperties"}


def _strip(node: Any, names: bool = False) -> Any:
    if isinstance(node, list):
        return [_strip(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _strip(value, names=key == "properties" and not names)
        for key, value in node.items()
        if names or (key not in READING_MATTER and key != "$schema")
    }


def main() -> None:
    whole = load(PACKAGE, VERSION, "package/schema.json", sys.argv[1] if len(sys.argv) > 1 else None)["definitions"]
    definitions: dict[str, Any] = {}
    wanted = set(EVENTS)
    while wanted:
        name = wanted.pop()
        definitions[name] = _strip(whole[name])
        wanted |= {reference.split("/")[-1] for reference in references(definitions[name])} - definitions.keys()
    write(
        "webhooks.json",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$comment": f"{PACKAGE} {VERSION}, extract, MIT",
            "definitions": dict(sorted(definitions.items())),
        },
    )


if __name__ == "__main__":
    main()
