"""A local web server that serves one file, and can be set to fail."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    """File to serve and failures to simulate; `asked` and `sent` record the requests and bytes."""

    content: bytes
    knows_ranges: bool = True
    tells_length: bool = True
    status: list[int] = field(default_factory=list)  # of the next responses; then 200 or 206
    drops_after: list[int] = field(default_factory=list)  # bytes of the next responses; then all
    url: str = ""
    asked: list[int | None] = field(default_factory=list)
    sent: int = 0


class _Handler(BaseHTTPRequestHandler):
    server_state: Server

    def do_GET(self):
        state = self.server_state
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        state.asked.append(int(asked[1]) if asked else None)
        if state.status:
            return self.send_error(state.status.pop(0))
        start = int(asked[1]) if asked and state.knows_ranges else 0
        if start and start >= len(state.content):
            return self.send_error(416)
        self._respond(state, start)

    def _respond(self, state, start):
        body = state.content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(state.content) - 1}/{len(state.content)}")
        if state.tells_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if state.drops_after:
            body = body[: state.drops_after.pop(0)]
        self.wfile.write(body)
        state.sent += len(body)

    def log_message(self, *arguments):
        pass


@contextmanager
def serving(content, **ways):
    """A running server; HTTP/1.0, so that each response ends its connection."""
    state = Server(content, **ways)
    handler = type("Handler", (_Handler,), {"server_state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    state.url = f"http://127.0.0.1:{server.server_port}/cifar-10-binary.tar.gz"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
