"""How long tests take, by folder: run them with ``--junitxml=FILE``, then ``python -m tests.durations FILE``.

With ``--junitxml`` each test also tells the CPU seconds of its process and of all below it (Spark's JVM, schedulers,
drivers), and how long those fixtures of modules and of the session took that it was the first to need. Wall seconds
grow with what else runs on the machine, CPU seconds hardly. With ``--files`` or ``--tests``: the largest of these
instead.
"""

from __future__ import annotations

import sys
import time
import xml.etree.ElementTree as xml
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

# A fixture that takes less says nothing of where the time goes.
LEAST_FIXTURE_SECONDS = 1.0
LARGEST = 40
# Their tests stand in one folder for each of their packages, which the table tells apart.
PACKAGES = ("spark_apps", "airflow_provider_index")


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and all below it, of those that ended as well."""
    total = 0.0
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


class Recorder:
    """Puts CPU seconds and fixtures' seconds among the properties of each test, which pytest writes into the XML."""

    def __init__(self) -> None:
        self._at_start = 0.0
        self._item: pytest.Item | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._at_start, self._item = cpu_seconds(), item
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        if fixturedef.scope == "function" or self._item is None:
            return (yield)
        started, cpu_at_start = time.monotonic(), cpu_seconds()
        try:
            return (yield)
        finally:
            seconds = time.monotonic() - started
            if seconds >= LEAST_FIXTURE_SECONDS:
                cpu = cpu_seconds() - cpu_at_start
                self._item.user_properties.append(("fixture", f"{fixturedef.argname} {seconds:.1f} {cpu:.1f}"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        if call.when == "teardown":
            item.user_properties.append(("cpu", f"{cpu_seconds() - self._at_start:.2f}"))
        return (yield)


@dataclass(frozen=True)
class Taken:
    """What one test took, or one fixture of a module or the session where it was set up.

    :param file: the test's module as a path without its ending, or "" for a fixture.
    """

    file: str
    name: str
    seconds: float
    cpu: float


def read(report: Path) -> tuple[list[Taken], list[Taken]]:
    """Return the tests and the fixtures of a report that pytest wrote."""
    tests, fixtures = [], []
    for case in xml.parse(report).getroot().iter("testcase"):
        properties = [(one.get("name"), str(one.get("value"))) for one in case.iter("property")]
        cpu = sum(float(value) for name, value in properties if name == "cpu")
        file = str(case.get("classname")).replace(".", "/")
        tests.append(Taken(file, str(case.get("name")), float(str(case.get("time"))), cpu))
        for value in (value for name, value in properties if name == "fixture"):
            fixture, seconds, of_cpu = value.rsplit(" ", 2)
            fixtures.append(Taken("", fixture, float(seconds), float(of_cpu)))
    return tests, fixtures


def folder_of(file: str) -> str:
    """Return the folder that a module of tests counts to."""
    parts = file.split("/")[:-1]
    return "/".join(parts[: 3 if parts[1:2] and parts[1] in PACKAGES else 2])


def table(rows: dict[str, list[Taken]], first: str, largest: int | None = None) -> str:
    """Return rows as a table in Markdown, the longest first; their number, seconds and CPU seconds."""

    def line(name: str, taken: list[Taken]) -> str:
        return f"| {name} | {len(taken)} | {sum(t.seconds for t in taken):,.0f} | {sum(t.cpu for t in taken):,.0f} |"

    ranked = sorted(rows.items(), key=lambda row: -sum(one.seconds for one in row[1]))
    lines = [line(f"`{name}`", taken) for name, taken in ranked[:largest]]
    everything = line("together", [one for taken in rows.values() for one in taken])
    return "\n".join([f"| {first} | number | seconds | CPU seconds |", "|---|---:|---:|---:|", *lines, everything])


def grouped(taken: list[Taken], names: list[str]) -> dict[str, list[Taken]]:
    rows: dict[str, list[Taken]] = {}
    for name, one in zip(names, taken, strict=True):
        rows.setdefault(name, []).append(one)
    return rows


def main(arguments: list[str]) -> int:
    tests, fixtures = read(Path(arguments[0]))
    if "--tests" in arguments:
        text = table(grouped(tests, [f"{one.file}.py::{one.name}" for one in tests]), "test", LARGEST)
    elif "--files" in arguments:
        text = table(grouped(tests, [f"{one.file}.py" for one in tests]), "file", LARGEST)
    else:
        text = table(grouped(tests, [folder_of(one.file) for one in tests]), "folder")
    text += "\n\n" + table(grouped(fixtures, [one.name for one in fixtures]), "of these, set up for several tests")
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
