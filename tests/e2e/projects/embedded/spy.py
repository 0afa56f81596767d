"""What a stranger's code would look for. Prints it as one line of JSON, and writes a curve to the named file."""

import json
import os
import re
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

WHERE = Path(__file__).parent


def attempt(action: Callable[[], object]) -> str:
    """Whether it can be done, or why not."""
    try:
        action()
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def connect(host: str, port: str) -> str:
    """Whether somebody answers there."""
    return attempt(lambda: socket.create_connection((host, int(port)), timeout=2).close())


def docker() -> None:
    """Ask the engine who it is."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("/var/run/docker.sock")


def sockets() -> Iterator[str]:
    """Every one that is in the file system, where such things are."""
    for top in ("/run", "/var/run", "/tmp", "/src", "/out", "/dev", "/work"):
        for folder, _, names in os.walk(top):
            for path in (os.path.join(folder, name) for name in names):
                if os.path.lexists(path) and stat.S_ISSOCK(os.lstat(path).st_mode):
                    yield path


def environments() -> Iterator[str]:
    """Of all processes that can be seen."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            yield path.read_text(errors="replace")
        except OSError:
            continue


def look() -> dict[str, object]:
    addresses = re.findall(r"//([\d.]+):(\d+)", (WHERE / "addresses.txt").read_text())
    process = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {
        "environment": dict(os.environ),
        "environments": list(environments()),
        "mounts": {words[4]: f"{words[5]} {words[words.index('-') + 1]}" for words in mounts},
        "user": process["Uid"].split(),
        "capabilities": process["CapBnd"].strip(),
        "privileges": process["NoNewPrivs"].strip(),
        "interfaces": [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]],
        "reached": {f"{host}:{port}": connect(host, port) for host, port in addresses},
        "resolved": attempt(lambda: socket.getaddrinfo("example.com", 443)),
        "docker": attempt(docker),
        "sockets": sorted(sockets()),
        "written": {name: attempt((Path(name) / "mine").touch) for name in ("/src", "/etc", "/opt/parity")},
        "git": (WHERE / ".git/config").read_text(),
        "files": [str(path) for top in ("/src", "/out") for path in Path(top).rglob("*")],
    }


print(json.dumps(look()), flush=True)
with open(sys.argv[1], "w") as curve:
    for step in range(5):
        curve.write(json.dumps({"step": step, "loss": 6 - step / 9, "grad_norm": 2 - step / 7}) + "\n")
