"""The action's inputs, as `action.yml` hands them over: environment variables `INPUT_<NAME>`. Standard library."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LONGEST_TEMPLATE", "InputError", "Inputs"]

CHOICES = {
    "mode": ("all", "gate", "plan", "run", "publish"),
    "isolation": ("auto", "docker", "process"),
    "comment": ("always", "on-change", "on-failure", "off"),
    "status": ("true", "false"),
    "fail-on": ("any", "fail", "never"),
    "run-result": ("", "success", "failure", "cancelled", "skipped"),
}
"""Inputs that take one of a few words, the default first."""

LONGEST_TEMPLATE = 20_000
"""Characters of `comment-template`."""

_LENGTHS = {"": 1, "s": 1, "m": 60, "h": 3600}


class InputError(Exception):
    """An input is not what it should be: one line that says what to do."""


@dataclass(frozen=True)
class Inputs:
    """What a workflow says under `with:`. Names as in `action.yml`, with underscores.

    Attributes:
        suite: a file in the checked out repository, or the name of a recipe.
        mode: which part of the work this job does.
        only: the legs that this job runs; all if there are none.
        isolation: where the legs run; `auto` takes Docker where there is one and the job itself is in no container.
        image: the image in which they run.
        docker: the program that runs containers, such as `podman`.
        gpus: `auto`, `none`, `all`, or a comma-separated list of indices or uuids.
        shm_size: of the container's /dev/shm, as `docker run` takes it.
        network: of the container, as `docker run` takes it; `none` unless the legs need one.
        setup: a shell command that is run in the container before the legs.
        timeout: of all legs together, in seconds.
        cache: a folder outside of the workspace, in which legs are kept for another run of the same commit.
        out: the folder for everything that a run leaves; relative to the workspace.
        comment: when there is one on the pull request.
        status: whether the commit gets one.
        fail_on: which verdicts make the job red: `any` but pass, `fail` and error, or `never`.
        pr_number: the pull request, where the event does not tell.
        run_result: how the job with the legs ended; nothing else than `success` can be green.
        sha: the commit under test, where it is not the event's.
        token: for the API; empty in the job that runs the legs.
        key: tells this suite's comment from another's on the same pull request.
        comment_author: login of whoever the token is, where the token cannot be asked.
        comment_template: Jinja2, of the comment's body; empty for the usual one.
    """

    suite: str = "parity.yml"
    mode: str = "all"
    only: tuple[str, ...] = ()
    isolation: str = "auto"
    image: str = ""
    docker: str = "docker"
    gpus: str = "auto"
    shm_size: str = "16g"
    network: str = "none"
    setup: str = ""
    timeout: float = 3600.0
    cache: Path | None = None
    out: Path = Path("parity-out")
    comment: str = "always"
    status: bool = True
    fail_on: str = "any"
    run_result: str = ""
    pr_number: int | None = None
    sha: str = ""
    token: str = ""
    key: str = ""
    comment_author: str = ""
    comment_template: str = ""

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Inputs:
        """Read the inputs; those that are empty have their default.

        Raises:
            InputError: one is not what it should be.
        """
        env = os.environ if env is None else env

        def get(name: str) -> str:
            return env.get("INPUT_" + name.upper().replace("-", "_"), "").strip()

        def choice(name: str) -> str:
            value = get(name) or CHOICES[name][0]
            if value not in CHOICES[name]:
                raise InputError(f"{name}: {value!r} is none of {', '.join(CHOICES[name])}")
            return value

        default = cls()
        number = get("pr-number")
        if number and not re.fullmatch(r"[1-9][0-9]{0,9}", number):
            raise InputError(f"pr-number: {number!r} is no number of a pull request")
        sha = get("sha").lower()
        if sha and not re.fullmatch(r"[0-9a-f]{40}", sha):
            raise InputError(f"sha: {sha!r} is no full commit sha of 40 hexadecimal digits")
        only = get("only").replace(",", " ").split()
        wrong = [name for name in only if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name)]
        if wrong:
            raise InputError(f"only: {wrong[0]!r} is no name of a leg")
        key = get("key")
        if key and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/ -]{0,63}", key):
            raise InputError(f"key: {key!r} is not up to 64 letters, digits, spaces, dots, slashes and dashes")
        author = get("comment-author")
        if author and not re.fullmatch(r"[A-Za-z0-9-]{1,64}(\[bot\])?", author):
            raise InputError(f"comment-author: {author!r} is no login such as parity-bot[bot]")
        template = get("comment-template")
        if len(template) > LONGEST_TEMPLATE:
            raise InputError(f"comment-template: has {len(template)} characters, more than {LONGEST_TEMPLATE}")
        shm_size = get("shm-size") or default.shm_size
        if not re.fullmatch(r"[0-9]+[bkmgBKMG]?", shm_size):
            raise InputError(f"shm-size: {shm_size!r} is no size such as 16g or 512m")
        gpus = get("gpus") or default.gpus
        if not re.fullmatch(r"auto|none|all|[A-Za-z0-9-]+(,[A-Za-z0-9-]+)*", gpus):
            raise InputError(f"gpus: {gpus!r} is not auto, none, all or a list such as 0,1")
        network = get("network") or default.network
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", network):
            raise InputError(f"network: {network!r} is no name of a network; none, bridge and host are always there")
        return cls(
            suite=get("suite") or default.suite,
            mode=choice("mode"),
            only=tuple(only),
            isolation=choice("isolation"),
            image=get("image"),
            docker=get("docker") or default.docker,
            gpus=gpus,
            shm_size=shm_size,
            network=network,
            setup=get("setup"),
            timeout=_seconds(get("timeout")) if get("timeout") else default.timeout,
            cache=Path(get("cache")) if get("cache") else None,
            out=Path(get("out")) if get("out") else default.out,
            comment=choice("comment"),
            status=choice("status") == "true",
            fail_on=choice("fail-on"),
            run_result=choice("run-result"),
            pr_number=int(number) if number else None,
            sha=sha,
            token=get("token"),
            key=key,
            comment_author=author,
            comment_template=template,
        )


def _seconds(text: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smh]?)", text)
    if not found or not float(found[1]):
        raise InputError(f"timeout: {text!r} is no length of time such as 3600, 60m or 1h")
    return float(found[1]) * _LENGTHS[found[2]]
