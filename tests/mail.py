"""A mail server on loopback that keeps what it is sent."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from itertools import takewhile
from typing import Any


class Mailbox:
    """The messages that came, in order, and the Airflow connection by which they are sent."""

    def __init__(self, port: int) -> None:
        self.messages: list[EmailMessage] = []
        plain = {"disable_ssl": True, "disable_tls": True}
        self.connection: dict[str, Any] = {"conn_type": "smtp", "host": "127.0.0.1", "port": port, "extra": plain}


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    """Run a mail server; it ends with the block."""

    class Talk(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 ready\r\n")
            while line := self.rfile.readline():
                word = line[:4].upper()
                if word == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = list(takewhile(lambda line: line not in (b".\r\n", b""), iter(self.rfile.readline, None)))
                    box.messages.append(message_from_bytes(b"".join(lines), policy=policy.default))  # type: ignore[arg-type]
                self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
                if word == b"QUIT":
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Talk) as server:
        server.daemon_threads = True
        box = Mailbox(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield box
        server.shutdown()
