"""What a repository begins with: a recipe with its files, and a workflow that runs it."""

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from parity.errors import UsageError
from parity.untrusted import replacing

__all__ = ["STARTERS", "Start", "begin", "described", "write_all"]

_STARTERS = Path(__file__).parent / "starters"
STARTERS = tuple(sorted(path.stem.removeprefix("parity-") for path in _STARTERS.glob("*.yml")))
"""The workflows that there are, by name."""

# In this order, for what is installed without its dependencies must not be missed by what asks for it.
_REQUIREMENTS = {"requirements-no-deps.txt": "--no-deps -r", "requirements.txt": "-r"}
_PLACE = re.compile(r"^( +)timeout: \S+$", re.MULTILINE)


@dataclass(frozen=True)
class Start:
    """What is to be written.

    Attributes:
        files: content by place.
        suite: the place of the suite.
        workflow: the place of the workflow, if there is one.
        setup: the commands that install what its legs need; empty where parity suffices.
    """

    files: Mapping[Path, bytes]
    suite: Path
    workflow: Path | None
    setup: str


def described(recipe: Path) -> str:
    """The first sentence of the comment at the top of a recipe."""
    lines = recipe.read_text(encoding="utf-8").splitlines()
    text = " ".join(line.removeprefix("#").strip() for line in lines[: _comments(lines)])
    return re.split(r"(?<=[.?]) ", text)[0]


def _comments(lines: list[str]) -> int:
    return next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))


def begin(recipe: Path, suite: Path, starter: str | None) -> Start:
    """A recipe as it is, its files beside it, and a workflow at the top of the repository.

    Args:
        recipe: the recipe's suite.
        suite: where the suite is to be.
        starter: which workflow, one of `STARTERS`; None for none.

    Raises:
        UsageError: a workflow could not name the suite, which lies outside of the repository.
    """
    folder = suite.parent
    files = {suite: recipe.read_bytes()}
    files |= {folder / path.relative_to(recipe.parent): path.read_bytes() for path in _beside(recipe)}
    top = _top()
    within = Path(os.path.relpath(folder, top))
    workflow = None
    if starter is not None:
        if within.parts[:1] == ("..",):
            raise UsageError(f"{suite}: lies outside of {top}, where the workflow is: give another PATH")
        workflow = Path(os.path.relpath(top / ".github" / "workflows" / "parity.yml"))
        text = (_STARTERS / f"parity-{starter}.yml").read_text(encoding="utf-8")
        files[workflow] = _filled(text, within / suite.name, _setup(recipe, within)).encode()
    return Start(files, suite, workflow, _setup(recipe, folder))


def _setup(recipe: Path, folder: Path) -> str:
    """The commands that install what is in a recipe's requirements, which lie in a folder."""
    return " && ".join(
        f"pip install {option} {shlex.quote(str(folder / name))}"
        for name, option in _REQUIREMENTS.items()
        if (recipe.parent / name).exists()
    )


def _beside(recipe: Path) -> Iterator[Path]:
    """The files that a recipe needs: those of its framework, but for other suites and the page."""
    if not list(recipe.parent.glob("*.py")) and not (recipe.parent / "requirements.txt").exists():
        return
    for path in sorted(recipe.parent.rglob("*")):
        other_suite = path.parent == recipe.parent and path.suffix == ".yml"
        if path.is_file() and not other_suite and path.name != "README.md" and path.suffix != ".pyc":
            yield path


def _top() -> Path:
    """The repository's folder, or else the current one."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def _filled(workflow: str, suite: Path, setup: str) -> str:
    """A starter for this suite; the step that runs the legs installs what they need, by the network."""
    text = re.sub(r"(?<=\bsuite: )parity\.yml$", lambda _: _scalar(suite.as_posix()), workflow, flags=re.MULTILINE)
    text = text.replace(", and the suite if it is not `parity.yml`", "")
    if setup:
        more = ("", f"setup: {_scalar(setup)}", "network: bridge # setup downloads")
        text = _PLACE.sub(lambda match: match[0] + f"\n{match[1]}".join(more), text)
    return text


def _scalar(text: str) -> str:
    return yaml.safe_dump(text, width=1 << 16, allow_unicode=True).removesuffix("...\n").rstrip("\n")


def write_all(files: Mapping[Path, bytes], force: bool) -> list[Path]:
    """Write files, all or none of them; one that is there and the same is left as it is.

    Returns:
        Those that were written.

    Raises:
        UsageError: a file is there already and is not to be overwritten, or one cannot be written.
    """
    new = {path: content for path, content in files.items() if not _same(path, content)}
    odd = [path for path in new if path.is_dir()]
    if odd:
        raise UsageError(*(f"{path}: is a folder; nothing was written" for path in odd))
    there = [path for path in new if os.path.lexists(path)]
    if there and not force:
        raise UsageError(
            *(f"{path}: exists already; --force overwrites it, and nothing was written" for path in there)
        )
    folders: list[Path] = []
    try:
        with contextlib.ExitStack() as stack:
            for path, content in new.items():
                folders += [one for one in (path.parent, *path.parent.parents) if not one.exists()]
                path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(replacing(path)).write(content)
    except OSError as error:
        failed = UsageError(f"{error.filename}: cannot be made: {error.strerror}; nothing was written")
    except UsageError as error:
        failed = error
    else:
        return list(new)
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()
    raise failed


def _same(path: Path, content: bytes) -> bool:
    try:
        return path.is_file() and path.read_bytes() == content
    except OSError:
        return False
