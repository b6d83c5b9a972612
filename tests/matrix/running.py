"""Runs a suite in an environment and counts what became of its tests."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.matrix.environments import Suite
from tests.matrix.installing import HOME, ROOT
from tests.turns import of_this_turn, turn

# What pytest ends with if no test was there to run.
_NONE_COLLECTED = 5


@dataclass(frozen=True)
class Result:
    """What became of a suite. ``part`` is ``all``, or which part of it was run, such as ``2 of 6``.

    :param failed: tests that failed or could not begin. :param drawn: whether of tests marked ``by_turn`` all were run
        (``all``), or those of one commit.
    """

    date: str
    part: str
    drawn: str
    passed: int
    failed: int
    skipped: int
    seconds: int

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def run(name: str, suite: Suite, python: Path, parts: int, environment: Mapping[str, str]) -> Result | None:
    """Run the suite, or this turn's part of so many of its files; None if there is no file or no test in it.

    What it prints goes to ``.matrix/<environment>/<suite>.log``, and to standard output too.
    """
    started = time.monotonic()
    folder = python.parents[1]
    chosen = files(suite) if parts == 1 else of_this_turn(files(suite), parts)
    if not chosen and not suite.module:
        return None
    with tempfile.TemporaryDirectory(prefix="matrix") as scratch:
        report = Path(scratch) / "report.xml"
        command = [str(python), "-m", *(suite.module or _pytest(suite, chosen, report))]
        log = folder / f"{name.replace(' ', '-')}.log"
        settings = {
            **os.environ,
            **environment,
            "PYTHONPATH": str(ROOT),
            # Celery's packages are pinned for the Airflow of .venv.
            "EXECUTOR": "local",
            "PATH": f"{python.parent}:{os.environ['PATH']}",
        }
        settings.pop("SPARK_HOME", None)
        with log.open("w") as out:
            code = subprocess.run(command, cwd=ROOT, env=settings, stdout=out, stderr=subprocess.STDOUT, check=False)
        if code.returncode == _NONE_COLLECTED and not suite.module:
            return None
        passed, failed, skipped = _counted(report) if report.exists() else (int(code.returncode == 0), 0, 0)
        if code.returncode and not failed:
            failed = 1
    part = turn(parts) if parts > 1 else None
    return Result(
        datetime.now(UTC).date().isoformat(),
        "all" if part is None else f"{part + 1} of {parts}",
        "all" if turn() is None else "a turn",
        passed,
        failed,
        skipped,
        round(time.monotonic() - started),
    )


def files(suite: Suite) -> list[str]:
    """Return the files of tests in a suite, in order."""
    paths = []
    for path in suite.paths:
        whole = ROOT / path
        paths += [whole] if whole.is_file() else sorted(whole.rglob("test_*.py"))
    names = (path.relative_to(ROOT).as_posix() for path in paths)
    return sorted({name for name in names if not suite.without or not name.startswith(suite.without)})


def _pytest(suite: Suite, chosen: list[str], report: Path) -> list[str]:
    options = ["-q", "-p", "no:cacheprovider", "-m", suite.markers, f"--junit-xml={report}"]
    return ["pytest", *options, *shlex.split(os.environ.get("TEST_ARGS", "")), *chosen]


def _counted(report: Path) -> tuple[int, int, int]:
    totals = [0, 0, 0, 0]
    for each in ET.parse(report).getroot().iter("testsuite"):
        for position, name in enumerate(("tests", "failures", "errors", "skipped")):
            totals[position] += int(each.get(name, "0"))
    tests, failures, errors, skipped = totals
    return tests - failures - errors - skipped, failures + errors, skipped


__all__ = ["HOME", "Result", "files", "run"]
