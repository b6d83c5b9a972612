"""What the demo looks at in the end, and the tables it prints of it."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from dags_examples.demo import data
from dags_examples.demo.data import Expected
from spark_apps import IndexedTable
from spark_apps.environment import java_home
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import DATA_TREE
from spark_apps.timeline.state import State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLANE = f"tailnum = '{data.PLANE}'"
LOOKUPS: dict[str, tuple[str, list[str] | None]] = {
    "one plane": (PLANE, None),
    "one airport": ("dest = 'LEX'", None),
    "one flight": ("time_hour = TIMESTAMP '2013-12-30T10:00:00Z' AND carrier = 'UA' AND flight = 1102", None),
    "very late": ("dep_delay > 1000", None),
    "one route": ("origin = 'JFK' AND dest = 'MVY'", ["arr_delay", "air_time"]),
}
"""What is asked, of all columns or of some."""

SOURCES = ("delta", "iceberg")
RESCALED = r"month=(7|8|10)$"
_TIMES = 3


@dataclass(frozen=True)
class Lookup:
    """A query with and without indexes. Files are those of the table's rows; times in seconds, the best of
    three."""

    name: str
    where: str
    index: str | None
    files_read: int
    files_skipped: int
    rows: int
    with_index: float
    without: float
    same: bool


@dataclass(frozen=True)
class Findings:
    """Everything that is shown. ``counted`` maps a number's name to (in the table, in the raw data), ``sources`` the
    format of a registered copy to a lookup in it and the rows that the raw data have for that."""

    version: int
    operations: dict[str, int]
    counted: dict[str, tuple[int, int]]
    groups: dict[str, dict[str, tuple[int, int]]]
    buckets: dict[str, tuple[int | None, int | None]]
    lookups: list[Lookup]
    sources: dict[str, tuple[Lookup, int]]
    verdicts: dict[str, Any]


def inspect(
    location: Path, versions: Mapping[str, int], copies: Path, expected: Expected, conf: Mapping[str, str]
) -> Findings:
    """Reads the table, and the registered copies, in a Spark session of its own."""
    spark = _session(conf)
    try:
        table = IndexedTable.load(spark, location)
        timeline = Timeline.load(Store(location))
        states = {moment: timeline.at(version) for moment, version in versions.items()}
        return Findings(
            version=table.version,
            operations=dict(Counter(entry.operation for entry in table.history())),
            counted=_counted(table.read(), expected),
            groups={moment: _groups(states[moment]) for moment in ("delivered", "compacted", "rescaled")},
            buckets={
                path: (entry.buckets, states["rescaled"].partitions[path].buckets)
                for path, entry in sorted(states["compacted"].partitions.items())
                if entry.buckets != states["rescaled"].partitions[path].buckets
            },
            lookups=[_look(table, name, where, columns) for name, (where, columns) in LOOKUPS.items()],
            sources={form: (_look_into(spark, copies / form), expected.flights_of_plane) for form in SOURCES},
            verdicts={name: table.verify(name) for name in table.indexes},
        )
    finally:
        spark.stop()


def show(console: Console, found: Findings, refusal: str, tries: int) -> bool:
    """Prints what was found; returns whether all of it agrees."""
    made = ", ".join(f"{count} {name}" for name, count in found.operations.items())
    console.print(f"\n[bold]demo.flights[/], version {found.version}: {made}")

    verdicts: list[bool] = []
    table = Table("", "in the table", "counted from the raw data", "", title="Rows", title_justify="left")
    for name, (here, there) in found.counted.items():
        table.add_row(name, f"{here:,}", f"{there:,}", _mark(verdicts, here == there))
    console.print(table)

    table = Table("files (file groups)", *found.groups, title="Files", title_justify="left")
    for tree in found.groups["delivered"]:
        cells = [found.groups[moment][tree] for moment in found.groups]
        table.add_row(tree, *(f"{files} ({groups})" for files, groups in cells))
    table.caption = "compacted: one file in each group. Buckets after the rescale: " + ", ".join(
        f"{path} {before} to {after}" for path, (before, after) in found.buckets.items()
    )
    before, after = (found.groups[moment]["rows"][0] for moment in ("delivered", "compacted"))
    verdicts += [after < before, len(found.buckets) == len(RESCALED.split("|"))]
    console.print(table)

    table = Table("", "where", "index", "files read", "skipped", "rows", "s with", "s without", "", title="Lookups",
                  title_justify="left")  # fmt: skip
    for one in found.lookups:
        table.add_row(
            one.name, one.where, one.index or "none", str(one.files_read), str(one.files_skipped), str(one.rows),
            f"{one.with_index:.2f}", f"{one.without:.2f}", _mark(verdicts, one.same and one.index is not None),
        )  # fmt: skip
    console.print(table)

    table = Table("", "where", "index", "files read", "skipped", "rows", "in the raw data", "", title_justify="left",
                  title="The same flights in tables of others")  # fmt: skip
    for form, (one, expected) in found.sources.items():
        good = one.same and one.index is not None and one.rows == expected
        table.add_row(form, one.where, one.index or "none", str(one.files_read), str(one.files_skipped), str(one.rows),
                      str(expected), _mark(verdicts, good))  # fmt: skip
    console.print(table)

    table = Table("index", "rows", "entries", "missing", "too many", "", title="Indexes against a full scan",
                  title_justify="left")  # fmt: skip
    for name, report in found.verdicts.items():
        table.add_row(
            name, f"{report.rows:,}", f"{report.entries:,}", str(report.missing), str(report.too_many),
            _mark(verdicts, report.ok),
        )  # fmt: skip
    console.print(table)

    console.print(f"The writer that met the window, at its first try: {refusal or '(was not refused)'}", soft_wrap=True)
    console.print(f"It succeeded at try {tries}. {_mark(verdicts, bool(refusal) and tries > 1)}")
    agreed = all(verdicts)
    console.print("\n[green]Everything agrees.[/]" if agreed else "\n[red]Something does not agree.[/]")
    return agreed


def _session(conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("JAVA_HOME", str(java_home()))
    builder = SparkSession.builder.master("local[2]").appName("demo").config("spark.log.level", "ERROR")
    for key, value in conf.items():
        builder = builder.config(key, value)
    with _without_stderr():
        return builder.getOrCreate()


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """The JVM tells of its start on the standard error that it inherits; the report is to be read, not
    that."""
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _counted(rows: DataFrame, expected: Expected) -> dict[str, tuple[int, int]]:
    [found] = rows.selectExpr(
        "count(*) AS rows",
        "count_if(month = 12) AS rows_of_december",
        "count_if(month = 12 AND dep_time IS NULL) AS cancelled",
        "sum(arr_delay) AS sum_of_arr_delay",
        "sum(air_time) AS sum_of_air_time",
        "count(DISTINCT tailnum) AS planes",
    ).collect()
    wanted = asdict(expected)
    del wanted["flights_of_plane"]
    deleted = wanted.pop("cancelled_in_december")
    counted = {name.replace("_", " "): (found[name], wanted[name]) for name in wanted}
    return {**counted, f"cancelled in December, of {deleted:,}": (found["cancelled"], 0)}


def _groups(state: State) -> dict[str, tuple[int, int]]:
    """Tree -> (files, file groups)."""
    trees = {"rows": DATA_TREE, **{name: entry.definition.tree for name, entry in state.indexes.items()}}
    return {name: (len(state.files(tree)), len(state.groups(tree))) for name, tree in trees.items()}


def _look_into(spark: SparkSession, source: Path) -> Lookup:
    # The log of the Iceberg copy names its catalog; a reader follows it only to where it is allowed to.
    allowed = {"source_roots": [data.catalog_address(source.parent)]}
    return _look(IndexedTable.load(spark, source, options=allowed), source.name, PLANE)


def _look(table: IndexedTable, name: str, where: str, columns: list[str] | None = None) -> Lookup:
    plan = table.explain(where, columns)
    with_index, found = _timed(lambda: table.read(where, columns).collect())
    # The predicate outside of read() is not seen by the table: every row is read and then dropped.
    without, scanned = _timed(lambda: table.read().where(where).select(*(columns or "*")).collect())
    return Lookup(
        name=name,
        where=where,
        index=plan.index_used,
        files_read=plan.files_read,
        files_skipped=plan.files_skipped,
        rows=len(found),
        with_index=with_index,
        without=without,
        same=len(found) > 0 and sorted(map(str, found)) == sorted(map(str, scanned)),
    )


def _timed(query: Callable[[], list[Any]]) -> tuple[float, list[Any]]:
    best, rows = float("inf"), []
    for _ in range(_TIMES):
        started = time.monotonic()
        rows = query()
        best = min(best, time.monotonic() - started)
    return best, rows


def _mark(verdicts: list[bool], good: bool) -> str:
    verdicts.append(good)
    return "[green]agrees[/]" if good else "[red]differs[/]"
