"""``python -m benchmarks``: runs the measurements, ours and those of other engines in turn, and prints them."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from pathlib import Path

from benchmarks.kept import gather, keep
from benchmarks.report import Report

QUESTIONS = {
    "timeline": "benchmarks.timeline_cost",
    "build": "benchmarks.build",
    "refresh": "benchmarks.refresh",
    "lookup": "benchmarks.lookup",
    "rows": "benchmarks.rows_in_process",
    "upsert": "benchmarks.upsert",
    "covering": "benchmarks.covering",
    "joins": "benchmarks.joins",
    "keys": "benchmarks.join_keys",
    "compaction": "benchmarks.compaction",
    "merging": "benchmarks.merging",
    "parse": "benchmarks.dag_parse",
    "planning": "benchmarks.planning_cost",
    "tpch": "benchmarks.tpch_queries",
}
# Asked by name, and by a full run: what takes minutes, and questions of no target, whose figures the documents give.
MORE = {
    "far_lookup": "benchmarks.far_lookup",
    "planning_growth": "benchmarks.planning_growth",
    "growth": "benchmarks.growth",
    "tasks": "benchmarks.tasks",
    "table": "benchmarks.keyed_table",
    "border": "benchmarks.lookup_border",
    "ways": "benchmarks.ways_to_read",
    "scan": "benchmarks.keys_or_scan",
    "skipping": "benchmarks.skipping",
    "waiting": "benchmarks.waiting",
    "advice": "benchmarks.advice",
    "tpcds": "benchmarks.tpcds",
    "connector_merge": "benchmarks.connector_merge",
    "verifying": "benchmarks.verifying",
}
QUICK_ROWS, FULL_ROWS = 200_000, 20_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    every = {**QUESTIONS, **MORE}
    parser.add_argument("--only", choices=sorted(every), action="append", help="which; else the quick ones of targets")
    parser.add_argument("--full", action="store_true", help="the sizes of the targets, and all measurements: hours")
    parser.add_argument("--rows", type=int, help=f"rows of a table; {QUICK_ROWS:,}, in full {FULL_ROWS:,}")
    parser.add_argument("--repeats", type=int, default=5, help="counted rounds of what is quick")
    parser.add_argument("--page", type=Path, help="write the figures and their pictures here too")
    parser.add_argument("--gather", action="store_true", help="measure nothing: the page of what was last measured")
    arguments = parser.parse_args()
    arguments.rows = arguments.rows or (FULL_ROWS if arguments.full else QUICK_ROWS)
    report, failed = Report(), list[str]()
    if arguments.gather:
        gather(arguments.only or every, report)
        report.write(arguments.page or Path("benchmarks/RESULTS.md"))
        return 0
    for name in arguments.only or (every if arguments.full else QUESTIONS):
        if not ask(name, every[name], report, arguments):
            failed.append(name)
        if arguments.page is not None:
            report.write(arguments.page)
    if failed:
        print(f"Did not come to an end: {', '.join(failed)}.", file=sys.stderr)
    return 1 if failed else 0


def ask(name: str, module: str, report: Report, arguments: argparse.Namespace) -> bool:
    """One question; what it raised is told on the page, so that the others are still answered."""
    try:
        begun, before = time.perf_counter(), len(report.verdicts)
        question = importlib.import_module(module)
        report.chapter(*_title((question.__doc__ or name).strip()))
        question.run(report, arguments)
        report.say(f"This measurement took {time.perf_counter() - begun:.0f} s.")
        settings = f"{'full, ' if arguments.full else ''}{arguments.rows:,} rows, {arguments.repeats} repeats"
        keep(name, settings, report, report.verdicts[before:])
    except Exception:  # noqa: BLE001 - the others are still asked, and the exit status tells
        traceback.print_exc()
        report.say(f"This measurement did not come to its end: {traceback.format_exc().strip().splitlines()[-1]}")
        return False
    return True


def _title(text: str) -> tuple[str, str]:
    """The first sentence of a module, and the rest of its words on one line."""
    flat = " ".join(text.split())
    title, _, rest = flat.partition(". ")
    return title.rstrip("."), rest


if __name__ == "__main__":
    sys.exit(main())
