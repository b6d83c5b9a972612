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
_BEGIN, _END = "<!-- made by python -m tests.matrix -->\n", "<!-- end -->"


def known() -> dict[str, Any]:
    """Return what is written down."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def record(name: str, versions: dict[str, str], suite: str, result: Result) -> None:
    """Write down what became of a suite; a part of one does not take the place of a whole one of the same versions."""
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
    before = entry["suites"].get(suite)
    if before is None or result.part == "all" or before["part"] != "all":
        entry["suites"][suite] = result.to_dict()
    results[name] = entry
    order = [environment.name for environment in ENVIRONMENTS]
    ordered = {each: results[each] for each in order if each in results}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), ordered))


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
        dates = sorted({result["date"] for result in ran.values()})
        cells = [_cell(ran[suite]) if suite in ran else "" for suite in suites]
        lines.append(f"| {name} | {versions} | {' | '.join(cells)} | {dates[-1] if dates else ''} |")
    return "\n".join(lines)


def _cell(result: dict[str, Any]) -> str:
    counts = f"{result['passed']} passed"
    if result["failed"]:
        counts += f", **{result['failed']} failed**"
    if result["skipped"]:
        counts += f", {result['skipped']} skipped"
    if result["drawn"] == "all":
        counts += ", all cases"
    return counts if result["part"] == "all" else f"{counts} (part {result['part']})"
