"""The data source ``indexed``: its rows against ``read``, what its filters prune, and what it declines."""

from __future__ import annotations

import datetime as dt
import logging
import pickle
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

import spark_apps
from spark_apps import IndexedTable, datasource
from spark_apps.datasource import PUSHDOWN, IndexedDataSource, predicate_of
from spark_apps.indexes.keyed import lookup
from spark_apps.query.predicates import Opaque
from spark_apps.storage import errors
from tests.spark.releases import since
from tests.spark_apps.frames import frame

# Spark 4.0 brought them; how a table is planned and read for one, without Spark, other tests ask of every Spark.
ds = pytest.importorskip("pyspark.sql.datasource")

pytestmark = pytest.mark.by_turn(24, together=4)

SCHEMA = "id string, day date, city string, n int, price decimal(10,2), at timestamp, tags array<string>, x double"
DAYS = (dt.date(2024, 11, 10), dt.date(2024, 11, 11))
ZONE = dt.UTC


def row(n: int, city: str | None = None, price: str | None = None) -> tuple[Any, ...]:
    """A row; every seventh has nulls."""
    empty = n % 7 == 0
    return (
        f"k{n:03}", DAYS[n % 2], city or ("rome", "oslo", "lima")[n % 3], None if empty else n,
        None if price is None and empty else Decimal(price or f"{n}.50"),
        None if empty else dt.datetime(1890 + n, 1, 2, 3, 4, 5, 678, ZONE),
        None if empty else ["a", None][: n % 3], float("nan") if n % 5 == 0 else n / 4,
    )  # fmt: skip


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> IndexedTable:
    """A table with bases, deltas, tombstones, and a column renamed, one added and one widened since."""
    place = tmp_path_factory.mktemp("datasource") / "t"
    made = IndexedTable.create(spark, place, SCHEMA, ["id"], partition_by=["day"], buckets=2)
    made.upsert(frame(spark, [row(n) for n in range(40)], SCHEMA))
    made.create_index("rec", "record")
    made.create_index("by_city", "secondary", ["city"])
    made.compact()
    made.upsert(frame(spark, [row(n, "bonn", "1" if n % 8 == 0 else None) for n in range(0, 50, 4)], SCHEMA))
    made.delete(frame(spark, [("k001",), ("k004",), ("k012",)], "id string"))
    made.rename_column("city", "town")
    made.widen_column("n", "bigint")
    made.add_columns("extra string")
    return made


@pytest.fixture(scope="module")
def everything(table: IndexedTable) -> list[str]:
    """All rows, as Spark reads them."""
    return canonical(table.read().collect())


def loaded(table: IndexedTable, **options: str) -> IndexedDataSource:
    """The data source as Spark makes it, in this process, for one query."""
    return IndexedDataSource({"path": table.uri, **options})


@pytest.fixture(autouse=True)
def kept_with_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process Spark is taken for one that keeps what was pruned with its query, so that filters prune."""
    monkeypatch.setattr(datasource, "KEPT_WITH_SCAN", True)


def rows_of(source: IndexedDataSource, *filters: Any, schema: Any = None) -> Iterator[tuple[Any, ...]]:
    """Its rows, with reader and partitions sent as Spark sends them."""
    reader = source.reader(source.schema() if schema is None else schema)
    if filters:
        assert list(reader.pushFilters(list(filters))) == list(filters)
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    there = pickle.loads(pickle.dumps(reader))
    for partition in partitions:
        for batch in there.read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def canonical(rows: Any) -> list[str]:
    return sorted(repr(tuple(_plain(value) for value in values)) for values in rows)


def _plain(value: Any) -> Any:
    # Spark hands timestamps to Python in the process's own zone, without saying so.
    return value.astimezone(ZONE) if isinstance(value, dt.datetime) else value


pushes = since(4, 1, "filters that are pushed into Python data sources")


def pushed(name: str, *values: Any) -> Any:
    """A filter as Spark pushes it, where it does."""
    kind = getattr(ds, name, None)
    return None if kind is None else kind(*values)


EQUAL, IN, NOT = partial(pushed, "EqualTo"), partial(pushed, "In"), partial(pushed, "Not")


@pushes
@pytest.mark.parametrize(
    ("filters", "where"),
    [
        ((), "true"),
        ((EQUAL(("id",), "k008"),), "id = 'k008'"),
        ((EQUAL(("town",), "bonn"),), "town = 'bonn'"),
        ((IN(("id",), ("k001", "k002", None)),), "id IN ('k001', 'k002')"),
        ((NOT(IN(("town",), ("rome", "oslo"))),), "town NOT IN ('rome', 'oslo')"),
        ((EQUAL(("day",), DAYS[0]), pushed("LessThan", ("n",), 20)), "day = '2024-11-10' AND n < 20"),
        ((pushed("IsNull", ("n",)),), "n IS NULL"),
        ((EQUAL(("price",), Decimal("1")),), "price = 1.00"),
        ((EQUAL(("x",), float("nan")),), "x = double('nan')"),
        (
            (pushed("GreaterThanOrEqual", ("at",), dt.datetime(1920, 1, 1, tzinfo=ZONE)),),
            "at >= timestamp'1920-01-01 00:00:00Z'",
        ),
        ((pushed("StringStartsWith", ("id",), "k01"),), "id LIKE 'k01%'"),
    ],
)
def test_given_filters_then_the_rows_read_are_rows_of_the_table_and_all_that_match_are_among_them(
    table: IndexedTable, everything: list[str], filters: tuple[Any, ...], where: str
) -> None:
    answer = canonical(rows_of(loaded(table), *filters))
    assert len(answer) == len(set(answer))
    assert set(answer) <= set(everything)
    if filters:
        assert set(canonical(table.read(where).collect())) <= set(answer)
    else:
        assert answer == everything


@pushes
def test_given_a_spark_that_keeps_what_was_pruned_with_the_frame_then_filters_prune_nothing(
    table: IndexedTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(datasource, "KEPT_WITH_SCAN", False)
    reader = loaded(table).reader(loaded(table).schema())
    reader.pushFilters([EQUAL(("id",), "k008")])
    with caplog.at_level(logging.WARNING, "spark_apps"):
        reader.partitions()
    assert len(reader.plan().groups) == 4 and "Give the option where" in caplog.text
    with pytest.raises(errors.InvalidInput, match="'single_use' is not one of"):
        loaded(table, single_use="true").schema()


@pushes
def test_given_a_filter_on_indexed_columns_then_few_files_are_left_to_read(table: IndexedTable) -> None:
    def groups(*filters: Any) -> int:
        reader = loaded(table).reader(loaded(table).schema())
        reader.pushFilters(list(filters))
        return len(reader.plan().groups)

    assert (groups(EQUAL(("id",), "k008")), groups(EQUAL(("id",), "gone")), groups()) == (1, 0, 4)
    assert groups(EQUAL(("day",), DAYS[1])) == 2
    plan = loaded(table).reader(loaded(table).schema())
    plan.pushFilters([EQUAL(("town",), "nowhere")])
    assert plan.plan().groups == {} and plan.plan().used[0].name == "by_city"


@pytest.mark.parametrize(
    "where",
    ["id = 'k008' OR town = 'oslo'", "n IS NULL AND NOT (id > 'k020')", "x = double('nan')", "x > 3 AND price <> 4.5",
     "town NOT IN ('rome', 'bonn')", "day = '2024-11-11' AND n BETWEEN 3 AND 30", "extra <=> NULL"],
)  # fmt: skip
def test_given_the_option_where_then_exactly_the_rows_that_satisfy_it_are_there(
    spark: Any, table: IndexedTable, where: str
) -> None:
    expected = canonical(table.read(where).collect())
    try:
        source = loaded(table, where=where)
        answer = canonical(rows_of(source))
    except errors.InvalidPredicate:
        assert "double" in where
        return
    assert answer == expected != []
    ids = sorted(repr((one[0],)) for one in rows_of(source))
    narrow = IndexedDataSource({"path": table.uri, "where": where})
    assert sorted(map(repr, rows_of(narrow, schema=T.StructType([T.StructField("id", T.StringType())])))) == ids


def test_given_a_condition_that_only_spark_can_judge_then_the_option_where_is_refused(table: IndexedTable) -> None:
    with pytest.raises(errors.InvalidPredicate, match=r"only Spark can tell.*create_view"):
        loaded(table, where="id LIKE 'k%'").schema()
    with pytest.raises(errors.UnknownColumn, match="no column 'city'"):
        loaded(table, where="city = 'rome'").schema()


@pushes
def test_given_more_keys_than_are_looked_up_without_spark_then_only_the_layout_prunes(
    table: IndexedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "MAX_DRIVER_KEYS", 1)
    source = loaded(table)
    reader = source.reader(source.schema())
    reader.pushFilters([IN(("id",), ("k008", "k010")), EQUAL(("day",), DAYS[0])])
    plan = reader.plan()
    assert (plan.not_used["rec"].code, [use.name for use in plan.used]) == ("no_session", ["bucket layout"])


@pushes
def test_given_rows_that_win_by_their_ordering_then_late_ones_do_not_replace_them(spark: Any, tmp_path: Path) -> None:
    ddl = "id int, ts double, v string"
    table = IndexedTable.create(
        spark, tmp_path / "t", ddl, ["id"], ordering_column="ts", merge_by="ordering", buckets=1
    )
    nan = float("nan")
    table.upsert(frame(spark, [(1, 5.0, "a"), (2, 5.0, "a"), (3, None, "a"), (4, nan, "a"), (5, 1.0, "a")], ddl))
    table.compact()
    table.upsert(frame(spark, [(1, 4.0, "b"), (2, 6.0, "b"), (3, 0.0, "b"), (4, 9.0, "b"), (5, 9.0, "b")], ddl))
    table.delete(frame(spark, [(5,), (2,)], "id int"))
    table.upsert(frame(spark, [(1, 5.0, "c"), (2, 1.0, "c"), (3, None, "c")], ddl))
    expected = canonical(table.read().collect())
    # The delete of 2 has the ordering of the row that it removed.
    assert expected == canonical([(1, 5.0, "c"), (3, 0.0, "b"), (4, nan, "a")])
    assert canonical(rows_of(loaded(table))) == expected
    # A base row that no filter lets pass still hides the older delta row over it.
    late = [values for values in rows_of(loaded(table), EQUAL(("v",), "b")) if values[2] == "b"]
    assert canonical(late) == canonical([(3, 0.0, "b")])


def test_given_a_version_an_instant_or_some_columns_then_these_are_read(spark: Any, table: IndexedTable) -> None:
    old = IndexedTable.load(spark, table.uri, version=1)
    assert canonical(rows_of(loaded(table, VERSION="1"))) == canonical(old.read().collect())
    instant = table.history()[1].instant
    assert canonical(rows_of(loaded(table, as_of=instant))) == canonical(old.read().collect())
    some = T.StructType([T.StructField("x", T.DoubleType()), T.StructField("TOWN", T.StringType())])
    assert canonical(rows_of(loaded(table), schema=some)) == canonical(table.read(columns=["x", "town"]).collect())
    with pytest.raises(errors.InvalidSchema, match="'x' the type string, and the table's is double"):
        loaded(table).reader(T.StructType([T.StructField("x", T.StringType())]))


def test_given_options_that_are_wrong_then_the_error_names_them_and_no_secret(table: IndexedTable) -> None:
    secret = {"storage.secret_access_key": "hush"}
    for options, message in (
        ({"path": table.uri, "verison": "1"}, "'verison' is not one of"),
        ({}, "No table was given"),
        ({"path": table.uri, "version": "one"}, "'version' is 'one'"),
        ({"path": "db.trips"}, "option 'warehouse' names no warehouse"),
        ({"path": f"{table.uri}-not-there"}, "no table at"),
    ):
        with pytest.raises(errors.LakeIndexError, match=message) as caught:
            IndexedDataSource({**options, **secret}).schema()
        assert "hush" not in str(caught.value)
    folder, _, name = table.uri.rpartition("/")
    source = IndexedDataSource({"path": name, "warehouse": folder})
    assert source.schema().names == list(table.schema.names)
    reader = source.reader(source.schema())
    assert "hush" not in repr(reader.partitions())


@pushes
def test_given_a_source_of_parquet_then_it_is_read_and_one_that_only_spark_reads_is_declined(
    spark: Any, tmp_path: Path
) -> None:
    for day in ("2024-01-01", "2024-01-02"):
        folder = tmp_path / "people" / f"day={day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": pa.array(range(5), pa.int64()), "city": ["rome", "oslo"] * 2 + [None]}),
                       folder / "part.parquet")  # fmt: skip
    table = IndexedTable.register(spark, tmp_path / "people")
    table.create_index("by_city", "secondary", ["city"])
    source = IndexedDataSource({"path": str(tmp_path / "people")})
    assert canonical(rows_of(source)) == canonical(table.read().collect())
    answer = canonical(rows_of(source, EQUAL(("city",), "rome"), EQUAL(("day",), dt.date(2024, 1, 2))))
    assert answer == canonical(table.read("city = 'rome' AND day = '2024-01-02'").collect())

    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "a.csv").write_text("1,rome\n")
    plain = IndexedTable.register(spark, lines, format="csv", schema="id int, city string")
    assert (
        list(rows_of(IndexedDataSource({"path": str(lines)}))) == [(1, "rome")] == [*map(tuple, plain.read().collect())]
    )
    (tmp_path / "marked").mkdir()
    (tmp_path / "marked" / "a.csv").write_text("1,rome\n")
    IndexedTable.register(spark, tmp_path / "marked", "csv", "id int, city string", {"comment": "#"})
    with pytest.raises(errors.UnsupportedSource, match=r"its files are csv read with comment='#'.*create_view"):
        IndexedDataSource({"path": str(tmp_path / "marked")}).schema()


@pushes
def test_given_filters_that_spark_does_not_cast_then_they_are_left_to_spark() -> None:
    types = {"a": "bigint", "s": "string", "l": "array<int>"}
    for one in (
        pushed("StringContains", ("s",), "x"), EQUAL(("l",), [1]), EQUAL(("a", "b"), 1), EQUAL(("a",), 1.5),
        EQUAL(("a",), True),
    ):  # fmt: skip
        predicate = predicate_of([one], types)
        assert isinstance(predicate, Opaque) and predicate.columns <= types.keys(), one
    assert predicate_of([], types) is None


@pushes
@pytest.mark.by_turn(4)
def test_given_the_table_in_spark_then_filters_prune_only_their_own_query(
    spark: Any, table: IndexedTable, everything: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    try:
        with caplog.at_level(logging.WARNING, "spark_apps"):
            spark_apps.register_data_source(spark)
        assert PUSHDOWN in caplog.text
        off = spark.read.format("indexed").load(table.uri)
        assert off.schema == table.read().schema
        where = "id = 'k008'"
        assert off.where(where).collect() == table.read(where).collect()
        spark_apps.register_data_source(spark, enable_pushdown=True)
        rows = spark.read.format("indexed").load(table.uri)
        expected = canonical(table.read("id = 'k008' OR id = 'k010'").collect())
        # One frame, several conditions: what one of them prunes the others must not miss.
        both = rows.where(where).union(rows.where("id = 'k010'"))
        assert canonical(both.collect()) == expected
        assert canonical(rows.collect()) == everything
        assert rows.where(where).collect() == table.read(where).collect()
        kept = spark.read.format("indexed").option("where", "town = 'bonn'").load(table.uri)
        assert canonical(kept.collect()) == canonical(table.read("town = 'bonn'").collect())
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW towns USING indexed OPTIONS (path '{table.uri}')")
        joined = spark.sql(
            "SELECT a.id, b.id FROM towns a JOIN towns b ON a.town = b.town WHERE a.id = 'k008' AND b.n < 20"
        )
        plain = table.read().createOrReplaceTempView("plain")
        assert plain is None
        same = spark.sql(
            "SELECT a.id, b.id FROM plain a JOIN plain b ON a.town = b.town WHERE a.id = 'k008' AND b.n < 20"
        )
        assert canonical(joined.collect()) == canonical(same.collect()) != []
    finally:
        spark.conf.unset(PUSHDOWN)


def test_given_a_view_then_it_holds_what_its_condition_and_columns_say(spark: Any, table: IndexedTable) -> None:
    table.create_view("bonn", "town = 'bonn'", ["id", "n"])
    assert canonical(spark.sql("SELECT * FROM bonn WHERE n > 8").collect()) == canonical(
        table.read("town = 'bonn' AND n > 8", ["id", "n"]).collect()
    )
