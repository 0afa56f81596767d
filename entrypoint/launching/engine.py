"""The program that runs containers: Docker, or one with the same command line, such as podman."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from entrypoint.launching.findings import Finding, missing, one_line

__all__ = ["PROXIES", "Engine", "program_environment"]

# What the program itself needs to find its daemon, its login and its storage. Nothing of it goes into a container,
# but podman hands on the proxies of its own environment, which may hold a password.
_OWN = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_TLS_VERIFY",
    "DOCKER_CERT_PATH",
    "DOCKER_API_VERSION",
    "CONTAINER_HOST",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "REGISTRY_AUTH_FILE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
PROXIES = tuple(
    case(f"{kind}_proxy") for kind in ("http", "https", "ftp", "all", "no") for case in (str.lower, str.upper)
)


def program_environment(env: Mapping[str, str], proxies: bool) -> dict[str, str]:
    """The environment of the program that runs containers: no token, no input, nothing of the runner's."""
    return {name: env[name] for name in (*_OWN, *(PROXIES if proxies else ())) if name in env}


@dataclass(frozen=True)
class Engine:
    """One such program.

    Attributes:
        program: its name or path.
        env: this process's environment.
        info: what it says of itself and its daemon.
    """

    program: str
    env: Mapping[str, str]
    info: Mapping[str, Any] = field(default_factory=dict)

    def call(self, *words: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run it to its end; what goes wrong is in the result."""
        argv = [self.program, *words]
        try:
            return subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                env=program_environment(self.env, proxies=True),
                check=False,
                encoding="utf-8",
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(argv, 124, "", f"no answer within {timeout:g} s")
        except OSError as error:
            return subprocess.CompletedProcess(argv, 127, "", f"{self.program}: {error.strerror}")

    def present(self) -> bool:
        """Whether there is such a program."""
        return shutil.which(self.program, path=self.env.get("PATH")) is not None

    def asked(self) -> Engine | Finding:
        """This engine with what it says of itself, or why it cannot be used."""
        name = os.path.basename(self.program)
        if not self.present():
            return missing(
                "docker", f"no such program: {self.program}; install Docker or podman, or isolation: process"
            )
        done = self.call("info", "--format", "{{json .}}")
        try:
            info = json.loads(done.stdout)
        except ValueError:
            info = {}
        said = last_line(done.stderr) or last_line("\n".join(info.get("ServerErrors") or []))
        podman = isinstance(info.get("host"), dict)
        if done.returncode == 0 and (podman or info.get("ServerVersion")):
            return Engine(self.program, self.env, info)
        if "permission denied" in (done.stderr + said).lower():
            return missing(
                "docker",
                f"this user may not talk to the daemon ({said}): add it to the group that owns the socket,"
                " as in `sudo usermod -aG docker $USER`, and start the runner again",
            )
        if "cannot connect" in (done.stderr + said).lower() or "is the docker daemon running" in said.lower():
            return missing(
                "docker", f"the daemon does not answer ({said}): start it, as in `sudo systemctl start {name}`"
            )
        return missing("docker", f"`{name} info` fails: {said or f'exit code {done.returncode}'}")

    @property
    def podman(self) -> bool:
        return isinstance(self.info.get("host"), dict)

    @property
    def version(self) -> str:
        own = self.info.get("version")
        said = own.get("Version") if isinstance(own, dict) else self.info.get("ServerVersion")
        return one_line(said or "", 60)

    @property
    def rootless(self) -> bool:
        """Whether root in a container is the user outside."""
        if self.podman:
            return bool(self._security().get("rootless"))
        return any("rootless" in str(one) for one in self.info.get("SecurityOptions") or [])

    @property
    def selinux(self) -> bool:
        """Whether a container needs a label to read what is mounted."""
        if self.podman:
            return bool(self._security().get("selinuxEnabled"))
        return any("selinux" in str(one) for one in self.info.get("SecurityOptions") or [])

    @property
    def cdi_folders(self) -> list[str]:
        """Where it looks for descriptions of devices; none where it knows no CDI."""
        if self.podman:
            return ["/etc/cdi", "/var/run/cdi"]
        return [str(one) for one in self.info.get("CDISpecDirs") or []]

    @property
    def nvidia_runtime(self) -> bool:
        return "nvidia" in (self.info.get("Runtimes") or {})

    def _security(self) -> dict[str, Any]:
        found = self.info["host"].get("security")
        return found if isinstance(found, dict) else {}


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else ""
