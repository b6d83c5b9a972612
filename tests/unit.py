"""Which tests are unit tests: those that need neither Spark nor Airflow's database nor a server.

Decided from what a test asks for, so that no new one is forgotten: a fixture that starts something, a mark that says
so, or a folder whose tests all do; what is left is marked ``unit``. In a run of these alone (``--unit``) no JVM can
start and Airflow's database cannot be opened, also by no process that a test starts: what needs them fails there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

FIXTURES = frozenset({"spark", "s3"})
MARKS = ("spark", "airflow", "servers", "heavy")
FOLDERS = (
    "tests/airflow/",
    "tests/kills/",
    "tests/spark/",
    "tests/races/",
    "tests/pages/",
    "tests/s3a/",
    "tests/hadoop/",
    "tests/connectors/",
)

FORBIDDEN = "/only-unit-tests-run-here"


def is_unit(item: pytest.Item) -> bool:
    """Return whether a test needs neither Spark nor Airflow's database nor a server."""
    path = item.path.relative_to(item.config.rootpath).as_posix()
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return (
        FIXTURES.isdisjoint(fixtures)
        and not any(item.get_closest_marker(mark) for mark in MARKS)
        and not path.startswith(FOLDERS)
    )


def mark(items: list[pytest.Item]) -> None:
    """Mark the unit tests among all that were collected."""
    for item in items:
        if is_unit(item):
            item.add_marker(pytest.mark.unit)


def forbid_the_rest(folder: Path) -> None:
    """Let no JVM start and no database of Airflow's be opened, here and in processes started from here."""
    os.environ["JAVA_HOME"] = str(java_that_fails(folder))
    os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{FORBIDDEN}/airflow.db"
    sys.addaudithook(_refuse_databases)


def _refuse_databases(event: str, given: tuple[object, ...]) -> None:
    """Refuse the command that makes a database for an Airflow of a test's own, whose settings are not ours."""
    if event == "subprocess.Popen" and isinstance(command := given[1], list):
        words = [str(word) for word in command[:2]]
        if words[1:] == ["db"] and Path(words[0]).name == "airflow":
            raise AssertionError("A unit test makes an Airflow database: mark it airflow (tests/unit.py).")


def java_that_fails(folder: Path) -> Path:
    """Return the home of a Java that can be found, and says when it is started that no unit test may do that."""
    program = folder / "bin" / "java"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\necho 'A unit test starts a JVM: mark it spark (tests/unit.py).' >&2\nexit 1\n")
        program.chmod(0o755)
    return folder
