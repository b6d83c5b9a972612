"""What a query costs by each way that SQL can take: a DataFrame, a view, and the Python data source.

The table has unique 36-character keys, 48 file groups and a record index. Once a single row, once the sum of a column.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.keyed_table import BUCKETS, SCHEMA, generate
from benchmarks.measure import Case, interleaved
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(report: Report, arguments: Namespace) -> None:
    """Prints one table a question."""
    with workplace() as (spark, folder):
        compare(report, spark, folder, arguments.rows, arguments.repeats)


def compare(report: Report, spark: SparkSession, folder: Path, rows: int, repeats: int) -> None:
    """The same two questions by every way."""
    from spark_apps.datasource import NAME, PUSHDOWN
    from spark_apps.table import IndexedTable, register_data_source

    table = IndexedTable.create(spark, folder / "table", SCHEMA, ["id"], partition_by=["month"], buckets=BUCKETS)
    table.upsert(generate(spark, rows))
    table.create_index("by_id", "record")
    [key] = table.read(columns=["id"]).limit(1).collect()
    where = f"id = '{key.id}'"
    register_data_source(spark)
    table.create_view("one", where)
    table.create_view("everything")

    def loaded(pushed: bool = False, **options: str) -> Any:
        spark.conf.set(PUSHDOWN, str(pushed).lower())
        return spark.read.format(NAME).options(**options).load(table.uri)

    cases: dict[str, Case] = {
        "read(where)": lambda: table.read(where).collect(),
        "view made with where": lambda: spark.sql("SELECT * FROM one").collect(),
        "view of all rows": lambda: spark.sql(f"SELECT * FROM everything WHERE {where}").collect(),
        "data source, option where": lambda: loaded(where=where).collect(),
        "data source, filter pushed down": lambda: loaded(True).where(where).collect(),
        "data source, filter not pushed": lambda: loaded().where(where).collect(),
    }
    report.timings(f"One row of {rows:,}", interleaved(cases, repeats), "read(where)")
    some = spark.read.format(NAME).schema("amount double")
    cases = {
        "read()": lambda: table.read().agg({"amount": "sum"}).collect(),
        "view": lambda: spark.sql("SELECT sum(amount) FROM everything").collect(),
        "data source": lambda: loaded().agg({"amount": "sum"}).collect(),
        "data source, that column alone": lambda: some.load(table.uri).agg({"amount": "sum"}).collect(),
    }
    report.timings(f"The sum of one column of {rows:,} rows", interleaved(cases, repeats), "read()")
