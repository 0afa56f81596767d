"""The command `setup`, run in the container before the legs, and the place that it may install to.

The container's own files cannot be changed, so `python`, `python3` and `pip` are those of a virtual environment in
/tmp while it runs. That sees whatever the image has installed and does not install it again; what it adds comes
first for the legs too, by `PATH` and `PYTHONPATH`. It is gone with the container.

So `pip install transformers==5.0.0` works as it is, with an input `network` that reaches a package index, and so does
`pip install --no-build-isolation --no-deps .` without one. `pip install -e` does not, and need not: /src is the
working folder and cannot be written to.
"""

from __future__ import annotations

__all__ = ["FAILED", "with_setup"]

FAILED = 90
"""The exit code that says that the setup command failed, and not what was to follow."""

# $1 the folder, $2 the image's Python, $3 the setup command; the rest is run afterwards, in this process.
_SCRIPT = r"""
folder=$1 python=$2 setup=$3
shift 3
failed() { echo "setup: $1" >&2; exit 90; }
if python=$(command -v "$python"); then
    if "$python" -m pip --version >/dev/null 2>&1; then
        "$python" -m venv --without-pip "$folder" || failed "no virtual environment can be made"
        for name in pip pip3; do
            printf '#!/bin/sh\nexec "%s/bin/python" -m pip "$@"\n' "$folder" >"$folder/bin/$name"
            chmod +x "$folder/bin/$name"
        done
    else
        "$python" -m venv "$folder" >/dev/null 2>&1 || "$python" -m venv --without-pip --clear "$folder" ||
            failed "no virtual environment can be made"
    fi
    own=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') || failed "no site-packages"
    "$python" -c 'import site; [print(f"import site; site.addsitedir({p!r})") for p in site.getsitepackages()]' \
        >"$own/_image.pth" || failed "the image's packages were not found"
    # Where setuptools builds: not beside the source.
    printf '[build]\nbuild_base=%s\n[egg_info]\negg_base=%s\n' "$folder/build" "$folder/build" >"$folder/dist.cfg"
    mkdir -p "$folder/build"
    export PATH="$folder/bin:$PATH"
fi
DIST_EXTRA_CONFIG="$folder/dist.cfg" PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 sh -e -c "$setup" ||
    failed "the command ended with exit code $?"
rm -rf "$folder/build"
if [ -n "$own" ]; then export PYTHONPATH="$own${PYTHONPATH:+:$PYTHONPATH}"; fi
exec "$@"
"""


def with_setup(setup: str, command: list[str], folder: str, python: str = "python3") -> list[str]:
    """The arguments of a `sh` that runs the setup command and then `command`, each a single word for it.

    Args:
        setup: a shell command; it ends at its first part that fails.
        command: what runs after it.
        folder: where it may install to; made by it.
        python: the interpreter whose packages it sees.
    """
    return ["-c", _SCRIPT, "setup", folder, python, setup, *command]
