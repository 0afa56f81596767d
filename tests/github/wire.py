"""HTTP on loopback, a thread for each connection."""

import contextlib
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Reply", "Serve", "Server"]


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    torn: bool = False
    """The connection closes in the middle of the body."""


Serve = Callable[[str, str, dict[str, str], bytes], Reply | None]
"""From method, target, headers in lower case, and body; None closes the connection without an answer."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, serve: Serve, failed: Callable[[BaseException], None]) -> None:
        self.serve = serve
        self.failed = failed
        self.stopped = threading.Event()
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), Handler)

    def stop(self) -> None:
        self.stopped.set()
        self.shutdown()
        self.server_close()
        for connection in list(self.connections):
            _hang_up(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        # A client that went away, as in tests of its time-outs, is nothing to tell of.
        if error is not None and not isinstance(error, OSError):
            self.failed(error)


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body at once: in two packets, the second waits 40 ms for the first's acknowledgement
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.server.serve(self.command, self.path, headers, raw)
        if reply is None:
            self.close_connection = True
            _hang_up(self.connection)
            return
        self.send_response_only(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status not in (204, 304):
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body[: len(reply.body) // 2] if reply.torn else reply.body)
        if reply.torn:
            self.close_connection = True

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing; the log is `GitHub.log`."""
