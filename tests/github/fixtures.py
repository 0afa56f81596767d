"""The fixture `github`; elsewhere: `from tests.github.fixtures import github as github` in a `conftest.py`."""

from collections.abc import Iterator

import pytest

from .server import GitHub

__all__ = ["github"]


@pytest.fixture
def github() -> Iterator[GitHub]:
    """A running stand-in; the test fails if an exchange was not as GitHub describes it."""
    with GitHub() as running:
        yield running
