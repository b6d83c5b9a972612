"""Scan of a table with deltas / the same table compacted.

Deltas of 1 % and of 10 % of the rows spread evenly over all file groups, and of 10 % of the rows in a tenth of the
groups; each lies directly over the same base files, for the table is restored between them, and all are read as of
their versions in turn. Once as tables are by default, and once with positions written by the upserts. Every column of
every row is read. An upsert is timed once, as it cannot be done twice.
"""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Answer, Case, interleaved, timed
from benchmarks.report import Report
from benchmarks.wide_tables import every, files_of, stored, wide_frame, wide_table
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_apps.table import IndexedTable

_LEAST_ROWS = 1_000_000
_COMPACTED = "compacted"


def run(report: Report, arguments: Namespace) -> None:
    """Prints the scans, and what the upserts took."""
    rows = max(arguments.rows, _LEAST_ROWS)
    with workplace() as (spark, folder):
        plain, plain_seconds = _deltas(spark, folder / "plain", rows)
        positioned, positioned_seconds = _deltas(spark, folder / "positioned", rows, positions=True)
        cases: dict[str, Case] = {
            _COMPACTED: plain.pop(_COMPACTED),
            **plain,
            **{f"{name}: with positions": scan for name, scan in positioned.items() if name != _COMPACTED},
        }
        timings = interleaved(cases, 3 if arguments.full else arguments.repeats, warm=2)
        report.timings(f"Scan of {rows:,} rows with deltas over them", timings, _COMPACTED)
        for timing in timings[1:]:
            report.verdict(12, timing.name, timing.median / timings[0].median)
    rows_of_table = [
        (name, *(f"{one[name]:.2f}" for one in (plain_seconds, positioned_seconds))) for name in plain_seconds
    ]
    report.table("The upserts that wrote these deltas", ("rows", "seconds", "seconds, with positions"), rows_of_table)


def _deltas(
    spark: SparkSession, folder: Path, rows: int, *, positions: bool = False
) -> tuple[dict[str, Case], dict[str, float]]:
    """Scans of a new table, compacted and with each batch upserted; and how long the upserts took."""
    table = wide_table(spark, folder, rows, positions=positions)
    table.compact()
    versions = {_COMPACTED: table.version}
    durations = {}
    for name, batch in _batches(spark, table, rows).items():
        changed = stored(spark, batch, folder.with_name("batch"))
        durations[name] = timed(lambda changed=changed: table.upsert(changed))  # type: ignore[misc]
        versions[name] = table.version
        table.restore(versions[_COMPACTED])
    return {name: _scan(spark, table.uri, version) for name, version in versions.items()}, durations


def _batches(spark: SparkSession, table: IndexedTable, rows: int) -> dict[str, DataFrame]:
    """What is upserted: rows of before with another amount."""
    source = wide_frame(spark, rows)
    groups = sorted({file.group_key for file in files_of(table)})
    chosen = groups[:: len(groups) // (len(groups) // 10 + 1)][: len(groups) // 10 + 1]
    paths = [Path(table.uri, file.path) for file in files_of(table) if file.group_key in chosen]
    narrow = spark.read.parquet(*(f"file://{path}" for path in paths))
    share = max(1, round(narrow.count() * 100 / rows))
    return {
        "1 %": every(source, 100),
        "10 %": every(source, 10),
        # 10 % of the rows, all in these groups: nearly every row of them, whatever share of the rows they hold.
        "10 % in a tenth": every(narrow, 100, min(100, round(1000 / share))).select(source.columns),
    }


def _scan(spark: SparkSession, uri: str, version: int) -> Case:
    from spark_apps.table import IndexedTable

    return partial(_read, IndexedTable.load(spark, uri, version=version))


def _read(table: IndexedTable) -> Answer | None:
    table.read().write.format("noop").mode("overwrite").save()
    return None
