"""An S3 that does less than it should: a proxy on the loopback before a server that does it.

What goes wrong is drawn by name: ``REFUSES`` answers 501 to conditional writes, ``IGNORES`` does them without the
condition, ``LOOKS`` looks first and writes then (so that of several at once more than one wins), ``LATE`` leaves new
objects out of listings, ``STALE`` answers what an object was when it was first read.

Of what reads rows: ``SLOW`` answers each request after a while, ``BUSY`` answers 503 to the first two requests for each
part of an object, ``AWAY`` to all for data files; ``HALF`` gives half of a range as if it were all, ``CUT`` announces
all of it and ends the connection after half.
"""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.etree import ElementTree

REFUSES, IGNORES, LOOKS, LATE, STALE = "refuses", "ignores", "looks", "late", "stale"
SLOW, BUSY, AWAY, HALF, CUT = "slow", "busy", "away", "half", "cut"

_SLOW_SECONDS = 0.03
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"

_LATE_SECONDS = 1.0
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_HOP = {"connection", "content-length", "transfer-encoding", "host", "date", "server"}
_NOT_IMPLEMENTED = b"<Error><Code>NotImplemented</Code><Message>A header you provided is unknown.</Message></Error>"


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream: str, fault: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.fault = upstream, fault
        self.written: dict[str, float] = {}
        self.first_read: dict[tuple[str, str | None], tuple[int, dict[str, str], bytes]] = {}
        self.asked: Counter[tuple[str, str | None]] = Counter()
        self.lock = threading.Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that did not wait for its answer."""


class _Handler(BaseHTTPRequestHandler):
    server: _Proxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._forward()

    do_HEAD = do_POST = do_DELETE = do_GET

    def do_PUT(self) -> None:
        conditional = "if-none-match" in {name.lower() for name in self.headers}
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        fault = self.server.fault
        if conditional and fault == REFUSES:
            self._answer(501, {}, _NOT_IMPLEMENTED)
            return
        if conditional and fault == LOOKS:
            there = self._ask("HEAD", None)[0] == 200
            time.sleep(0.2)
            if there:
                self._answer(412, {}, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
        answer = self._ask("PUT", body, drop={"if-none-match"} if fault in (IGNORES, LOOKS) else frozenset())
        with self.server.lock:
            self.server.written.setdefault(urllib.parse.unquote(self.path.partition("?")[0]), time.monotonic())
        self._answer(*answer)

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0"))) or None
        listing = self.command == "GET" and "list-type=2" in self.path
        key = self.path, self.headers.get("range")
        if self.server.fault == STALE and self.command == "GET" and not listing:
            with self.server.lock:
                known = self.server.first_read.get(key)
            answer = known or self._ask(self.command, body)
            if answer[0] < 300:
                self.server.first_read[key] = answer
        else:
            answer = self._ask(self.command, body)
        if self.server.fault == LATE and listing:
            status, headers, listed = answer
            answer = status, headers, self._without_new(listed)
        if self.command == "GET" and not listing and self._goes_wrong(key, answer):
            return
        self._answer(*answer)

    def _goes_wrong(self, key: tuple[str, str | None], answer: tuple[int, dict[str, str], bytes]) -> bool:
        """Answer a reader of an object wrongly, if it is to be."""
        fault, (status, headers, body) = self.server.fault, answer
        with self.server.lock:
            self.server.asked[key] += 1
            count = self.server.asked[key]
        if fault == SLOW:
            time.sleep(_SLOW_SECONDS)
        rows = "/data/" in self.path
        if (fault == BUSY and count <= 2) or (fault == AWAY and rows):
            self._answer(503, {}, _SLOW_DOWN)
            return True
        if fault in (HALF, CUT) and rows and status < 300:
            self._answer(status, headers, body[: len(body) // 2], len(body) if fault == CUT else None)
            self.close_connection = fault == CUT
            return True
        return False

    def _without_new(self, listed: bytes) -> bytes:
        bucket = self.path.split("?")[0].strip("/")
        root = ElementTree.fromstring(listed)
        for entry in root.findall(f"{{{_NAMESPACE}}}Contents"):
            name = entry.findtext(f"{{{_NAMESPACE}}}Key") or ""
            if time.monotonic() - self.server.written.get(f"/{bucket}/{name}", 0.0) < _LATE_SECONDS:
                root.remove(entry)
        ElementTree.register_namespace("", _NAMESPACE)
        return ElementTree.tostring(root)

    def _ask(
        self, method: str, body: bytes | None, drop: frozenset[str] | set[str] = frozenset()
    ) -> tuple[int, dict[str, str], bytes]:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP | drop}
        # Left to urllib it would be that of a form, which the server would read in place of the body.
        headers.setdefault("Content-Type", "application/octet-stream")
        asked = urllib.request.Request(f"{self.server.upstream}{self.path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, dict(answer.headers.items()), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers.items()), error.read()

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes, announced: int | None = None) -> None:
        self.send_response_only(status)
        length = next((value for name, value in headers.items() if name.lower() == "content-length"), "0")
        for name, value in headers.items():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        size = len(body) if announced is None else announced
        self.send_header("Content-Length", length if self.command == "HEAD" else str(size))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def poor_s3(options: Mapping[str, str], fault: str) -> Iterator[dict[str, str]]:
    """Puts the proxy before a server; yields obstore's options for it."""
    proxy = _Proxy(options["endpoint"], fault)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield {**options, "endpoint": f"http://127.0.0.1:{proxy.server_address[1]}"}
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join(10)
