"""The preflight: what must be there before the legs can run, and how they are going to be run."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entrypoint.inputs import Inputs
from entrypoint.launching import gpus
from entrypoint.launching.engine import Engine, last_line
from entrypoint.launching.findings import Finding, LaunchError, missing, one_line, warning, wrong
from entrypoint.launching.source import Source, credentials, inside_container, probe, suite_argument

__all__ = ["Image", "Ready", "identity", "preflight"]

_NOBODY = 65534
_SHM = "/dev/shm"  # noqa: S108 - shared memory's place
_PULL = 3600.0
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_ENOUGH_SHM = 1 << 30
_ENOUGH_DISK = 1 << 30


@dataclass(frozen=True)
class Image:
    """An image that is there.

    Attributes:
        name: as the workflow names it.
        id: of its content.
        digest: by which a registry knows it.
        entrypoint: what it runs.
    """

    name: str
    id: str
    digest: str | None
    entrypoint: tuple[str, ...]


@dataclass
class Ready:
    """What the preflight found. Parts that could not be found out have their default.

    Attributes:
        isolation: `docker` or `process`.
        why: how that was decided.
        suite: as `parity run` takes it.
        engine: what runs containers.
        image: what the container is made of.
        gpus: what the legs get.
        hidden: files of the repository that hold a token.
        findings: lines for a person.
    """

    isolation: str
    why: str
    suite: str
    engine: Engine | None = None
    image: Image | None = None
    gpus: gpus.Gpus = field(default_factory=lambda: gpus.Gpus("none"))
    hidden: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        return [one for one in self.findings if one.level == "error"]

    @property
    def exit_code(self) -> int:
        """0 if the legs can run. What is wrong with the inputs comes first, as only a person can mend that."""
        return min((one.exit_code for one in self.errors), default=0)


def preflight(inputs: Inputs, env: Mapping[str, str], out: Path, say: Callable[[str], None] = print) -> Ready:
    """Look at everything, and stop at nothing: a person would rather hear all at once.

    Args:
        inputs: the action's.
        env: this process's environment.
        out: the output folder, which exists.
        say: takes a line on what takes long.
    """
    source = Source(env)
    engine = Engine(inputs.docker, env)
    isolation, why = _isolation(inputs, env, engine)
    ready = Ready(isolation, why, one_line(inputs.suite))
    _try(ready, lambda: setattr(ready, "suite", suite_argument(inputs.suite, source)))
    _try(ready, lambda: _disk(ready, out))
    ready.hidden, all_searched = credentials(source)
    if not all_searched:
        ready.findings.append(
            warning("source", "there are too many files to search them all for tokens that the legs could read")
        )
    if isolation == "docker":
        _docker(ready, inputs, env, engine, source, say)
    else:
        _process(ready, inputs, env)
    ready.findings += gpus.busy(ready.gpus, env)
    return ready


def identity(engine: Engine, uid: int, gid: int) -> tuple[str, list[str], int | None]:
    """As whom the legs run in a container.

    Returns:
        `uid:gid`, options that it takes, and the user that the output folder must be given to, if it is not this one.
    """
    options = ["--security-opt", "label=disable"] if engine.selinux else []
    if engine.rootless and engine.podman:
        return f"{uid}:{gid}", [*options, "--userns", "keep-id"], None
    if engine.rootless:
        return "0:0", options, None  # which is this user, outside
    if uid == 0:
        # A runner that is root need not make the legs root, even without capabilities.
        return f"{_NOBODY}:{_NOBODY}", options, _NOBODY
    return f"{uid}:{gid}", options, None


def _isolation(inputs: Inputs, env: Mapping[str, str], engine: Engine) -> tuple[str, str]:
    if inputs.isolation != "auto":
        return inputs.isolation, f"the input says isolation: {inputs.isolation}"
    inside = inside_container(env)
    if inside:
        return "process", f"this job itself runs in a container: {inside}"
    if not engine.present():
        return "process", f"there is no {os.path.basename(inputs.docker)} on this machine"
    # Also where it does not work: legs that were to be isolated must not run otherwise for want of a permission.
    return "docker", f"there is {os.path.basename(inputs.docker)}, and this job runs in no container"


def _docker(
    ready: Ready,
    inputs: Inputs,
    env: Mapping[str, str],
    engine: Engine,
    source: Source,
    say: Callable[[str], None],
) -> None:
    add = ready.findings.append
    if ready.hidden:
        add(
            warning(
                "source",
                f"{_first(ready.hidden)} holds a token, which the legs see as an empty file;"
                " check out with persist-credentials: false",
            )
        )
    if os.geteuid() == 0 and _closed(source.path):
        add(
            missing("source", f"{source.path}: only root can read it, and the legs do not run as root: chmod -R o+rX")
        )
    if _bytes(inputs.shm_size) < _ENOUGH_SHM:
        add(
            warning(
                "shm-size",
                f"{inputs.shm_size} of shared memory is little for legs of more than one rank, which end with"
                " `Bus error` where it is too little: 1g or more",
            )
        )
    if inputs.network == "host":
        add(warning("network", "the legs reach whatever this machine does, services on its loopback among it"))
    asked = engine.asked()
    if isinstance(asked, Finding):
        add(asked)
    else:
        ready.engine = asked
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", inputs.image):
        what = f"{one_line(inputs.image)!r} is no name of an image" if inputs.image else "is empty"
        add(wrong("image", f"{what}: name one that has parity, such as that of this project's Dockerfile"))
        return
    if ready.engine is None:
        return
    found = _image(ready.engine, inputs.image, say)
    if isinstance(found, Finding):
        add(found)
    else:
        ready.image = found
    ready.gpus, findings = gpus.choose(inputs.gpus, ready.engine, env)
    ready.findings += findings


def _process(ready: Ready, inputs: Inputs, env: Mapping[str, str]) -> None:
    add = ready.findings.append
    if ready.hidden:
        add(
            wrong(
                "source",
                f"{_first(ready.hidden)} holds a token or leads to one, which legs that run as processes could read:"
                " check out with persist-credentials: false",
            )
        )
    asked = gpus.wanted(inputs.gpus, env)
    if asked != "none":
        there, problem = gpus.listed(env)
        if problem and inputs.gpus != "auto":
            add(missing("gpus", problem))
        devices = ("all",) if asked in ("auto", "all") else tuple(asked.split(","))
        if there:
            ready.gpus = gpus.Gpus(asked, devices, "process")
    try:
        size = shutil.disk_usage(_SHM).total
    except OSError:
        size = 0
    if size < _ENOUGH_SHM:
        add(
            warning(
                "shm-size",
                f"{_SHM} has {size >> 20} MiB, which is little for legs of more than one rank: give this job's"
                " container more, as with options: --shm-size=16g, or an emptyDir with medium: Memory",
            )
        )


def _image(engine: Engine, name: str, say: Callable[[str], None]) -> Image | Finding:
    done = engine.call("image", "inspect", name)
    if done.returncode:
        say(f"image: {name} is not on this machine and is pulled")
        pulled = engine.call("pull", "--quiet", name, timeout=_PULL)
        if pulled.returncode:
            said = last_line(pulled.stderr) or f"exit code {pulled.returncode}"
            return missing("image", f"{name} is not on this machine and cannot be pulled: {said}")
        done = engine.call("image", "inspect", name)
    try:
        found: dict[str, Any] = json.loads(done.stdout)[0]
        digests: Sequence[str] = found.get("RepoDigests") or []
        entrypoint = (found.get("Config") or {}).get("Entrypoint") or ["parity"]
        return Image(name, str(found["Id"]), digests[0] if digests else None, tuple(map(str, entrypoint)))
    except (ValueError, LookupError, TypeError, AttributeError):
        return missing("image", f"`image inspect {name}` fails: {last_line(done.stderr) or 'no description'}")


def _disk(ready: Ready, out: Path) -> None:
    free = probe(out)
    if free < _ENOUGH_DISK:
        ready.findings.append(warning("out", f"{out}: {free >> 20} MiB are free, which many legs' logs may fill"))


def _try(ready: Ready, part: Callable[[], None]) -> None:
    try:
        part()
    except LaunchError as error:
        ready.findings.append(error.finding)


def _first(names: Sequence[str]) -> str:
    return one_line(names[0]) + (f" (and {len(names) - 1} more)" if len(names) > 1 else "")


def _closed(path: Path) -> bool:
    mode = path.stat().st_mode if path.exists() else 0
    return not mode & stat.S_IROTH or not mode & stat.S_IXOTH


def _bytes(size: str) -> int:
    found = re.fullmatch(r"([0-9]+)([bkmg]?)", size.lower())
    return int(found[1]) * _UNITS[found[2]] if found else 0
