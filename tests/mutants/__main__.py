"""Plants every fault and says which tests find it: ``python -m tests.mutants``; goes on where it stopped.

``ONLY`` (a list of names): these alone, whatever was done; ``MINUTES`` (240): when to stop. Each takes half a minute to
several, most of it Spark's start. Several runs, each of other names, may be at work beside each other.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.mutants.planting import RESULTS, ROOT, faults, search


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def known() -> dict[str, Any]:
    """Return what is written down."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def record(name: str, result: dict[str, Any]) -> dict[str, Any]:
    """Write down what was found of one fault, beside other runs that do the same; return all that is written down."""
    lock = os.open(RESULTS.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = known()
        same = before.get(name, {}).get("fault") == result["fault"]  # then a walk that was found finds it still
        results = {**before, name: {**(before[name] if same else {}), **result}}
        RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
    finally:
        os.close(lock)
    return results


def main() -> int:
    listed = {fault.name: fault for fault in faults()}
    results = {name: result for name, result in known().items() if name in listed}
    only = [name.strip() for name in os.environ.get("ONLY", "").split(",") if name.strip()]
    done = {name for name, result in results.items() if result["found_by"] and result["fault"] == listed[name].digest}
    left = only or [name for name in listed if name not in done]
    until = time.monotonic() + 60 * float(os.environ.get("MINUTES", "240"))
    missing = []
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        for number, name in enumerate(left, 1):
            if time.monotonic() > until:
                break
            fault = listed[name]
            if not fault.stands_in(ROOT):
                say(f"{name}: {fault.file} has not the place, once, that the list names")
                missing.append(name)
                continue
            started = time.monotonic()
            tests = search(fault, Path(folder))
            seconds = time.monotonic() - started
            say(f"{number} of {len(left)} {name}: {', '.join(tests) or 'NOTHING FINDS IT'} ({seconds:.0f} s)")
            results = record(name, {"fault": fault.digest, "found_by": tests})
    undetected = [name for name in listed if not results.get(name, {}).get("found_by")]
    say(f"{len(listed) - len(undetected)} of {len(listed)} faults are found; not: {', '.join(undetected) or 'none'}")
    return 1 if undetected or missing else 0


if __name__ == "__main__":
    sys.exit(main())
