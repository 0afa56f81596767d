"""A real Docker Engine, and images built in it from what a checkout holds."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.container.docker import BASE, build, missing

ROOT = Path(__file__).parents[2]

# A framework's image as uv makes them: its own environment, without pip, first on the PATH. It has torch, and a
# click that would break parity.
FRAMEWORK = f"""
FROM {BASE}
RUN python3 -m venv --without-pip /opt/framework \\
    && python3 -m pip --python /opt/framework/bin/python install --no-cache-dir torch==2.13.0 numpy \\
    && echo 'framework = True' > /opt/framework/lib/python3.11/site-packages/click.py
ENV PATH=/opt/framework/bin:$PATH
"""


@pytest.fixture(scope="session")
def engine() -> str:
    """The base of every image built here. Without an engine, CI fails and anyone else skips, with the reason."""
    reason = missing()
    if reason is not None and ("CI" in os.environ or "PARITY_TEST_BASE" in os.environ):
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)
    return BASE


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clean checkout would hold, were everything committed as it is."""
    folder = tmp_path_factory.mktemp("checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


@pytest.fixture(scope="session")
def image(engine: str, checkout: Path) -> str:
    """The image on a bare Python, with torch installed."""
    with _alone():
        return build("parity-test", checkout, BASE_IMAGE=engine)


@pytest.fixture(scope="session")
def bare(image: str, checkout: Path) -> str:
    """The part of `image` that is not parity: base and torch."""
    with _alone():
        return build("parity-test-torch", checkout, "--target=torch", BASE_IMAGE=BASE)


@pytest.fixture(scope="session")
def framework_image(engine: str, checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image on a framework's."""
    folder = tmp_path_factory.mktemp("framework")
    (folder / "Dockerfile").write_text(FRAMEWORK)
    with _alone():
        base = build("parity-test-framework-base", folder)
        return build("parity-test-framework", checkout, BASE_IMAGE=base, TORCH="")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One worker builds at a time; the next finds every layer in the engine's cache."""
    with (Path(tempfile.gettempdir()) / f"parity-test-build-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
