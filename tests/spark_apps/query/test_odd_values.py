"""Values that are easily mistaken, in tables of every shape with an index of every kind, asked in two sessions.

What is right is what Spark makes of the same rows in the same session without any file, index or filter: each
predicate is a column there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.datasource import IndexedDataSource
from spark_apps.engine.spark_versions import from_arrow, to_arrow
from spark_apps.mergetree.schema import parse_ddl
from spark_apps.storage.errors import InvalidPredicate, UnsupportedSource
from tests.spark.local import session_with

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24)]

Row = tuple[Any, ...]

FIELDS = {
    "k": "string", "n": "int", "p": "date", "o": "timestamp_ltz", "f": "double", "s": "string", "d": "date",
    "ts": "timestamp_ltz", "l": "timestamp_ntz", "t": "tinyint",
}  # fmt: skip
DAY = 86_400_000_000
FAR = 4_000_000  # days, in the year 12921
D2024, LAST, FIRST = 19723, 2932896, -719162
NAN, INF = float("nan"), float("inf")


def at(day: int | None) -> int | None:
    """Five o'clock of a day, in UTC."""
    return None if day is None else day * DAY + 5 * 3_600_000_000


def row(
    k: bytes, n: int, p: int | None, o: int | None, f: float | None, s: bytes | None, d: int | None, t: int | None
) -> Row:
    return (k, n, p, at(o), f, s, d, at(d), at(d), t)


ROWS = [
    row(b"a", 0, D2024, 1, NAN, b"\xff", D2024, 127),
    row(b"\xff", 1, D2024, 5, -0.0, b"a\xff", FAR, -128),
    row(b"a\xff", 2, LAST, FAR, 0.0, b"a", -FAR, 0),
    row(b"", 3, LAST, -FAR, None, None, None, None),
    row(b"b", 4, None, None, INF, b"", LAST, 1),
    row(b"c", 5, None, 2, -INF, b"\xef\xbf\xbd", FIRST, -1),
    row(b"d", 6, LAST, 2, 1.5, "\uffff".encode(), D2024, 127),
    row(b"e", 7, LAST, 2, NAN, b"a", FAR, None),
    row(b"f", 8, D2024, 2, 1.5, b"b", -FAR, -128),
    row(b"g", 9, D2024, 2, -1.5, b"A", 0, 5),
]
CHANGES = [
    row(b"a", 10, D2024, FAR, 1.5, b"a", FAR, -128),
    row(b"\xff", 11, D2024, -FAR, NAN, b"\xff", D2024, 127),
    row(b"a\xff", 12, LAST, FAR, None, b"\xff\xfe", LAST, None),
    row(b"", 13, LAST, FAR + 1, -0.0, b"", -FAR, 0),
    row(b"b", 14, None, 1, NAN, None, None, 127),
    row(b"c", 15, None, None, 0.0, b"\xff", FAR, 1),
    row(b"h\xfe", 16, LAST, 3, 0.0, b"a\xff", FIRST, 127),
]
GONE = "d = DATE '-8982-05-17'"  # the day -FAR; as a text, for Spark alone parses it

PREDICATES = [
    "f = CAST('NaN' AS DOUBLE)", "f > 1.5", "f = 0.0", "f <=> NULL", "NOT f <= 1.5", "s >= 'a'", "s IN ('', 'a')",
    "s <=> 'a'", "d = DATE '+12921-08-18'", "d < DATE '0001-01-01'", "d IN (DATE '2024-01-01', DATE '9999-12-31')",
    "ts = TIMESTAMP '2024-01-01 05:00:00'", "ts = TIMESTAMP '2024-01-01 05:00:00Z'",
    "ts < TIMESTAMP '0001-01-02 00:00:00'", "l = TIMESTAMP '2024-01-01 05:00:00'", "t = 128", "t >= -129",
    "t <=> TRY_CAST(128 AS TINYINT)", "NOT t IN (127, 300)", "k IN ('', 'b', 'nobody') OR f = 0.0",
    "p = DATE '9999-12-31'", "p IS NULL OR d IS NULL", "s LIKE '%a'", "s LIKE 'a%' AND f IS NOT NULL",
]  # fmt: skip
NO_TEXT = ["s = cast(X'FF' AS string)", "s > cast(X'61FF' AS string)", "k IN (cast(X'61FF' AS string), 'b')"]
NOT_ANSI = ["t = CAST(128 AS TINYINT)", "d = 'x'"]
ANSI = "spark.sql.ansi.enabled"
BY_SESSION = [text for text in PREDICATES if text.startswith(("ts", "l ", "t "))]
SESSIONS: list[tuple[Mapping[str, str], list[str]]] = [
    ({"spark.sql.session.timeZone": "UTC", ANSI: "true"}, PREDICATES),
    # With its filters Spark itself loses rows where a literal is no text.
    (
        {"spark.sql.session.timeZone": "Asia/Tokyo", ANSI: "false", "spark.sql.parquet.filterPushdown": "false",
         "spark.sql.caseSensitive": "true"},
        [*BY_SESSION, *NO_TEXT, *NOT_ANSI],
    ),
]  # fmt: skip


def arrow(rows: list[Row], fields: Mapping[str, str] = FIELDS) -> pa.Table:
    """Rows by what is stored of them, for Python knows neither these days nor these strings."""
    held = {"string": pa.binary(), "int": pa.int32(), "date": pa.int32(), "double": pa.float64(), "tinyint": pa.int8()}
    meant = {"string": pa.string(), "date": pa.date32(), "timestamp_ltz": pa.timestamp("us", "UTC"),
             "timestamp_ntz": pa.timestamp("us")}  # fmt: skip
    columns = [
        pa.array(values, held.get(kind, pa.int64()))
        for values, kind in zip(zip(*rows, strict=True), fields.values(), strict=True)
    ]
    columns = [column.view(meant.get(kind, column.type)) for column, kind in zip(columns, fields.values(), strict=True)]
    return pa.table(dict(zip(fields, columns, strict=True)))


def ddl(fields: Mapping[str, str] = FIELDS) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in fields.items())


def frame(spark: SparkSession, rows: list[Row], fields: Mapping[str, str] = FIELDS) -> DataFrame:
    return from_arrow(spark, arrow(rows, fields), parse_ddl(ddl(fields)))


def stored(table: pa.Table) -> list[str]:
    """The rows as they are stored, sorted."""
    columns = []
    for column in table.columns:
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            column = column.cast(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
        elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            column = column.cast(pa.int32() if pa.types.is_date(kind) else pa.int64())
        columns.append(column.to_pylist())
    return sorted(map(repr, zip(*columns, strict=True)))


def merged(later: Callable[[Row, Row], bool] = lambda old, new: True, changes: Sequence[Row] = CHANGES) -> list[Row]:
    """The rows that stand: a change in the place of its key's row, where it is the later one."""
    by_key = {one[0]: one for one in ROWS}
    for one in changes:
        if one[0] not in by_key or later(by_key[one[0]], one):
            by_key[one[0]] = one
    return [one for one in by_key.values() if one[6] != -FAR]


def by_ordering(old: Row, new: Row) -> bool:
    return (new[3] is not None, new[3] or 0) >= (old[3] is not None, old[3] or 0)


def expected(
    spark: SparkSession, rows: list[Row], predicates: list[str], fields: Mapping[str, str]
) -> dict[str, list[int]]:
    asked = frame(spark, rows, fields).selectExpr("n", *(f"({text}) AS `p{at}`" for at, text in enumerate(predicates)))
    answers = to_arrow(asked).to_pydict()
    return {
        text: sorted(n for n, so in zip(answers["n"], answers[f"p{at}"], strict=True) if so)
        for at, text in enumerate(predicates)
    }


def by_read(table: IndexedTable, predicates: list[str]) -> dict[str, list[int]]:
    parts = [table.read(text, ["n"]).selectExpr(f"{at} AS p", "n") for at, text in enumerate(predicates)]
    rows = functools.reduce(DataFrame.union, parts).collect()
    return {text: sorted(one["n"] for one in rows if one["p"] == at) for at, text in enumerate(predicates)}


def by_data_source(table: IndexedTable, predicates: list[str]) -> dict[str, list[int]]:
    """Of the predicates, and the files, that the data source does not decline."""
    numbers = {}
    for text in predicates:
        source = IndexedDataSource({"path": table.uri, "where": text})
        try:
            reader = source.reader(StructType([source.schema()["n"]]))
            rows = [batch for part in reader.partitions() for batch in reader.read(part)]
        except (InvalidPredicate, UnsupportedSource):
            continue
        numbers[text] = sorted(n for batch in rows for n in batch.column("n").to_pylist())
    return numbers


def check(table: IndexedTable, rows: list[Row], kinds: set[str], fields: Mapping[str, str] = FIELDS) -> None:
    """Ask everything in both sessions; the kinds of indexes have to have been of use."""
    spark = table._handle.spark
    for said, predicates in SESSIONS:
        with session_with(spark, said):
            right = expected(spark, rows, predicates, fields)
            by_index = by_read(table, predicates)
            assert by_index == right, said
    with session_with(spark, SESSIONS[0][0]):
        right = expected(spark, rows, PREDICATES, fields)
        used = {use.name for text in PREDICATES for use in table.explain(text, ["n"]).indexes}
    by_source = by_data_source(table, PREDICATES)
    assert by_source == {text: right[text] for text in by_source}
    assert len(by_source) > 5, "also where the ordering column of all rows is read, whose times are stored as they are"
    assert {table.indexes[one].kind for one in used if one in table.indexes} >= kinds
    assert stored(to_arrow(table.read()).select(list(fields))) == stored(arrow(rows, fields))


def index(table: IndexedTable, tombstones: Mapping[str, str]) -> None:
    """Make one of every kind, over the odd columns."""
    if not table.indexes:
        table.create_index("keys", "record")
    table.create_index("by_s", "secondary", ["s"], properties=tombstones)
    table.create_index("by_ts", "secondary", ["ts"], properties=tombstones)
    table.create_index("blocks", "compact", ["f", "s", "d", "ts"])
    columns = ["f", "s", "d", "ts", "l"]
    kept = [f"{kind}({name})" for name in columns for kind in ("minmax", "values", "bloom")]
    table.create_index("skip", "skipping", [*kept, "ngrams(s)", "minmax(k)"], properties={"gram_bytes": "2"})
    always = {"layout": "ranges", "hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1"}
    table.create_index("cover", "covering", ["d"], included=IncludedColumns(exclude=["t"]), properties=always)


# Where deltas lie over all base files, a compact index has nothing to tell.
MERGED = {"record", "secondary", "covering"}


SHAPES = [
    pytest.param({"positions": True}, {"tombstones": "lazy"}, MERGED, id="positions"),
    pytest.param({"ordering_column": "o", "merge_by": "ordering"}, {}, {"record", "secondary"}, id="ordering"),
    pytest.param({"buckets": None, "properties": {"group_rows": "3"}}, {}, MERGED, id="without_buckets"),
    pytest.param({"write_mode": "copy_on_write"}, {}, {*MERGED, "compact"}, id="copy_on_write"),
]


@pytest.mark.parametrize(("options", "tombstones", "kinds"), SHAPES)
def test_given_a_table_of_any_shape_then_odd_values_are_found_as_by_a_scan(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], tombstones: dict[str, str], kinds: set[str]
) -> None:
    table = IndexedTable.create(spark, tmp_path, ddl(), ["k"], partition_by=["p"], **{"buckets": 1, **options})
    table.upsert(frame(spark, ROWS))
    index(table, tombstones)
    table.upsert(frame(spark, CHANGES))
    table.delete(GONE)
    for name in ("blocks", "cover"):
        table.refresh_index(name)
    check(table, merged(by_ordering) if "ordering_column" in options else merged(), kinds)


def test_given_a_rescaled_table_with_a_widened_column_then_odd_values_are_found_as_by_a_scan(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = IndexedTable.create(spark, tmp_path, ddl(), ["k"], partition_by=["p"], buckets=1)
    table.upsert(frame(spark, ROWS))
    index(table, {})
    table.widen_column("t", "int")
    table.rescale(buckets=2)
    fields = {**FIELDS, "t": "int"}
    changes = [(*one[:-1], 128 if one[-1] == 127 else one[-1]) for one in CHANGES]
    table.upsert(frame(spark, changes, fields))
    table.delete(GONE)
    table.refresh_index("cover")
    table.refresh_index("blocks")
    check(table, merged(changes=changes), MERGED, fields)


def test_given_an_iceberg_table_then_odd_values_are_found_as_by_a_scan(spark: SparkSession, tmp_path: Path) -> None:
    fields = {**FIELDS, "t": "int"}
    (tmp_path / "warehouse").mkdir()
    own = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    catalog = load_catalog("test", **own)
    catalog.create_namespace("db")
    rows = [*ROWS, *CHANGES]
    # Its writer cannot tell the bounds of values that Python does not know.
    without = {"write.metadata.metrics.default": "counts"}
    theirs = catalog.create_table("db.odd", schema=arrow(rows, fields).schema, properties=without)
    theirs.append(arrow(rows[:5], fields))
    theirs.append(arrow(rows[5:10], fields))
    options = {"catalog": "test", **{f"catalog.{name}": value for name, value in own.items()}}
    table = IndexedTable.register(spark, "db.odd", "iceberg", options=options, record_key=["k"])
    index(table, {})
    theirs.append(arrow(rows[10:], fields))
    # With its filters Spark itself loses NaN where a writer left it out of a column's bounds.
    with session_with(spark, {"spark.sql.parquet.filterPushdown": "false"}):
        check(IndexedTable.load(spark, theirs.location()), rows, {"record", "secondary", "compact"}, fields)
