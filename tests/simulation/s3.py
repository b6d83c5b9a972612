"""An S3 server as a process of its own, for tests; what it holds is gone when it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

BUCKET = "lake"

# moto looks whether an object is there and then writes it, which another of its threads may do in between; S3 does both
# at once, and whoever races relies on it.
_SERVER = """
import sys, threading
from moto.s3.responses import S3Response
from moto.server import main
one, put = threading.Lock(), S3Response.put_object
def put_object(self):
    with one:
        return put(self)
S3Response.put_object = put_object
main(sys.argv[1:])
"""


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Starts the server on a free port of the loopback, with one bucket; yields obstore's options for it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "MOTO_S3_CUSTOM_ENDPOINTS": "", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    server = subprocess.Popen(
        [sys.executable, "-c", _SERVER, "-H", "127.0.0.1", "-p", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _make_bucket(endpoint)
        yield {
            "endpoint": endpoint,
            "region": "us-east-1",
            "access_key_id": "a",
            "secret_access_key": "b",
            "allow_http": "true",
        }
    finally:
        server.terminate()
        server.wait(timeout=20)


def _make_bucket(endpoint: str) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
