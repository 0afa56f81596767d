"""Fixtures of the publisher's tests."""

from tests.github.fixtures import github as github
