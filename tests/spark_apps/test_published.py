"""Tables of Spark's rows published as Delta: what ``deltalake`` reads is what Spark reads of the version published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from spark_apps import IndexedTable, sql
from spark_apps.storage import errors
from tests.spark_apps.sources.lake import arrow_rows, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

SELECT = (
    "id, concat('n', id % 7) AS name, date_add(DATE '2024-01-01', cast(id AS int)) AS day, "
    "timestamp'2024-01-01 00:00:00.123456' + make_interval(0, 0, 0, id) AS at, cast(id / 3 AS decimal(12,3)) AS price, "
    "if(id % 5 = 0, double('nan'), id / 2.0D) AS x, array(id, null) AS tags, map('k', id) AS more, "
    "named_struct('a', id, 'b', 'c') AS both, cast(concat(id, 0) AS binary) AS raw, id % 2 = 0 AS even, "
    "concat('a', id % 2) AS p"
)


def rows(spark: Any, first: int, last: int, change: str = "") -> Any:
    frame = spark.sql(f"SELECT {SELECT} FROM range({first}, {last})")
    return frame.selectExpr(*[change if name == change.split(" AS ")[-1] else name for name in frame.columns])


def same(table: IndexedTable, where: str | None = None) -> None:
    """What is published is what Spark reads of that version, and nothing is behind."""
    shown = table.published
    assert shown is not None and shown.behind == 0 and shown.version is not None, shown
    hidden = ("x", "more")  # NaN is no two things alike, and maps come as lists of pairs
    names = [name for name in table.schema.names if name not in hidden]
    theirs = pa.table(DeltaTable(table.uri).scan(predicate=where)).select(names)
    ours = table.read(where).select(*[f"`{name}`" for name in names])
    assert counted(ours.collect()) == counted(zip(*[c.to_pylist() for c in theirs.columns], strict=True))


def counted(rows: Iterable[Iterable[Any]]) -> Counter[tuple[str, ...]]:
    """Rows of either engine as a multiset."""
    return Counter(tuple(repr(_plain(value)) for value in row) for row in rows)


def _plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return value.asDict()
    if isinstance(value, bytearray):
        return bytes(value)
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


@pytest.mark.parametrize(
    ("mode", "positions"), [("copy_on_write", False), ("merge_on_read", True), ("merge_on_read", False)]
)
def test_given_writes_of_each_kind_then_another_engine_reads_the_same_rows(
    spark: Any, tmp_path: Path, mode: Any, positions: bool
) -> None:
    frame = rows(spark, 0, 40)
    table = IndexedTable.create(
        spark, tmp_path / "t", frame.schema, ["id"], ["p"], buckets=2, write_mode=mode, positions=positions,
        publish=["delta"],
    )  # fmt: skip
    table.insert(frame)
    same(table)
    table.upsert(rows(spark, 30, 50, "upper(name) AS name"))
    table.delete("id % 10 = 3")
    if (mode, positions) == ("merge_on_read", False):
        assert table.published.behind == 2 and "2 commits behind" in str(table)
        table.compact()
    same(table)
    same(table, "id >= 20 AND id < 35")
    table.insert_overwrite(rows(spark, 100, 110), partitions=["p=a0", "p=a1"])
    same(table)
    table.drop_partition("p=a1")
    same(table)
    table.rescale(buckets=3)
    same(table)
    table.restore(1)
    table.compact()
    same(table)


def test_given_columns_that_change_then_their_names_are_followed(spark: Any, tmp_path: Path) -> None:
    frame = rows(spark, 0, 20).drop("p")
    table = IndexedTable.create(spark, tmp_path / "t", frame.schema, ["id"], buckets=2, write_mode="copy_on_write",
                                publish=["delta"])  # fmt: skip
    table.insert(frame)
    table.rename_column("name", "called")
    table.add_columns("more_of_it bigint")
    same(table)
    table.drop_column("even")
    same(table)


def test_given_a_table_without_then_it_can_be_published_later_and_no_more(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    rows(spark, 0, 20).write.parquet(str(tmp_path / "raw" / "files"))
    table = IndexedTable.create(spark, tmp_path / "t", record_key=["id"], from_source=tmp_path / "raw" / "files")
    assert table.published is None
    with pytest.raises(errors.InvalidInput, match="not published"):
        table.publish()
    assert table.publish(["delta"]).version == table.version
    same(table)
    assert table.publish([]) is None and table.published is None


def test_given_a_statement_then_its_table_is_published(spark: Any, tmp_path: Path) -> None:
    sql.run(
        spark,
        f"CREATE TABLE `{tmp_path}/t` (id bigint, n string) USING indexed "
        "TBLPROPERTIES (primaryKey = 'id', publish = 'delta', buckets = 1)",
    )
    IndexedTable.load(spark, tmp_path / "t").insert(spark.sql("SELECT id, 'a' AS n FROM range(3)"))
    assert arrow_rows(pa.table(DeltaTable(tmp_path / "t").scan())) == rows_of([(n, "a") for n in range(3)])
