"""The loop inside a peer's environment: a call a line on standard input, an answer a line on standard output.

Needs the standard library alone. What the peer itself prints goes to standard error, so that it breaks no answer.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from benchmarks.measure import forget_peak, peak

Function = Callable[..., "Mapping[str, Any] | None"]


def serve(functions: Mapping[str, Function], requirements: Path | None = None) -> None:
    """Answers calls until standard input ends.

    :param functions: by name; each takes keywords and returns what can be written as JSON.
    :param requirements: the file that names the peer's packages, for their versions.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _send(answers, {"versions": versions(requirements) if requirements else {}})
    for line in sys.stdin:
        _send(answers, answer(functions, json.loads(line)))


def answer(functions: Mapping[str, Function], request: Mapping[str, Any]) -> dict[str, Any]:
    """One call's value, seconds and peak of memory in bytes, or its error."""
    try:
        function = functions[request["call"]]
        gc.collect()
        forget_peak()
        begun = time.perf_counter()
        value = function(**request["arguments"])
        seconds = time.perf_counter() - begun
        value = dict(value or {})
        return {"value": value, "seconds": value.pop("seconds", seconds), "peak": peak()}
    except Exception:  # noqa: BLE001 - it is the answer, and raised where the call was made
        return {"error": traceback.format_exc()}


def versions(requirements: Path) -> dict[str, str]:
    """Installed versions of the packages that a file of requirements names."""
    names = [line.partition("==")[0].strip() for line in requirements.read_text().splitlines()]
    return {name: version(name) for name in names if name and not name.startswith("#")}


def _send(answers: IO[str], answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
