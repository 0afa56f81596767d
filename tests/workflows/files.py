"""The action and the workflows, read."""

from pathlib import Path
from typing import Any

import yaml

__all__ = ["ACTION", "ROOT", "STARTERS", "WORKFLOWS", "load"]

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / "action.yml"
STARTERS = sorted((ROOT / "workflows").glob("*.yml"))
WORKFLOWS = [*STARTERS, *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]


def load(path: Path) -> Any:
    """Return what is in it; every key is text, `on` as well."""
    return yaml.load(path.read_text(), Loader=yaml.BaseLoader)
