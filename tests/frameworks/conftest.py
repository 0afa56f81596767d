"""Which frameworks are tried: those that PARITY_FRAMEWORKS names, by commas or spaces; `all` is every one."""

import os
import re
from collections.abc import Callable

import pytest

from tests.frameworks.environments import FRAMEWORKS, Framework, venv_of

# Several legs of a real framework, on two cores that others use too.
_TIMEOUT = 1500


def _named() -> list[str]:
    words = re.findall(r"[^\s,]+", os.environ.get("PARITY_FRAMEWORKS", ""))
    if unknown := sorted(set(words) - {*FRAMEWORKS, "all"}):
        raise pytest.UsageError(
            f"PARITY_FRAMEWORKS: no recipes for {', '.join(unknown)}; for {', '.join(FRAMEWORKS)}"
        )
    return FRAMEWORKS if "all" in words else words


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _named()
    for item in items:
        if "framework" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.framework)
            item.add_marker(pytest.mark.slow)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_TIMEOUT))


@pytest.fixture(scope="session")
def framework() -> Callable[[str], Framework]:
    """A framework by its name; the test is skipped where nobody asked for it, and fails where it is not installed."""

    def get(name: str) -> Framework:
        assert name in FRAMEWORKS, f"{name}: no such framework; there is {', '.join(FRAMEWORKS)}"
        if name not in _named():
            pytest.skip(f"takes {name} installed: make test-frameworks FRAMEWORKS={name}")
        found = Framework(name, venv_of(name))
        assert found.python.exists(), f"{found.venv}: not there; make test-frameworks FRAMEWORKS={name}"
        return found

    return get
