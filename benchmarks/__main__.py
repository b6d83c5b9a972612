"""``python -m benchmarks``: runs the measurements and prints them."""

from __future__ import annotations

import argparse
import importlib
import os
import platform

from rich.console import Console

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
    arguments = parser.parse_args()
    console = Console(width=160)
    console.print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for name in arguments.only or QUESTIONS:
        importlib.import_module(QUESTIONS[name]).run(console, arguments)


if __name__ == "__main__":
    main()
