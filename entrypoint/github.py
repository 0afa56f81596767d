"""GitHub's REST API, by its own rules on limits and retries.

    client = Client(env["GITHUB_API_URL"], token)
    for comment in client.pages("/repos/org/project/issues/7/comments"): ...
    client.patch(f"/repos/org/project/issues/comments/{number}", {"body": text})

What comes back is parsed JSON. Every failure is a `GitHubError`, and none holds the token.
"""

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.auth import AuthBase

from entrypoint.refusals import GitHubError, distrusted, message, never_sent, told
from parity import __version__

__all__ = ["Client", "GitHubError"]

_VERSION = "2022-11-28"
# Seconds to connect, and between two bytes of an answer.
_TIMEOUT = (10.0, 30.0)
# Between two requests that change something, and after a secondary limit that does not say when to come back: as
# GitHub asks in its "Best practices for using the REST API" and "Rate limits for the REST API".
_BETWEEN_WRITES = 1.0
_SECONDARY = 60.0
# An issue has at most some thousands of comments, a hundred to a page; more pages than this is a loop.
_MOST_PAGES = 1000
_MOST_HOPS = 3
_MOST_TRIES = 6
_REDIRECTS = (301, 302, 307, 308)
_REPEATABLE = ("GET", "PATCH", "PUT", "DELETE")


class _Bearer(AuthBase):
    """The token. As an `auth` object it is put on last, and no .netrc takes its place."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


@dataclass(frozen=True)
class _Known:
    """An answer that GitHub may say is still right (304), which costs nothing of the rate limit."""

    etag: str
    content: Any
    next_page: str | None


class Client:
    """Requests to one API with one token; not for several threads.

    Args:
        api_url: as in GITHUB_API_URL.
        token: may be empty.
        budget: seconds that waiting and repeated requests may take, all requests of this client together.
        clock: seconds, monotonic.
        now: seconds since 1970, where an answer has no date.
        sleep: waits for that many seconds.

    Raises:
        GitHubError: the address or the token can't be one.
    """

    def __init__(
        self,
        api_url: str,
        token: str = "",
        *,
        budget: float = 180.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if urlsplit(api_url).scheme not in ("http", "https") or not urlsplit(api_url).hostname:
            raise GitHubError("GITHUB_API_URL", None, f"{api_url!r} is no address")
        # Checked here because http.client would repeat a header that can't be sent in its own message.
        if not re.fullmatch(r"[!-~]*", token):
            raise GitHubError("token", None, "holds characters that no token has")
        self._url = api_url.rstrip("/")
        self._budget, self._spent = budget, 0.0
        self._limits = 0  # secondary limits one after the other
        self._clock, self._now, self.sleep = clock, now, sleep
        self._known: dict[str, _Known] = {}
        self._last_write = -math.inf
        self._session = requests.Session()
        self._session.auth = _Bearer(token)
        # requests itself reads REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE, which go before this one.
        self._session.verify = os.environ.get("SSL_CERT_FILE") or True
        self._session.headers.update(
            {
                "Accept": "application/vnd.github+json",
                "User-Agent": f"parity-action/{__version__}",
                "X-GitHub-Api-Version": _VERSION,
            }
        )

    def get(self, path: str, **query: str | int) -> Any:
        """What is at `path`, such as `/repos/org/project/pulls/7`.

        Raises:
            GitHubError: there is no answer, or it is an error.
        """
        return self._get(path, query).content

    def pages(self, path: str, **query: str | int) -> Iterator[Any]:
        """Each entry of a list, over all its pages.

        Raises:
            GitHubError: as `get`, or what came is no list.
        """
        at: str | None = path
        asked: dict[str, str | int] = {"per_page": 100, **query}
        for _ in range(_MOST_PAGES):
            if at is None:
                return
            found = self._get(at, asked)
            if not isinstance(found.content, list):
                raise GitHubError(f"GET {path}", None, "GitHub answered with no list")
            yield from found.content
            at, asked = found.next_page, {}
        raise GitHubError(f"GET {path}", None, f"more than {_MOST_PAGES} pages")

    def post(self, path: str, body: dict[str, Any], *, repeatable: bool = False, look: bool = False) -> Any:
        """Make something.

        Args:
            path: where.
            body: of what.
            repeatable: to make it twice does no harm, so that it may be asked for again after no answer.
            look: wait as usual where there is a limit to wait for, and then leave it to the caller to ask again, who
                looks first at what has changed meanwhile.

        Raises:
            GitHubError: as `get`; `uncertain` if it may have been made; `again` after a wait with `look`.
        """
        return self._request("POST", path, body=body, repeatable=repeatable, look=look)[1]

    def patch(self, path: str, body: dict[str, Any], *, look: bool = False) -> Any:
        """Change something.

        Raises:
            GitHubError: as `post`.
        """
        return self._request("PATCH", path, body=body, look=look)[1]

    def delete(self, path: str) -> None:
        """Remove something; it is no error if it is gone already.

        Raises:
            GitHubError: as `get`.
        """
        try:
            self._request("DELETE", path)
        except GitHubError as error:
            if error.status not in (404, 410):
                raise

    def login(self) -> str | None:
        """Whose the token is; None if that can't be asked, as with tokens of a workflow or an app.

        Raises:
            GitHubError: as `get`, other than for that.
        """
        try:
            found = self.get("/user")
        except GitHubError as error:
            if error.status in (403, 404):
                return None
            raise
        return str(found["login"]) if isinstance(found, dict) and "login" in found else None

    def _get(self, path: str, query: dict[str, str | int]) -> _Known:
        key = requests.Request("GET", self._address(path), params=query).prepare().url or path
        known = self._known.get(key)
        headers = {"If-None-Match": known.etag} if known else {}
        response, content = self._request("GET", path, query=query, headers=headers)
        if response.status_code == 304 and known:
            return known
        found = _Known(response.headers.get("ETag", ""), content, response.links.get("next", {}).get("url"))
        if found.etag:
            self._known[key] = found
        return found

    def _address(self, path: str) -> str:
        if path.startswith("/"):
            return self._url + path
        # A link in an answer must not lead the token elsewhere.
        if _origin(path) != _origin(self._url):
            raise GitHubError("GitHub", None, f"a link leads to another host: {path}")
        return path

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str | int] | None = None,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        repeatable: bool = False,
        look: bool = False,
    ) -> tuple[requests.Response, Any]:
        """The answer and what it holds, if it is a success; asks again where GitHub's rules allow it."""
        what = f"{method} {path}"
        repeatable = repeatable or method in _REPEATABLE
        for attempt in range(1, _MOST_TRIES + 1):
            began = self._clock()
            try:
                response = self._send(method, self._address(path), query, body, headers or {})
                if response.status_code < 400:
                    self._limits = 0
                    return response, self._content(response, what)
                error = GitHubError(what, response.status_code, message(response), response.status_code >= 500)
                wait = self._limit(response)
            except GitHubError as failure:
                error, wait = failure, None
            except requests.RequestException as failure:
                error = GitHubError(what, None, told(failure), not never_sent(failure))
                # What was never sent can't be done twice.
                wait = None if error.uncertain or distrusted(failure) else 2.0 ** (attempt - 1)
            if wait is None:
                if not (error.uncertain and repeatable):
                    raise error
                wait = 2.0 ** (attempt - 1)
            self._spent += self._clock() - began
            left = self._budget - self._spent
            if attempt == _MOST_TRIES or wait > left:
                raise GitHubError(what, error.status, f"{error.message} ({_gave_up(wait, left)})", error.uncertain)
            self.sleep(wait)
            self._spent += wait
            if look:
                raise GitHubError(what, error.status, error.message, error.uncertain, again=True)
        raise AssertionError("the last try returns or raises")

    def _send(
        self, method: str, address: str, query: dict[str, str | int] | None, body: Any, headers: dict[str, str]
    ) -> requests.Response:
        """One exchange, and where it leads. requests would make a GET of a redirected POST."""
        for _ in range(_MOST_HOPS):
            early = self._last_write + _BETWEEN_WRITES - self._clock()
            if method != "GET" and early > 0:
                self.sleep(early)
            try:
                response = self._session.request(
                    method,
                    address,
                    params=query,
                    json=body,
                    headers=headers,
                    timeout=_TIMEOUT,
                    allow_redirects=False,
                )
            finally:
                if method != "GET":
                    self._last_write = self._clock()
            if response.status_code not in _REDIRECTS:
                return response
            address, query = self._address(urljoin(address, response.headers.get("Location", ""))), None
        raise GitHubError(f"{method} {address}", None, "redirected again and again")

    def _limit(self, response: requests.Response) -> float | None:
        """Seconds to wait if the answer is about a rate limit; None if it is about something else."""
        if response.status_code not in (403, 429):
            return None
        after = response.headers.get("Retry-After", "").strip()
        if after.isdecimal():
            return float(after)
        if response.headers.get("X-RateLimit-Remaining") == "0":
            reset = response.headers.get("X-RateLimit-Reset", "")
            if reset.isdecimal():
                # One second more, for both are whole seconds.
                return max(0.0, float(reset) - self._date(response)) + 1.0
        text = response.text.lower()
        if response.status_code == 429 or "rate limit" in text or "abuse detection" in text:
            self._limits += 1
            return _SECONDARY * 2.0 ** (self._limits - 1)
        return None

    def _date(self, response: requests.Response) -> float:
        """The server's own time, which the reset is in, whatever this machine's clock says."""
        try:
            return parsedate_to_datetime(response.headers["Date"]).replace(tzinfo=UTC).timestamp()
        except (KeyError, ValueError):
            return self._now()

    def _content(self, response: requests.Response, what: str) -> Any:
        if response.status_code == 204 or not response.content:
            return None
        try:
            return json.loads(response.content)
        except (ValueError, RecursionError):
            raise GitHubError(what, None, "GitHub's answer is not JSON", uncertain=True) from None


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _gave_up(wait: float, left: float) -> str:
    if wait > left:
        return f"not asked again: that would take {wait:.0f} s more, and {max(left, 0):.0f} s are left for it"
    return f"asked {_MOST_TRIES} times"
