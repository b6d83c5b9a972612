"""``python -m benchmarks``: runs the measurements and prints them."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from benchmarks.report import Report

QUESTIONS = {
    "timeline": "benchmarks.timeline_cost",
    "table": "benchmarks.keyed_table",
    "lookup": "benchmarks.lookup_border",
    "ways": "benchmarks.ways_to_read",
    "scan": "benchmarks.keys_or_scan",
    "waiting": "benchmarks.waiting",
    "parse": "benchmarks.dag_parse",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=sorted(QUESTIONS), action="append", help="which measurements; all by default")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the generated table")
    parser.add_argument("--repeats", type=int, default=5, help="counted rounds of what is quick")
    parser.add_argument("--page", type=Path, help="write the figures and their pictures here too")
    arguments = parser.parse_args()
    report = Report()
    for name in arguments.only or QUESTIONS:
        importlib.import_module(QUESTIONS[name]).run(report, arguments)
    if arguments.page is not None:
        report.write(arguments.page)


if __name__ == "__main__":
    main()
