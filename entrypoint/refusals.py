"""Why a request to GitHub did not succeed, in words that hold nothing secret."""

import json

import requests

from parity.plain import plain

__all__ = ["GitHubError", "distrusted", "message", "never_sent", "told"]


class GitHubError(Exception):
    """A request that did not succeed, in one line.

    Attributes:
        status: of the answer; None if there was none.
        message: GitHub's own words, or what went wrong on the way; one printable line.
        uncertain: the request may have been carried out all the same; look before you repeat it.
        again: what there was to wait for is over, and the caller wanted to look before the request is repeated.
    """

    def __init__(
        self, what: str, status: int | None, message: str, uncertain: bool = False, again: bool = False
    ) -> None:
        self.status = status
        self.message = plain(message, 300)
        self.uncertain = uncertain
        self.again = again
        super().__init__(f"{what}: {f'{status} ' if status else ''}{self.message}")


def message(response: requests.Response) -> str:
    """GitHub's words; a validation says in `errors` what it is about."""
    try:
        body = json.loads(response.content)
        errors = [e.get("message") or e.get("code") if isinstance(e, dict) else e for e in body.get("errors", [])]
        return ": ".join(str(text) for text in [body["message"], *errors] if text)
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return str(response.reason or "no message")


def told(failure: requests.RequestException) -> str:
    """What went wrong on the way, without the exception's own text, which may repeat headers."""
    if isinstance(failure, requests.Timeout):
        return "no answer in time"
    if distrusted(failure):
        return "the certificate is not trusted; REQUESTS_CA_BUNDLE or SSL_CERT_FILE names another authority's"
    if isinstance(failure, requests.exceptions.ProxyError):
        return "the proxy did not let it through"
    if isinstance(failure, requests.ConnectionError):
        return "no connection" if never_sent(failure) else "the connection was lost"
    return type(failure).__name__


def distrusted(failure: requests.RequestException) -> bool:
    """Whether the server's certificate was refused, which asking again does not change."""
    return isinstance(failure, requests.exceptions.SSLError) and "CERTIFICATE_VERIFY_FAILED" in repr(failure)


def never_sent(failure: requests.RequestException) -> bool:
    """Whether the request can't have reached GitHub."""
    if isinstance(failure, requests.ConnectTimeout | requests.exceptions.ProxyError) or distrusted(failure):
        return True
    return "NewConnectionError" in repr(failure) or "NameResolutionError" in repr(failure)
