"""The Python that runs a leg, and everything that is installed there."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from parity.cache.reasons import NotCacheableError

__all__ = ["Python", "ask"]

_PATIENCE = 60
# Of each distribution the list of its files with their hashes counts, as a version may stay while files change.
_ASK = """
import hashlib, importlib.metadata, importlib.util, json, os, sys, sysconfig
import urllib.parse, urllib.request
found, editable = [], []
for one in importlib.metadata.distributions():
    url = one.read_text("direct_url.json") or ""
    texts = [one.read_text(name) or "" for name in ("METADATA", "PKG-INFO", "RECORD")]
    found.append(hashlib.sha256("\\0".join([*texts, url]).encode()).hexdigest())
    try:
        told = json.loads(url or "{}")
        if told.get("dir_info", {}).get("editable"):
            editable.append(urllib.request.url2pathname(urllib.parse.urlparse(told["url"]).path))
    except (ValueError, AttributeError, KeyError, TypeError):
        pass
own = {os.path.realpath(path) for path in sysconfig.get_paths().values()}
names = ("site-packages", "dist-packages", "lib-dynload")
paths = [os.path.realpath(path) for path in sys.path if path and os.path.isdir(path)]
parity = importlib.util.find_spec("parity")
print(json.dumps({
    "version": [sys.version, sys.platform, getattr(sys, "_git", None)],
    "distributions": hashlib.sha256("".join(sorted(set(found))).encode()).hexdigest(),
    "folders": [path for path in paths if path not in own and os.path.basename(path) not in names] + editable,
    "parity": None if parity is None or not parity.origin else os.path.dirname(os.path.realpath(parity.origin)),
}))
"""


@dataclass(frozen=True)
class Python:
    """What an interpreter says of itself.

    Attributes:
        told: its version, and a hash of what is installed.
        folders: further code that it imports from: on its path, or installed as it lies there.
        parity: the recorder's package; None where it has none.
    """

    told: tuple[object, ...]
    folders: tuple[Path, ...]
    parity: Path | None


def ask(python: str, env: Mapping[str, str], cwd: Path) -> Python:
    """Have an interpreter tell what it is; it imports nothing of what is installed.

    Raises:
        NotCacheableError: it does not.
    """
    try:
        done = subprocess.run(
            [python, "-c", _ASK], cwd=cwd, env=dict(env), capture_output=True, timeout=_PATIENCE, check=True
        )
        told = json.loads(done.stdout.splitlines()[-1])
        parity = None if told["parity"] is None else Path(told["parity"])
        folders = {Path(folder) for folder in told["folders"] if os.path.isdir(folder)}
        # An editable parity is known by its package.
        others = sorted(folder for folder in folders if parity is None or folder != parity.parent)
        return Python((told["version"], told["distributions"]), tuple(others), parity)
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        raise NotCacheableError(f"{python} does not tell what is installed there") from None
