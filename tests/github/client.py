"""A client of the stand-in that does nothing by itself."""

from typing import Any

import requests

from .server import GitHub
from .state import Token

__all__ = ["COMMENTS", "Client"]

COMMENTS = "/repos/org/project/issues/7/comments"


class Client:
    """Sends one request at a time, as whoever has the token."""

    def __init__(self, github: GitHub, token: Token | str | None) -> None:
        self.url = github.url
        self.session = requests.Session()
        self.session.trust_env = False
        if token is not None:
            self.session.headers["Authorization"] = f"Bearer {token.text if isinstance(token, Token) else token}"

    def __call__(self, method: str, path: str, body: Any = None, **more: Any) -> requests.Response:
        url = path if path.startswith("http") else self.url + path
        return self.session.request(method, url, **{"json": body, "timeout": 120, **more})
