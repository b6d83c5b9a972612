"""A peer with no engine: what the protocol is tried with."""

from __future__ import annotations

import sys
import time
from typing import Any

from benchmarks.peers.serve import serve


def rest(seconds: float) -> dict[str, Any]:
    time.sleep(seconds)
    return {"rows": 1}


def timed() -> dict[str, Any]:
    return {"seconds": 42.0}


def chatter() -> dict[str, Any]:
    sys.stdout.write("this is no answer\n")
    sys.stdout.flush()
    return {"rows": 2}


def fail() -> dict[str, Any]:
    return {"rows": 1 // 0}


def leave() -> dict[str, Any]:
    sys.stderr.write("no more\n")
    sys.exit(3)


if __name__ == "__main__":
    serve({call.__name__: call for call in (rest, timed, chatter, fail, leave)})
