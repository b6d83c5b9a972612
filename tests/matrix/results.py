"""What ran where, kept in the repository: by environment its versions, and by suite the date and the counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.matrix.environments import ENVIRONMENTS, SUITES
from tests.matrix.running import Result

RESULTS = Path(__file__).with_name("results.json")


def known(path: Path = RESULTS) -> dict[str, Any]:
    """Return what is written down."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def record(name: str, versions: dict[str, str], suite: str, result: Result, path: Path = RESULTS) -> None:
    """Write down what became of a suite; a part of one does not take the place of a whole one of the same versions."""
    results = known(path)
    entry = results.get(name, {})
    if entry.get("versions") != versions:
        entry = {"versions": versions, "suites": {}}
    before = entry["suites"].get(suite)
    if before is None or result.part == "all" or before["part"] != "all":
        entry["suites"][suite] = result.to_dict()
    results[name] = entry
    order = [environment.name for environment in ENVIRONMENTS]
    ordered = {each: results[each] for each in order if each in results}
    path.write_text(json.dumps(ordered, indent=1) + "\n")


def table(results: dict[str, Any]) -> str:
    """Return the results as a table of Markdown: an environment a line, and what passed by suite."""
    suites = [name for name in SUITES if any(name in entry["suites"] for entry in results.values())]
    lines = [f"| environment | versions | {' | '.join(suites)} | date |", "|---" * (len(suites) + 3) + "|"]
    for name, entry in results.items():
        ran = entry["suites"]
        versions = ", ".join(f"{package} {release}" for package, release in entry["versions"].items())
        dates = sorted({told["date"] for told in ran.values()})
        cells = [_cell(ran[suite]) if suite in ran else "" for suite in suites]
        lines.append(f"| {name} | {versions} | {' | '.join(cells)} | {dates[-1] if dates else ''} |")
    return "\n".join(lines)


def _cell(told: dict[str, Any]) -> str:
    counts = f"{told['passed']} passed"
    if told["failed"]:
        counts += f", **{told['failed']} failed**"
    if told["skipped"]:
        counts += f", {told['skipped']} skipped"
    return counts if told["part"] == "all" else f"{counts} (part {told['part']})"
