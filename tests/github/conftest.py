"""The stand-in, for its own tests."""

from .fixtures import github as github
