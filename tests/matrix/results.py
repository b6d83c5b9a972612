"""What ran where, kept in the repository: by environment its versions, and by suite the date and the counts."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.matrix.environments import ENVIRONMENTS, SUITES
from tests.matrix.installing import ROOT
from tests.matrix.running import Result

RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "versions.md"
_WHOLE = "all"
_BEGIN, _END = "<!-- made by python -m tests.matrix -->\n", "<!-- end -->"


def known() -> dict[str, Any]:
    """Return what is written down."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def record(name: str, versions: dict[str, str], suite: str, result: Result) -> None:
    """Write down what became of a suite, or of a part of one beside other parts of as many.

    Where a whole one of the same versions is written down, a part does not take its place.
    """
    with _alone():
        _record(name, versions, suite, result)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep other runs, of other environments, from writing meanwhile."""
    lock = os.open(RESULTS.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _record(name: str, versions: dict[str, str], suite: str, result: Result) -> None:
    results = known()
    entry = results.get(name, {})
    if entry.get("versions") != versions:
        entry = {"versions": versions, "suites": {}}
    before = entry["suites"].get(suite, [])
    if result.part == _WHOLE or all(each["part"] != _WHOLE for each in before):
        beside = [each for each in before if each["part"] != result.part and parts(each) == parts(result.to_dict())]
        entry["suites"][suite] = sorted([*beside, result.to_dict()], key=number)
    results[name] = entry
    order = [environment.name for environment in ENVIRONMENTS]
    ordered = {each: results[each] for each in order if each in results}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), ordered))


def number(result: dict[str, Any]) -> int:
    """Return which part of a suite a result is of; 1 for a whole one."""
    return 1 if result["part"] == _WHOLE else int(result["part"].split()[0])


def parts(result: dict[str, Any]) -> int:
    """Return of how many parts that is one."""
    return 1 if result["part"] == _WHOLE else int(result["part"].split()[-1])


def page(text: str, results: dict[str, Any]) -> str:
    """Return the page with the table of these results."""
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{table(results)}\n\n{_END}{rest.partition(_END)[2]}"


def table(results: dict[str, Any]) -> str:
    """Return the results as a table of Markdown: an environment a line, and what passed by suite."""
    suites = [name for name in SUITES if any(name in entry["suites"] for entry in results.values())]
    lines = [f"| environment | versions | {' | '.join(suites)} | date |", "|---" * (len(suites) + 3) + "|"]
    for name, entry in results.items():
        ran = entry["suites"]
        versions = ", ".join(f"{package} {release}" for package, release in entry["versions"].items())
        dates = sorted({result["date"] for results_of_suite in ran.values() for result in results_of_suite})
        cells = [_cell(ran[suite]) if suite in ran else "" for suite in suites]
        lines.append(f"| {name} | {versions} | {' | '.join(cells)} | {dates[-1] if dates else ''} |")
    return "\n".join(lines)


def _cell(ran: list[dict[str, Any]]) -> str:
    """Return what became of a suite, of all its parts that ran together."""
    passed, failed, skipped = (sum(result[name] for result in ran) for name in ("passed", "failed", "skipped"))
    counts = f"{passed} passed"
    if failed:
        counts += f", **{failed} failed**"
    if skipped:
        counts += f", {skipped} skipped"
    if all(result["drawn"] == "all" for result in ran):
        counts += ", all cases"
    numbers, of = [number(result) for result in ran], parts(ran[0])
    if len(numbers) == of:
        return counts
    return f"{counts} (part{'s' if numbers[1:] else ''} {', '.join(map(str, numbers))} of {of})"
