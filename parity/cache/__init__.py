"""Legs that need not run again: an earlier run's, as long as nothing has changed that their numbers depend on."""

from parity.cache.cache import Cache
from parity.cache.inputs import cacheable

__all__ = ["Cache", "cacheable"]
