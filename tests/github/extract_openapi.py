"""Write `openapi.json`: the operations of GitHub's OpenAPI description that the stand-in knows.

    python -m tests.github.extract_openapi [octokit-openapi-23.0.2.tgz]

Without an archive it is got by `npm pack`. What is only for people to read is left out, and OpenAPI 3.0's `nullable`
becomes 3.1's `"type": [..., "null"]`, so that every schema in the file is plain JSON Schema.
"""

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["load", "references", "write"]

PACKAGE, VERSION = "@octokit/openapi", "23.0.2"
MEMBER = "package/generated/api.github.com.json"
REPO = "/repos/{owner}/{repo}"
OPERATIONS = {
    "/user": ["get"],
    REPO: ["get"],
    f"{REPO}/collaborators/{{username}}/permission": ["get"],
    f"{REPO}/commits/{{ref}}": ["get"],
    f"{REPO}/commits/{{ref}}/status": ["get"],
    f"{REPO}/commits/{{ref}}/statuses": ["get"],
    f"{REPO}/commits/{{commit_sha}}/pulls": ["get"],
    f"{REPO}/issues": ["get", "post"],
    f"{REPO}/issues/{{issue_number}}": ["get", "patch"],
    f"{REPO}/issues/{{issue_number}}/comments": ["get", "post"],
    f"{REPO}/issues/comments/{{comment_id}}": ["get", "patch", "delete"],
    f"{REPO}/issues/comments/{{comment_id}}/reactions": ["get", "post"],
    f"{REPO}/pulls": ["get"],
    f"{REPO}/pulls/{{pull_number}}": ["get"],
    f"{REPO}/pulls/{{pull_number}}/commits": ["get"],
    f"{REPO}/statuses/{{sha}}": ["post"],
}
# Errors that GitHub answers from any operation, whether its description says so or not.
ERRORS = ["basic-error", "validation-error", "validation-error-simple"]
# Where GitHub is known to answer otherwise: a pull request whose fork was deleted has no repository at its head.
HEADS_WITHOUT_REPOSITORY = ["pull-request", "pull-request-simple"]
READING_MATTER = {"description", "summary", "title", "example", "examples", "externalDocs", "tags", "headers"}
KEPT_EXTENSIONS = {"x-multi-segment"}


def load(package: str, version: str, member: str, archive: str | None) -> Any:
    """Return the JSON file `member` of an npm package, from `archive` or, without one, from npm."""
    with tempfile.TemporaryDirectory() as folder:
        if archive is None:
            subprocess.run(["npm", "pack", "--silent", f"{package}@{version}"], cwd=folder, check=True)
            archive = str(next(Path(folder).glob("*.tgz")))
        with tarfile.open(archive) as packed:
            file = packed.extractfile(member)
            if file is None:
                raise SystemExit(f"{archive} has no file {member}")
            return json.load(file)


def references(node: Any) -> set[str]:
    """Return every `$ref` below `node`."""
    if isinstance(node, dict):
        below = set().union(*map(references, node.values())) if node else set()
        return below | {node["$ref"]} if isinstance(node.get("$ref"), str) else below
    return set().union(*map(references, node)) if isinstance(node, list) and node else set()


def write(name: str, document: Any) -> None:
    """Write one line for each schema and operation: small, and a new version can still be reviewed as a diff."""
    parts = []
    for key, value in document.items():
        if isinstance(value, dict) and value and all(isinstance(inner, dict) for inner in value.values()):
            inner = [f"{json.dumps(name)}: {_lines(entry)}" for name, entry in value.items()]
            parts.append(f"{json.dumps(key)}: {{\n" + ",\n".join(inner) + "\n}")
        else:
            parts.append(f"{json.dumps(key)}: {_compact(value)}")
    Path(__file__).with_name(name).write_text("{\n" + ",\n".join(parts) + "\n}\n")


def _lines(entry: dict[str, Any]) -> str:
    if not all(isinstance(inner, dict) for inner in entry.values()):
        return _compact(entry)
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {_compact(inner)}" for key, inner in entry.items()) + "\n}"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _strip(node: Any, names: bool = False) -> Any:
    """Leave out what is only to be read. `names`: the keys of `node` are names of properties, not keywords."""
    if isinstance(node, list):
        return [_strip(entry) for entry in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: _strip(value, names=key == "properties" and not names)
        for key, value in node.items()
        if names or not (key in READING_MATTER or (key.startswith("x-") and key not in KEPT_EXTENSIONS))
    }
    return kept if names else _allow_null(kept)


def _allow_null(schema: dict[str, Any]) -> dict[str, Any]:
    if not schema.pop("nullable", False):
        return schema
    if "type" not in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    schema["type"] = [schema["type"], "null"]
    if "enum" in schema:
        schema["enum"] = [*(value for value in schema["enum"] if value is not None), None]
    return schema


def main() -> None:
    whole = load(PACKAGE, VERSION, MEMBER, sys.argv[1] if len(sys.argv) > 1 else None)
    paths = {path: {verb: _strip(whole["paths"][path][verb]) for verb in verbs} for path, verbs in OPERATIONS.items()}
    components: dict[str, dict[str, Any]] = {}
    for name in HEADS_WITHOUT_REPOSITORY:
        head = whole["components"]["schemas"][name]["properties"]["head"]["properties"]
        head["repo"] = {"nullable": True, **head["repo"]}
    wanted = references(paths) | {f"#/components/schemas/{name}" for name in ERRORS}
    while wanted:
        _, _, kind, name = wanted.pop().split("/")
        entry = _strip(whole["components"][kind][name])
        components.setdefault(kind, {})[name] = entry
        wanted |= {ref for ref in references(entry) if ref.split("/")[3] not in components.get(ref.split("/")[2], {})}
    write(
        "openapi.json",
        {
            "openapi": "3.1.0",
            "info": {"title": f"{PACKAGE} {VERSION}, extract", "version": VERSION, "license": {"name": "MIT"}},
            "paths": paths,
            "components": {kind: dict(sorted(entries.items())) for kind, entries in sorted(components.items())},
        },
    )


if __name__ == "__main__":
    main()
