"""The committed JSON schemas, generated from the models. `python -m parity.schemas` writes them anew."""

import json
from pathlib import Path
from typing import Any

from parity.result import Result
from parity.suite import Suite

__all__ = ["FOLDER", "generate"]

FOLDER = Path(__file__).parent


def generate() -> dict[str, str]:
    """The schemas' texts by file name."""
    schemas: dict[str, dict[str, Any]] = {
        "suite.schema.json": {"title": "parity.yml", **Suite.model_json_schema()},
        "result.schema.json": {"title": "result.json", **Result.model_json_schema(mode="serialization")},
    }
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {name: json.dumps({**dialect, **schema}, indent=1) + "\n" for name, schema in schemas.items()}
