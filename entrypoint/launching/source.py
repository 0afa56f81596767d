"""The checked out repository and the output folder, which the repository may try to lead elsewhere.

Nothing of the repository is run here, nor does git read its configuration: that can name programs.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from entrypoint.launching.findings import LaunchError, missing, one_line, wrong

__all__ = [
    "Source",
    "credentials",
    "host_path",
    "inside_container",
    "prepare_out",
    "probe",
    "suite_argument",
    "tested_sha",
]

_RECIPE = re.compile(r"[A-Za-z0-9_]+(?:-[A-Za-z0-9_]+)*/[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_CREDENTIAL = re.compile(rb"extraheader|git-credentials-|^\s*helper\s*=|url\s*=\s*\w+://[^/\s]*@", re.I | re.M)
_LARGEST = 1 << 20
_LEAST_FREE = 16 << 20


class Source:
    """Where the repository is, for this process and for the program that runs containers.

    Args:
        env: this process's environment.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self.path = Path(os.path.abspath(env.get("GITHUB_WORKSPACE") or os.getcwd()))
        host = env.get("PARITY_HOST_WORKSPACE", "")
        self.host = Path(host) if os.path.isabs(host) else self.path
        """The same folder where the daemon looks for it: another path, if this job runs in a container."""


def host_path(path: Path, source: Source) -> Path:
    """A path as the daemon sees it.

    Raises:
        LaunchError: it lies in this job's container alone.
    """
    if source.host == source.path:
        return path
    try:
        return source.host / path.relative_to(source.path)
    except ValueError:
        raise LaunchError(
            wrong(
                "out", f"{path} is a folder of this job's container alone: give one in the workspace, {source.path}"
            )
        ) from None


def inside_container(env: Mapping[str, str], root: Path = Path("/")) -> str:
    """What shows that this job itself runs in a container; empty if nothing does."""
    workspace, host = env.get("GITHUB_WORKSPACE", ""), env.get("PARITY_HOST_WORKSPACE", "")
    if workspace and host and os.path.normpath(workspace) != os.path.normpath(host):
        return "the workspace has another path on the host"
    if env.get("KUBERNETES_SERVICE_HOST"):
        return "it runs in a Kubernetes pod"
    for name in (".dockerenv", "run/.containerenv"):
        if (root / name).exists():
            return f"there is a file /{name}"
    return ""


def suite_argument(suite: str, source: Source) -> str:
    """The suite as `parity run` takes it in the repository's folder: a path without links out of it, or a recipe.

    Raises:
        LaunchError: there is no such file, it is none, or it lies elsewhere.
    """
    shown = one_line(suite)
    top = os.path.realpath(source.path)
    path = os.path.join(source.path, suite)
    try:
        if not os.path.lexists(path):
            if _RECIPE.fullmatch(suite) and not suite.endswith((".yml", ".yaml")):
                return suite
            raise LaunchError(
                wrong("suite", f"{shown}: no such file in the repository; was it checked out, and is it committed?")
            )
        real = os.path.realpath(path)
        if os.path.commonpath([top, real]) != top:
            raise LaunchError(wrong("suite", f"{shown}: leads out of the repository; name a file in it"))
        if not stat.S_ISREG(os.stat(real).st_mode):
            raise LaunchError(wrong("suite", f"{shown}: is no file; name a suite, such as parity.yml"))
    except (OSError, ValueError) as error:
        raise LaunchError(wrong("suite", f"{shown}: cannot be read: {one_line(error)}")) from None
    # The path as it was given, unless it goes up and down again, as links on its way would then count.
    plain = os.path.relpath(os.path.abspath(path), source.path)
    inside = os.path.relpath(real, top) if plain.startswith("..") else plain
    return f"./{inside}" if inside.startswith("-") else inside


def prepare_out(out: Path, source: Source, empty: bool = True) -> tuple[Path, Path]:
    """Make the output folder, with an empty `run` in it; an earlier run of ours there is removed.

    Args:
        out: the input.
        source: the repository, which may hold a folder or a link of that name.
        empty: False leaves an earlier run where it is, and makes no `run`.

    Returns:
        The output folder, and the run directory in it. Both absolute.

    Raises:
        LaunchError: it is reached by a link that the repository may hold, it is taken, or it cannot be written.
    """
    folder = Path(os.path.abspath(source.path / out))
    run, note = folder / "run", folder / "launch.json"
    try:
        _refuse_links(folder, source.path)
        folder.mkdir(parents=True, exist_ok=True)
        if not empty:
            return folder, run
        if note.is_dir() and not note.is_symlink():
            raise LaunchError(wrong("out", f"{note}: is a folder; give another `out`"))
        if run.is_dir() and not run.is_symlink():
            ours = any(os.path.lexists(path) for path in (run / "suite.json", run / "result.json", note))
            if any(run.iterdir()) and not ours:
                raise LaunchError(wrong("out", f"{run}: holds files that are not from a run; give another folder"))
            shutil.rmtree(run)
        elif os.path.lexists(run):
            run.unlink()
        note.unlink(missing_ok=True)
        run.mkdir(mode=0o755)
    except (NotADirectoryError, FileExistsError):
        raise LaunchError(wrong("out", f"{folder}: is a file, or lies below one; give a folder")) from None
    except OSError as error:
        raise LaunchError(
            missing("out", f"{folder}: cannot be written ({error.strerror}): free the disk, or remove what root left")
        ) from None
    return folder, run


def probe(folder: Path) -> int:
    """Bytes that are free for a folder.

    Raises:
        LaunchError: nothing can be written there.
    """
    draft = folder / f".parity-{os.getpid()}"
    try:
        with draft.open("xb") as file:
            file.write(bytes(1 << 16))
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise LaunchError(missing("out", f"{folder}: cannot be written ({error.strerror}): free some disk")) from None
    finally:
        draft.unlink(missing_ok=True)
    if free < _LEAST_FREE:
        raise LaunchError(missing("out", f"{folder}: {free >> 20} MiB are free: free some disk"))
    return free


def credentials(source: Source) -> list[str]:
    """Files of git in the repository that hold a token or lead to one, as actions/checkout leaves them by default."""
    return [name for name in _configurations(source.path) if _CREDENTIAL.search(_read(source.path / name))]


def _configurations(top: Path) -> Iterator[str]:
    if (top / ".git").is_symlink() or not (top / ".git").is_dir():
        return
    yield ".git/config"
    yield ".git/config.worktree"
    for folder, _, files in os.walk(top / ".git" / "modules"):
        for name in files:
            if name in ("config", "config.worktree"):
                yield os.path.relpath(os.path.join(folder, name), top)


def tested_sha(source: Source) -> str | None:
    """The commit that is checked out, if a plain look at .git tells it."""
    git = source.path / ".git"
    if git.is_symlink():
        return None
    head = _read(git / "HEAD").decode("ascii", "replace").strip()
    if _SHA.fullmatch(head):
        return head
    ref = head[5:] if head.startswith("ref: ") else ""
    if not re.fullmatch(r"refs/[\w./-]{1,250}", ref) or ".." in ref:
        return None
    direct = _read(git / ref).decode("ascii", "replace").strip()
    if _SHA.fullmatch(direct):
        return direct
    for line in _read(git / "packed-refs").decode("ascii", "replace").splitlines():
        sha, _, name = line.partition(" ")
        if name == ref and _SHA.fullmatch(sha):
            return sha
    return None


def _read(path: Path) -> bytes:
    """The beginning of a regular file; nothing where there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(handle, "rb") as file:
        return file.read(_LARGEST) if stat.S_ISREG(os.fstat(handle).st_mode) else b""


def _refuse_links(folder: Path, top: Path) -> None:
    """Refuse a folder below `top` that is reached by a link."""
    if not folder.is_relative_to(top):
        return
    for path in (folder, *folder.parents):
        if path == top:
            return
        if path.is_symlink():
            raise LaunchError(wrong("out", f"{path}: is a link, which the repository may hold; give another folder"))
