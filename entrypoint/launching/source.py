"""The checked out repository and the output folder, which the repository may try to lead elsewhere.

Nothing of the repository is run here, nor does git read its configuration: that can name programs.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from entrypoint.launching import tree
from entrypoint.launching.findings import LaunchError, missing, one_line, wrong

__all__ = [
    "Source",
    "credentials",
    "host_path",
    "in_checkout",
    "inside_container",
    "out_folder",
    "prepare_out",
    "probe",
    "seal",
    "suite_argument",
    "tested_sha",
]

_RECIPE = re.compile(r"[A-Za-z0-9_]+(?:-[A-Za-z0-9_]+)*/[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_CREDENTIAL = re.compile(rb'extraheader|git-credentials-|helper\s*=|cookiefile|askpass|\w+://[^/\s"]*@', re.I)
_ALWAYS = re.compile(r"gha-creds-.*\.json|\.git-credentials", re.DOTALL)
_CONFIGURATION = ("config", "config.worktree", "FETCH_HEAD", ".gitconfig")
_MOST_ENTRIES = 1_000_000
_LARGEST = 1 << 20
_LEAST_FREE = 16 << 20


class Source:
    """Where the repository is, for this process and for the program that runs containers.

    Args:
        env: this process's environment.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self.path = Path(os.path.abspath(env.get("GITHUB_WORKSPACE") or os.getcwd()))
        self.checkout = bool(env.get("GITHUB_WORKSPACE"))
        """Whether a job has made it, rather than a person who works in it."""
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


def out_folder(out: Path, source: Source) -> Path:
    """The input `out`, as an absolute path; links on its way are not followed."""
    return Path(os.path.abspath(source.path / out))


def in_checkout(folder: Path, source: Source) -> bool:
    """Whether a folder lies in what a job has checked out: whoever wrote the code may have put something there."""
    git = source.path / ".git"
    inside = folder.is_relative_to(source.path) and folder != source.path and not folder.is_relative_to(git)
    return source.checkout and inside


def prepare_out(out: Path, source: Source, empty: bool = True) -> tuple[Path, Path]:
    """Make the output folder, with an empty `run` in it; an earlier run of ours there is removed.

    In a checkout everything that lies in it is removed: it came with the code under test, or is of an earlier launch.

    Args:
        out: the input.
        source: the repository, which may hold a folder or a link of that name.
        empty: False leaves an earlier run where it is, and makes no `run`.

    Returns:
        The output folder, and the run directory in it. Both absolute.

    Raises:
        LaunchError: it is reached by a link that the repository may hold, it is taken, or it cannot be written.
    """
    folder = out_folder(out, source)
    run, note = folder / "run", folder / "launch.json"
    try:
        if source.path.is_relative_to(folder) or folder.is_relative_to(source.path / ".git"):
            tree.remove(note)
            raise LaunchError(wrong("out", f"{folder}: holds the repository, or is git's; give a folder of its own"))
        _refuse_links(folder, source.path)
        folder.mkdir(parents=True, exist_ok=True)
        if not empty:
            return folder, run
        if in_checkout(folder, source):
            tree.empty(folder)
        else:
            _refuse_others(folder)
        tree.remove(run)
        tree.remove(note)
        run.mkdir(mode=0o755)
    except (NotADirectoryError, FileExistsError):
        raise LaunchError(wrong("out", f"{folder}: is a file, or lies below one; give a folder")) from None
    except OSError as error:
        raise LaunchError(
            missing("out", f"{folder}: cannot be written ({error.strerror}): free the disk, or remove what root left")
        ) from None
    return folder, run


def _refuse_others(folder: Path) -> None:
    """Refuse a folder with a `run` that is somebody else's."""
    run, note = folder / "run", folder / "launch.json"
    if note.is_dir() and not note.is_symlink():
        raise LaunchError(wrong("out", f"{note}: is a folder; give another `out`"))
    if run.is_dir() and not run.is_symlink() and not os.path.lexists(note):
        # Without a note it is ours where it looks so, and one that is closed to its owner was closed by a leg.
        closed = run.stat().st_mode & 0o700 != 0o700
        ours = closed or any(os.path.lexists(run / name) for name in ("suite.json", "result.json"))
        if not ours and any(run.iterdir()):
            raise LaunchError(wrong("out", f"{run}: holds files that are not from a run; give another folder"))


def seal(folder: Path, source: Source, keep: Collection[str] | None = None) -> tree.Counts:
    """Leave no link in the output folder, nor on the way to it through a checkout, nor what an upload refuses.

    Elsewhere than in a checkout only `run` and `launch.json` are looked at, as the rest is not ours.

    Args:
        folder: the output folder, which need not exist.
        source: the repository.
        keep: in a checkout, what alone may stay; None for everything.

    Raises:
        OSError: it cannot be brought to that.
    """
    run, note = folder / "run", folder / "launch.json"
    if in_checkout(folder, source):
        for path in (*reversed(folder.parents), folder):
            if path != source.path and path.is_relative_to(source.path) and path.is_symlink():
                path.unlink()
        if not folder.is_dir():
            return tree.Counts()
        if keep is not None:
            tree.empty(folder, keep)
        return tree.sweep(folder)
    for path in (run, note):
        if path.is_symlink():
            path.unlink()
    return tree.sweep(run) if run.is_dir() else tree.Counts()


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


def credentials(source: Source, most: int = _MOST_ENTRIES) -> tuple[list[str], bool]:
    """Files in the repository's folder that hold a token or lead to one, as actions leave them there by default.

    That is each configuration of git, those of submodules and of further checkouts too, and what cloud logins leave.
    No link is followed.

    Returns:
        The files, and whether that is all: after so many files and folders there is no further search.
    """
    found: list[str] = []
    for path in _private(source.path, most):
        if path is None:
            return sorted(found), False
        name = os.path.basename(path)
        if _ALWAYS.fullmatch(name) or _CREDENTIAL.search(_read(Path(path))):
            found.append(os.path.relpath(path, source.path))
    return sorted(found), True


def _private(top: Path, most: int) -> Iterator[str | None]:
    """Files that may hold a token, and None where there is too much to search. Git's folders come first."""
    first: list[str] = []
    waiting, seen = deque([str(top)]), 0
    while first or waiting:
        folder = first.pop() if first else waiting.popleft()
        try:
            with os.scandir(folder) as entries:
                here = []
                for entry in entries:
                    seen += 1
                    if seen > most:
                        yield None
                        return
                    here.append((entry.name, entry.is_dir(follow_symlinks=False)))
        except OSError:
            continue  # legs in a container cannot read it either, nor what is in it
        names = {name for name, _ in here}
        gits = ".git" in folder[len(str(top)) :].split(os.sep) or {"HEAD", "objects"} <= names
        for name, is_folder in here:
            path = os.path.join(folder, name)
            if is_folder:
                # Contents, of which there are most, are no configuration.
                if not (gits and name == "objects" and "HEAD" in names):
                    (first if gits or name.endswith(".git") else waiting).append(path)
            elif _ALWAYS.fullmatch(name) or name == ".gitconfig" or (gits and name in _CONFIGURATION):
                yield path


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
