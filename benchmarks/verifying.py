"""Verifying an index of each kind / building it over the same rows.

An index is verified as it was built; those of keys also with deltas of a hundredth of the rows that nothing has merged
yet, and after their compaction. The build is that of the same index, timed in turn with the first of these.
"""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING

from benchmarks.measure import Answer, Case, interleaved
from benchmarks.report import Report
from benchmarks.wide_tables import KINDS, create, every, wide_frame, wide_table
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from spark_apps.table import IndexedTable

OF_KEYS = ("record", "secondary")
"""Kinds that each write keeps, in deltas of their own."""


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table a kind and state."""
    rows = arguments.rows
    repeats = 3 if arguments.full else arguments.repeats
    with workplace() as (spark, folder):
        table = wide_table(spark, folder / "table", rows)
        for kind in (*KINDS, "skipping"):
            timings = interleaved({"build": _building(table, kind), "verify": _verifying(table, kind)}, repeats)
            report.timings(f"Verification of a {kind} index over {rows:,} rows", timings, "build")
            table.drop_index(kind)
        for kind in OF_KEYS:
            create(table, kind, kind)
        table.upsert(every(wide_frame(spark, rows), 100))
        for state in ("with unmerged deltas", "compacted"):
            cases: dict[str, Case] = {kind: _verifying(table, kind) for kind in OF_KEYS}
            report.timings(f"Verification {state}, {rows:,} rows", interleaved(cases, repeats), OF_KEYS[0])
            for kind in OF_KEYS:
                table.compact(kind, "full")


def _building(table: IndexedTable, kind: str) -> Case:
    def build() -> Answer:
        if kind in table.indexes:
            table.drop_index(kind)
        begun = time.perf_counter()
        if kind == "skipping":
            table.create_index(kind, kind, ["minmax(customer)"])
        else:
            create(table, kind, kind)
        return Answer({}, time.perf_counter() - begun)

    return build


def _verifying(table: IndexedTable, kind: str) -> Case:
    def verify() -> Answer:
        begun = time.perf_counter()
        found = table.verify(kind)
        seconds = time.perf_counter() - begun
        assert found.ok, found
        return Answer({"rows": found.rows, "entries": found.entries}, seconds)

    return verify
