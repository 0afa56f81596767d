"""Suites by file or by the name of a recipe."""

from pathlib import Path

from parity.errors import UsageError

__all__ = ["RECIPES", "folder_of", "suite_path"]

RECIPES = Path(__file__).parent.parent / "recipes"


def _recipes() -> list[str]:
    return sorted(str(path.relative_to(RECIPES).with_suffix("")) for path in RECIPES.glob("*/*.yml"))


def suite_path(suite: str) -> Path:
    """A file, or else the name of a recipe.

    Raises:
        UsageError: it is neither.
    """
    path = Path(suite)
    if path.exists() or path.suffix in (".yml", ".yaml"):
        return path
    if suite in _recipes():
        return RECIPES / f"{suite}.yml"
    raise UsageError(f"{suite}: neither a file nor a recipe; the recipes are {', '.join(_recipes())}")


def folder_of(path: Path) -> Path:
    """What a suite's working folders are relative to: its own folder; for a recipe, the current one."""
    return Path() if path.is_relative_to(RECIPES) else path.parent
