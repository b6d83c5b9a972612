"""MERGE, UPDATE and DELETE of Delta and Iceberg tables by their own connectors, with an index and without.

A table of rows of about 200 bytes, whose ids are spread over all files, has a record index. The same statement is run,
in turn, in a session with the rule, in one of the same Spark without it, and on the floor: a table that holds only the
files that the statement touches. Each run is undone before the next, which is not counted. Keys are in three files, in
a tenth of them, many in a tenth of them, and in all. Spark 4.2 measures Delta, 3.5 and 4.1 Iceberg; a full run has both
modes of writing, with 10 and 50 million rows.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Answer, interleaved, timed
from benchmarks.report import Report
from benchmarks.workplace import folder, workplace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITH, WITHOUT, FLOOR = "with index", "without", "floor"
FORMATS = {"3.5": "iceberg", "4.1": "iceberg", "4.2": "delta"}
"""Spark's minor release -> the format whose connector is measured on it."""

_ROWS_A_ROW = 5
"""Rows for each of what other questions have: a quick run is of a million."""
FULL_ROWS = (10_000_000, 50_000_000)
ROWS_PER_FILE, FEWEST_FILES = 100_000, 100
KEYS, NEW_KEYS = 950, 50
MANY_SHARE, FEWEST_MANY = 0.01, 20_000
"""Of the rows, the keys of the case with many; and how many they are at least."""

MODES = {
    "delta": {
        "vectors": {"delta.enableDeletionVectors": "true"},
        "rewritten": {"delta.enableDeletionVectors": "false"},
    },
    "iceberg": {
        mode: {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
        for mode in ("merge-on-read", "copy-on-write")
    },
}


@dataclass(frozen=True)
class Case:
    """Keys of a statement, by the files that hold them.

    :param files: of a table with so many. :param keys: of a table with so many rows.
    :param statements: which of them are measured, and which in a full run.
    """

    name: str
    files: Callable[[int], int]
    keys: Callable[[int], int]
    statements: tuple[str, ...]
    full: tuple[str, ...]


CASES = (
    Case("few", lambda files: 3, lambda rows: KEYS, ("merge", "update", "delete"), ("merge", "update", "delete")),
    Case("tenth", lambda files: files // 10, lambda rows: KEYS, ("merge",), ("merge", "update", "delete")),
    Case(
        "many", lambda files: files // 10, lambda rows: max(FEWEST_MANY, int(rows * MANY_SHARE)), ("merge",), ("merge",)
    ),
    Case("all", lambda files: files, lambda rows: KEYS, ("merge",), ("merge", "update")),
)


@dataclass(frozen=True)
class Table:
    """A table of one of the formats, which each run leaves as it was.

    :param name: by which SQL names it. :param first: its version before any run.
    """

    spark: SparkSession
    format: str
    name: str
    first: str

    @classmethod
    def write(cls, rows: Any, format: str, home: Path, name: str, properties: dict[str, str]) -> Table:
        """Write rows, a file for each of their partitions."""
        spark = rows.sparkSession
        if format == "delta":
            path = str(home / name)
            writer = rows.write.format("delta")
            for option, value in properties.items():
                writer = writer.option(option, value)
            writer.save(path)
            return cls(spark, format, f"delta.`{path}`", "0")
        table = f"prod.db.{name}"
        created = rows.writeTo(table).using("iceberg").tableProperty("write.distribution-mode", "none")
        for option, value in properties.items():
            created = created.tableProperty(option, value)
        created.create()
        [row] = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots").collect()
        return cls(spark, format, table, str(row[0]))

    def rows_by_file(self) -> Any:
        """Return the rows with the file that each is in, as the column ``file``."""
        from pyspark.sql import functions as F

        rows = self.spark.table(self.name)
        return rows.withColumn("file", F.input_file_name() if self.format == "delta" else F.col("_file"))

    def undo(self) -> None:
        """Let the table be what it was at first."""
        if self.format == "delta":
            self.spark.sql(f"RESTORE TABLE {self.name} TO VERSION AS OF {self.first}").collect()
        else:
            named = self.name.removeprefix("prod.")
            self.spark.sql(f"CALL prod.system.rollback_to_snapshot('{named}', {self.first})").collect()


def run(report: Report, arguments: Namespace) -> None:
    """Prints a table a statement, of each size and mode."""
    import pyspark

    from tests.connectors.releases import of_spark, settings

    format = FORMATS[".".join(pyspark.__version__.split(".")[:2])]
    release = of_spark(pyspark.__version__)[format].packages[".".join(pyspark.__version__.split(".")[:2])]
    report.say(f"Spark {pyspark.__version__} with {release.split(',')[0]}.")
    sizes = FULL_ROWS if arguments.full else (arguments.rows * _ROWS_A_ROW,)
    modes = MODES[format] if arguments.full else dict([next(iter(MODES[format].items()))])
    with folder() as warehouse:
        given = settings(pyspark.__version__, [format], str(warehouse))
        given.pop("spark.databricks.delta.snapshotPartitions", None)  # default settings are what is measured
        with workplace("4g", **{name.replace(".", "__"): value for name, value in given.items()}) as (spark, home):
            for rows in sizes:
                for number, (mode, properties) in enumerate(modes.items()):
                    measure(report, arguments, Setting(spark, home, format, mode, properties, rows, number))


@dataclass(frozen=True)
class Setting:
    """What one set of tables is made by."""

    spark: SparkSession
    home: Path
    format: str
    mode: str
    properties: dict[str, str]
    rows: int
    number: int

    @property
    def files(self) -> int:
        return max(FEWEST_FILES, self.rows // ROWS_PER_FILE)

    def table(self, rows: Any, name: str) -> Table:
        return Table.write(rows, self.format, self.home, f"{name}_{self.rows}_{self.number}", self.properties)


def measure(report: Report, arguments: Namespace, setting: Setting) -> None:
    """Make the tables of a size and mode, and run all statements."""
    import spark_apps
    from spark_apps import IndexedTable

    spark = setting.spark
    if setting.format == "iceberg":
        spark.sql("CREATE NAMESPACE IF NOT EXISTS prod.db")
    big = setting.table(_rows(spark, setting.rows, setting.files), "big")
    address = big.name if setting.format == "iceberg" else str(setting.home / f"big_{setting.rows}_{setting.number}")
    more = {"index_root": str(setting.home / f"index_{setting.rows}_{setting.number}")}
    table = IndexedTable.register(spark, address, setting.format, record_key=["id"], **more)
    table.create_index("by_id", "record", [])
    report.say(f"{setting.format}, {setting.mode}: {setting.rows:,} rows in {setting.files} files.")
    plain = spark.newSession()
    spark_apps.enable(spark, sources=[table._handle.timeline.store.uri])
    try:
        for case in CASES:
            for title, statement, floor in _statements(setting, case, big, plain, full=arguments.full):
                _ask(report, arguments.repeats, setting, case, title, statement, (big, floor, plain))
    finally:
        spark_apps.disable(spark)


def _rows(spark: SparkSession, rows: int, files: int) -> Any:
    from pyspark.sql import functions as F

    id = F.col("id").cast("string")
    wide = spark.range(0, rows, 1, 8).select(
        "id",
        F.concat(F.lit("r"), id).alias("rider"),
        F.rand(1).alias("fare"),
        F.sha1(id).alias("note"),
        F.sha2(id, 512).alias("pad"),
    )
    return wide.repartition(files, F.xxhash64("id"))


def _statements(
    setting: Setting, case: Case, big: Table, plain: SparkSession, *, full: bool
) -> Iterator[tuple[str, str, Table]]:
    """Yield each statement of a case, ``{table}`` for its target, and the table of the files that it touches."""
    from pyspark.sql import functions as F

    touched = case.files(setting.files)
    rows = Table(plain, big.format, big.name, big.first).rows_by_file()
    names = [row[0] for row in rows.select("file").distinct().orderBy("file").limit(touched).collect()]
    of_files = rows if touched == setting.files else rows.where(F.col("file").isin(names))
    floor = big
    if touched < setting.files:
        floor = setting.table(of_files.drop("file").repartition(touched, F.xxhash64("id")), f"floor_{case.name}")
    keys = case.keys(setting.rows)
    chosen = of_files.select("id").orderBy(F.xxhash64("id")).limit(keys).select("id", F.lit(1.5).alias("fare"))
    new = plain.range(setting.rows, setting.rows + NEW_KEYS).select("id", F.lit(2.5).alias("fare"))
    changes = setting.table(chosen.unionByName(new).repartition(1), f"changes_{case.name}")
    some = ", ".join(str(row[0]) for row in chosen.limit(KEYS).collect())
    texts = {
        "merge": f"MERGE INTO {{table}} t USING {changes.name} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET "
        "fare = s.fare WHEN NOT MATCHED THEN INSERT (id, rider, fare, note, pad) VALUES (s.id, '', s.fare, '', '')",
        "update": f"UPDATE {{table}} SET fare = fare + 1 WHERE id IN ({some})",
        "delete": f"DELETE FROM {{table}} WHERE id IN ({some})",
    }
    for statement in case.full if full else case.statements:
        said = f"{statement.upper()}, {keys:,} keys in {touched:,} of {setting.files:,} files"
        yield said, texts[statement], floor


def _ask(
    report: Report, repeats: int, setting: Setting, case: Case, title: str, statement: str, where: tuple[Any, ...]
) -> None:
    big, floor, plain = where

    def answer(spark: SparkSession, target: Table) -> Answer:
        def statement_of_case() -> None:
            spark.sql(statement.format(table=target.name)).collect()

        seconds = timed(statement_of_case)
        Table(plain, target.format, target.name, target.first).undo()
        return Answer({}, seconds)

    cases = {WITH: partial(answer, setting.spark, big), WITHOUT: partial(answer, plain, big)}
    if floor is not big:
        cases[FLOOR] = partial(answer, plain, floor)
    timings = {timing.name: timing for timing in interleaved(cases, repeats, turned=True)}
    report.timings(
        f"{setting.format}, {setting.mode}, {setting.rows:,} rows: {title}",
        [*timings.values()],
        FLOOR if floor is not big else WITHOUT,
    )
    said = f"{case.name}: {setting.format}, {setting.mode}, {setting.rows:,} rows, {title.partition(',')[0]}"
    median = {name: timing.median for name, timing in timings.items()}
    if floor is big:
        report.verdict(23, said, median[WITH] / median[WITHOUT])
        return
    report.verdict(23, said, median[WITH] / median[FLOOR])
    report.verdict(23, f"saved: {said}", median[WITH] / median[WITHOUT])
    report.verdict(23, f"at best: {said}", median[FLOOR] / median[WITHOUT])
