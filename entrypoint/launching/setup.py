"""The command `setup`, run in the container before the legs, and the place that it may install to.

The container's own files cannot be changed, so while `setup` runs, and for the legs after it, `python`, `python3`,
`pip` and the programs that the image's Python has installed, such as `torchrun`, are those of a virtual environment
in /tmp. That sees all that the image has, does not install it again, and puts first what `setup` adds. It is gone
with the container. `parity` itself stays the image's, whatever is installed.

So `pip install transformers==5.0.0` works as it is, with an input `network` that reaches a package index, and
`pip install --no-build-isolation --no-deps .` does without one: the source cannot be written to, and setuptools is
told to build elsewhere. The legs run in /src, and need no installation of what Python finds there.
"""

from __future__ import annotations

__all__ = ["FAILED", "with_setup"]

FAILED = 90
"""The exit code that says that the setup command failed, and not what was to follow."""

# $1 the folder, $2 the image's Python, $3 what fills the environment, $4 the setup command; the rest is run then, in
# this process, and found before the environment's programs come first.
_SCRIPT = r"""
folder=$1 python=$2 fill=$3 setup=$4
shift 4
program=$(command -v "$1") || { echo "setup: no program $1" >&2; exit 127; }
shift
if python=$(command -v "$python"); then
    if "$python" -m venv --without-pip "$folder" && "$python" -c "$fill" "$folder"; then
        export PATH="$folder/bin:$PATH"
    else
        echo "setup: no virtual environment can be made with $python" >&2
        exit 90
    fi
fi
DIST_EXTRA_CONFIG="$folder/dist.cfg" PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 sh -e -c "$setup" || {
    echo "setup: the command ended with exit code $?" >&2
    exit 90
}
rm -rf "$folder/build"
exec "$program" "$@"
"""

# Run by the image's Python, which knows where its packages and programs are. Whatever version that is.
_FILL = r"""
import os, shlex, site, subprocess, sys, sysconfig

folder = sys.argv[1]
own = os.path.join(folder, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
with open(os.path.join(own, "_image.pth"), "w") as file:
    for path in site.getsitepackages():  # with what their own .pth files add
        file.write("import site; site.addsitedir(%r)\n" % path)

def program(name, words):
    path = os.path.join(folder, "bin", name)
    if not os.path.lexists(path):
        with open(path, "w") as file:
            file.write('#!/bin/sh\nexec %s/bin/python %s "$@"\n' % (shlex.quote(folder), words))
        os.chmod(path, 0o755)

try:
    import pip
except ImportError:
    words = [folder + "/bin/python", "-m", "ensurepip", "--default-pip"]
    subprocess.call(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
else:
    for name in ("pip", "pip3"):
        program(name, "-m pip")
here = os.path.dirname(sys.executable)
for bin in {here, sysconfig.get_path("scripts")}:
    for name in os.listdir(bin) if os.path.isdir(bin) else ():
        path = os.path.join(bin, name)
        try:
            with open(path, "rb") as file:
                words = file.readline(500).decode("utf-8", "replace").split()
        except OSError:
            continue
        if not words or not words[0].startswith("#!"):
            continue
        interpreter = words[-1] if words[0].endswith("/env") else words[0][2:]
        named = os.path.basename(interpreter).startswith("python")
        if named and os.path.dirname(interpreter) in ("", here):
            program(name, shlex.quote(path))

# Where setuptools builds: not beside the source.
build = os.path.join(folder, "build")
os.mkdir(build)
with open(os.path.join(folder, "dist.cfg"), "w") as file:
    file.write("[build]\nbuild_base=%s\n[egg_info]\negg_base=%s\n" % (build, build))
"""


def with_setup(setup: str, command: list[str], folder: str, python: str = "python3") -> list[str]:
    """The arguments of a `sh` that runs the setup command and then `command`, each a single word for it.

    Args:
        setup: a shell command; it ends at its first part that fails.
        command: what runs after it.
        folder: where it may install to; made by it.
        python: the interpreter whose packages it sees; where there is none, nothing is made.
    """
    return ["-c", _SCRIPT, "setup", folder, python, _FILL, setup, *command]
