"""The `docker run` of the legs. Pure: a description in, its arguments out."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from entrypoint.launching.engine import PROXIES
from entrypoint.launching.gpus import Gpus
from entrypoint.launching.setup import with_setup

__all__ = ["CACHE", "LABEL", "OUT", "SOURCE", "Container", "environment"]

SOURCE = "/src"
OUT = "/out"
CACHE = "/cache"
LABEL = "org.parity-action"
"""Every container of ours has it; `.run` names the job of a runner, `.launch` the one launch."""

_TMP = "/tmp"  # noqa: S108 - the container's own
_PASSED_ON = ("CI", "PARITY_SKETCH_STEPS")


def environment(env: Mapping[str, str], network: str) -> dict[str, str]:
    """What the legs get of the environment: two variables by name, and what a container without a home needs.

    A suite's own `env:` is the place for everything else, as it is in the report then.
    """
    given = {name: env[name] for name in _PASSED_ON if name in env}
    if network == "none":
        # There is no other interface, and no name of this machine that would lead to one. Engines hand on the
        # proxies of their configuration, with passwords; no one can use them here.
        given.update(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo", **dict.fromkeys(PROXIES, ""))
    return {
        **given,
        # The one place that can be written to beside /out, whatever place the image names.
        "HOME": _TMP,
        "TMPDIR": _TMP,
        "TORCHINDUCTOR_CACHE_DIR": f"{_TMP}/torchinductor",
        "TRITON_CACHE_DIR": f"{_TMP}/triton",
        # There is no entry in /etc/passwd for a user by number, and getpass.getuser() fails without one of these.
        "USER": "parity",
        "LOGNAME": "parity",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }


@dataclass(frozen=True)
class Container:
    """One container.

    Attributes:
        program: what runs it.
        image: what it is made of.
        name: of no other container.
        labels: by which it is found again.
        cidfile: where its id is written to; must not exist.
        user: `uid:gid`.
        source: the checked out repository, as the daemon sees it.
        out: the one folder that it may write to, as the daemon sees it.
        command: the image's command, such as `run parity.yml --out /out`.
        network: its network.
        shm_size: of its /dev/shm.
        gpus: its devices.
        env: its environment, beside the image's own.
        hidden: files of the source that it sees as empty.
        entrypoint: the image's; only used with a setup command, which takes its place.
        setup: a shell command to run before.
        options: more options, as rootless engines need.
        cache: a further folder that it may write to, as the daemon sees it; none if empty.
    """

    program: str
    image: str
    name: str
    labels: Mapping[str, str]
    cidfile: str
    user: str
    source: str
    out: str
    command: Sequence[str]
    network: str = "none"
    shm_size: str = "16g"
    gpus: Gpus = field(default_factory=lambda: Gpus("none"))
    env: Mapping[str, str] = field(default_factory=dict)
    hidden: Sequence[str] = ()
    entrypoint: Sequence[str] = ("parity",)
    setup: str = ""
    options: Sequence[str] = ()
    cache: str = ""

    def argv(self) -> list[str]:
        """The whole command line, word by word; no shell reads it."""
        words = [self.program, "run", "--rm", "--pull", "never", "--name", self.name, "--cidfile", self.cidfile]
        for key, value in self.labels.items():
            words += ["--label", f"{key}={value}"]
        # An init, so that signals end a process that has no handler for them, and orphans are waited for.
        words += ["--init", "--stop-timeout", "3", "--log-driver", "none"]
        words += ["--user", self.user, *self.options, "--workdir", SOURCE]
        words += ["--network", self.network]
        if self.network == "none":
            # torchrun and others meet at this machine's name, which must lead to the one interface that there is.
            words += ["--hostname", "localhost"]
        words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        # Four thousand: a rank of PyTorch has up to some hundred threads. Core files would fill the disk.
        words += ["--pids-limit", "4096", "--ulimit", "core=0"]
        # No limit of its own in memory: what the legs may take of the machine's is the machine's to say.
        words += ["--read-only", "--tmpfs", f"{_TMP}:rw,exec,nosuid,nodev,mode=1777,size=50%"]
        words += ["--shm-size", self.shm_size]
        words += ["--mount", _mount("bind", self.source, SOURCE, readonly=True)]
        for name in self.hidden:
            words += ["--mount", _mount("bind", "/dev/null", f"{SOURCE}/{name}", readonly=True)]
        words += ["--mount", _mount("bind", self.out, OUT)]
        if self.cache:
            words += ["--mount", _mount("bind", self.cache, CACHE)]
        words += self.gpus.argv()
        for key, value in self.env.items():
            words += ["--env", f"{key}={value}"]
        if not self.setup:
            return [*words, self.image, *self.command]
        shell = with_setup(self.setup, [*self.entrypoint, *self.command], f"{_TMP}/setup")
        return [*words, "--entrypoint", "sh", self.image, *shell]


def _mount(kind: str, source: str, target: str, readonly: bool = False) -> str:
    """The value of `--mount`, which is read as a line of CSV: a path may hold a comma or a colon."""
    text = io.StringIO()
    fields = [f"type={kind}", f"source={source}", f"target={target}", *(["readonly"] if readonly else [])]
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()
