"""The stand-in, for its own tests."""

from collections.abc import Iterator

import pytest

from .client import Client
from .fixtures import github as github
from .server import GitHub


@pytest.fixture
def send(github: GitHub) -> Iterator[Client]:
    client = Client(github, github.token)
    yield client
    client.session.close()
