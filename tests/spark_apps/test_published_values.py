"""Values at the ends of what types hold, published: other engines read the same rows, and one value stops no table."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from spark_apps import IndexedTable, open_table
from spark_apps.engine import spark_utils
from tests.spark_apps.small_tables import within

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(6)]

TIMES = "spark.sql.parquet.outputTimestampType"
DDL = "id bigint, `a.b` int, a struct<b:int, at:timestamp>, at timestamp, local timestamp_ntz, day date, s string"
ROWS = """
    SELECT id, cast(id + 1000 AS int) `a.b`, named_struct('b', cast(id AS int), 'at', timestamp'9999-12-31') a,
           element_at(array(timestamp'0001-01-01 12:00:00', timestamp'9999-12-31 12:00:00.999999',
                            timestamp'1500-02-28', timestamp'1899-12-31 23:59:59', NULL), cast(id % 5 + 1 AS int)) at,
           element_at(array(timestamp_ntz'0001-01-01', timestamp_ntz'9999-12-31 23:59:59.999999'),
                      cast(id % 2 + 1 AS int)) local,
           element_at(array(date'0001-01-01', date'9999-12-31', date_add(date'9999-12-31', 1)),
                      cast(id % 3 + 1 AS int)) day,
           if(id % 3 = 0, cast(unhex('ff61') AS string), concat('s', id)) s
    FROM range({}, {})"""


def physical_types(table: IndexedTable, tree: str = "data") -> dict[str, set[str]]:
    """Of each column with times, how the live files hold it."""
    found: dict[str, set[str]] = {}
    for file in table.snapshot.state.files(tree):
        schema = pq.read_metadata(Path(table.uri, file.path)).schema
        for number in range(len(schema)):
            leaf = schema.column(number)
            if leaf.physical_type == "INT96" or "Timestamp" in str(leaf.logical_type):
                found.setdefault(leaf.path, set()).add(leaf.physical_type)
    return found


def texts(rows: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    columns = [
        rows[name].cast(pa.int64() if pa.types.is_timestamp(rows[name].type) else rows[name].type)
        if not pa.types.is_date(rows[name].type) else rows[name].cast(pa.int32())
        for name in names
    ]  # fmt: skip
    return sorted(map(repr, zip(*[column.to_pylist() for column in columns], strict=True)))


@pytest.mark.by_turn(1)
def test_given_values_beyond_what_others_tell_then_engines_read_the_rows_and_the_session_is_as_it_was(
    spark: Any, tmp_path: Path
) -> None:
    before = spark.conf.get(TIMES, None)
    ours: dict[str, Any] = {}
    for way, few in (("here", 1000), ("spark", 0)):
        ddl = DDL if way == "spark" else DDL.replace(" a struct<b:int, at:timestamp>,", "")
        table = within(
            IndexedTable.create(spark, tmp_path / way, ddl, ["id"], buckets=1, publish=["delta"]), staged_rows=few
        )
        rows = spark.sql(ROWS.format(0, 12)).select(*[f"`{name}`" for name in table.schema.names])
        table.insert(rows)
        shown = table.published
        assert (shown.version, shown.behind, shown.why) == (1, 0, ""), shown
        assert {kind for kinds in physical_types(table).values() for kind in kinds} == {"INT64"}
        [added] = [
            json.loads(line)["add"] for line in Path(table.uri, "_delta_log", f"{1:020d}.json").read_text().splitlines()
            if '"add"' in line
        ]  # fmt: skip
        told = json.loads(added["stats"])
        least, most = told["minValues"], told["maxValues"]
        assert (least["a.b"], most["a.b"]) == (1000, 1011), "not those of the field b of a"
        assert least["at"][:10] == least["local"][:10] == least["day"] == "0001-01-01"
        assert "day" not in most and "local" not in most and most["at"][:4] == "9999"
        names = ["id", "a.b", "at", "local", "day"]
        theirs = pa.table(DeltaTable(table.uri).scan(columns=names)).select(names)
        ours[way] = texts(open_table(table.uri).read(columns=names), names)
        assert texts(theirs, names) == ours[way]
        # Of texts deltalake makes nanoseconds, so that they name nearer years; the bounds are beyond these.
        for where, count in (("id >= 0 and \"a.b\" = 1003", 1), ("at > '2200-01-01T00:00:00Z'", 3),
                             ("at < '1700-01-01T00:00:00Z'", 5), ("local > '2200-01-01T00:00:00'", 6),
                             ("day >= '9999-12-31'", 8)):  # fmt: skip
            found = pa.table(DeltaTable(table.uri).scan(columns=["id"], predicate=where))
            assert found.num_rows == count, where
    assert ours["here"] == ours["spark"]
    assert spark.conf.get(TIMES, None) == before


@pytest.mark.by_turn(1)
def test_given_two_that_write_at_once_then_the_last_one_puts_the_session_s_setting_back(spark: Any) -> None:
    before = {name: spark.conf.get(name, None) for name in spark_utils._TIMES}
    spark.conf.set(TIMES, "INT96")
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with spark_utils.portable_times(spark):
            entered.set()
            leave.wait(30)

    try:
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(30)
        with spark_utils.portable_times(spark):
            assert spark.conf.get(TIMES) == "TIMESTAMP_MICROS"
        assert spark.conf.get(TIMES) == "TIMESTAMP_MICROS", "the other one still writes"
        leave.set()
        thread.join(30)
        assert spark.conf.get(TIMES) == "INT96"
    finally:
        leave.set()
        spark.conf.unset(TIMES)
    assert {name: spark.conf.get(name, None) for name in spark_utils._TIMES} == before


@pytest.mark.by_turn(4)
def test_given_files_with_times_as_before_then_all_is_read_and_a_full_compaction_writes_them_anew(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = within(IndexedTable.create(spark, tmp_path / "t", "at timestamp, n int", ["at"], buckets=4), staged_rows=0)

    def rows(first: int, last: int, more: int) -> Any:
        return spark.sql(
            "SELECT if(id % 2 = 0, timestamp'9999-12-31 12:00:00', timestamp'0001-01-02 12:00:00') + "
            f"make_interval(0, 0, 0, 0, 0, 0, id) at, cast(id + {more} AS int) n FROM range({first}, {last})"
        )

    with monkeypatch.context() as patch:
        patch.setitem(spark_utils._TIMES, TIMES, "INT96")
        table.insert(rows(0, 20, 0))
        table.compact(mode="full")
        table.create_index("key", "record")
    assert (
        physical_types(table)
        == physical_types(table, table.snapshot.state.index("key").definition.tree)
        == {"at": {"INT96"}}
    )
    assert table.publish(["delta"]).version is None and "'at' has its times as INT96" in table.published.why

    table = within(table, staged_rows=1000)
    table.upsert(rows(18, 22, 100))
    one = "at = timestamp'9999-12-31 12:00:18'"
    for state in ("both", "compacted"):
        expected = sorted([*range(18), 118, 119, 120, 121])
        assert sorted(row.n for row in table.read().collect()) == expected, state
        assert sorted(open_table(table.uri).read(columns=["n"])["n"].to_pylist()) == expected
        assert [row.n for row in table.read(one).collect()] == [118]
        assert table.verify("key").ok
        if state == "both":
            assert physical_types(table)["at"] == {"INT96", "INT64"}
            table.compact(mode="full")
            assert physical_types(table) == {"at": {"INT64"}}
    assert table.publish().behind == 0
    assert sorted(pa.table(DeltaTable(table.uri).scan())["n"].to_pylist()) == expected
    assert not table.compact(mode="full").committed
