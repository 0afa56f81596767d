"""Why a leg has no place in the cache."""

__all__ = ["NotCacheableError"]


class NotCacheableError(Exception):
    """What a leg depends on cannot be told; the text says why, in half a line."""
