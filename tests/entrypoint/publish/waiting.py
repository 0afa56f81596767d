"""A clock that goes on when somebody waits, and clients that wait by it."""

from entrypoint.github import Client
from tests.github.server import GitHub
from tests.github.state import Token

__all__ = ["Clock", "client"]


class Clock:
    def __init__(self) -> None:
        self.time = 0.0
        self.waited: list[float] = []

    def __call__(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.time += seconds


def client(github: GitHub, clock: Clock | None = None, *, token: Token | None = None, budget: float = 180) -> Client:
    clock = clock or Clock()
    return Client(github.url, (token or github.token).text, budget=budget, clock=clock, sleep=clock.sleep)
