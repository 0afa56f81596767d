"""One request as a test sees it, and what a test wants to happen to it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from .faults import Fault

__all__ = ["Action", "Exchange", "Rule", "matches"]


@dataclass
class Exchange:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    login: str | None
    at: float = field(default_factory=time.monotonic)
    operation: str | None = None
    status: int | None = None
    fault: str | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path} → {self.status or 'no answer'}{f' ({self.fault})' if self.fault else ''}"


Action = Callable[[Exchange], object]


@dataclass
class Rule:
    """Something that happens to the requests it matches."""

    what: Fault | Action
    method: str
    path: str
    times: int | None
    skip: int
    when: str = "fault"
    seen: int = 0
    hits: int = 0

    def strikes(self, exchange: Exchange) -> bool:
        if not matches(exchange, self.method, self.path):
            return False
        self.seen += 1
        if self.seen <= self.skip or (self.times is not None and self.hits >= self.times):
            return False
        self.hits += 1
        return True


def matches(exchange: Exchange, method: str, path: str) -> bool:
    return method in ("*", exchange.method) and fnmatchcase(exchange.path, path)
