"""Rows found by key on the driver are those that Spark finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_apps import IndexedTable
from spark_apps.actions.key_location import rows_of_staged, touched_groups
from spark_apps.actions.limits import UpsertLimits
from spark_apps.actions.template import Attempt, StagedChanges, run
from spark_apps.actions.upsert_plan import plan_upsert
from spark_apps.actions.write import Upsert
from spark_apps.storage.errors import StorageError
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import in_order

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

DDL = "id string, n int, p string, city string, day date, raw binary, flag boolean, small tinyint"
MORE = {
    "bucketed": {"buckets": 3},
    "one file group": {"buckets": 1},
    "found by id": {"buckets": None, "properties": {"group_rows": "40"}},
}


def batch(spark: Any, first: int, last: int, city: str) -> DataFrame:
    return spark.sql(
        f"""SELECT concat('k', repeat('0', id % 3), id) id, cast(id % 7 AS int) n, if(id % 2 = 0, 'a', 'ö') p,
                   if(id % 5 = 0, NULL, concat('{city}', id)) city, date_add(DATE'1960-01-01', cast(id AS int)) day,
                   encode(cast(id AS string), 'utf-8') raw, id % 3 = 0 flag, cast(id % 100 AS tinyint) small
            FROM range({first}, {last})"""
    )


class Looking(Upsert):
    """Compares both ways in the midst of an upsert, and then does nothing."""

    def __init__(self, rows: DataFrame) -> None:
        super().__init__(rows)
        self.located: list[list[Any]] = []

    def work(self, attempt: Attempt) -> StagedChanges | None:
        tree, snapshot = attempt.snapshot.data, attempt.snapshot
        work = super().work(attempt)
        assert work is not None
        staged = [action for action in work.actions if getattr(action, "tree", None) == tree.name]
        touched = touched_groups(snapshot, staged)
        names = list(dict.fromkeys([*tree.tombstone_columns, *tree.columns]))
        for local in (True, False):
            plan = plan_upsert(snapshot, None, UpsertLimits(local_files=local))
            assert plan.searches(sum(file.rows for file in staged), names) == local
            rows = rows_of_staged(snapshot, tree, plan, staged, touched, names)
            assert rows.columns == names
            self.located.append([rows.schema, in_order(rows.collect())])
        return None


@pytest.mark.parametrize("more", MORE.values(), ids=list(MORE))
@pytest.mark.by_turn(12)
def test_rows_found_on_the_driver_are_those_that_spark_finds(spark: Any, tmp_path: Path, more: dict[str, Any]) -> None:
    table = IndexedTable.create(spark, tmp_path / "table", DDL, ["id", "n"], partition_by=["p"], **more)
    table.upsert(batch(spark, 0, 100, "old"))
    table.compact()
    table.upsert(batch(spark, 50, 80, "new"))
    table.delete(batch(spark, 70, 90, "x").select("id", "n", "p"))
    table.rename_column("city", "town")
    table.add_columns("later int")
    table.widen_column("small", "int")
    rows = batch(spark, 20, 130, "last").withColumnRenamed("city", "town").withColumn("later", F.lit(5))
    rows = rows.withColumn("small", F.col("small").cast("int"))
    looking = Looking(rows)

    run(table._handle, looking)

    here, there = looking.located
    assert here[0] == there[0]
    assert here[1] == there[1]
    assert len(here[1]) == 60  # 20 to 69 and 90 to 99


def test_files_whose_columns_take_no_null_lie_beside_others(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(
        spark, tmp_path / "table", "id bigint, p string, city string", ["id"], partition_by=["p"], buckets=1,
        positions=True,
    )  # fmt: skip
    table.upsert(spark.range(40).selectExpr("id", "if(id % 3 = 0, 'a', 'b') p", "'old' city"))
    table.create_index("key", "record")
    table.create_index("city", "secondary", ["city"])
    # Rows that move leave tombstones in the group that others stay in: of columns that take nulls, unlike the rows'.
    table.upsert(spark.range(20, 60).selectExpr("id", "if(id % 2 = 0, 'a', 'b') p", "'new' city"))
    expected = {(n, "ab"[n % 3 > 0], "old") for n in range(20)} | {(n, "ab"[n % 2], "new") for n in range(20, 60)}
    assert {tuple(row) for row in table.read().collect()} == expected
    assert table.read().count() == 60
    assert table.verify("key").ok and table.verify("city").ok


def test_a_file_that_is_damaged_is_named(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "table", "id bigint, city string", ["id"], buckets=1)
    table.upsert(frame(spark, [(n, "a") for n in range(1000)], "id bigint, city string"))
    table.create_index("city", "secondary", ["city"])
    [file] = table.snapshot.state.files("data")
    place = Path(table.uri, file.path)
    body = bytearray(place.read_bytes())
    body[10:200] = bytes(190)
    place.write_bytes(bytes(body))
    with pytest.raises(StorageError, match=file.path):
        table.upsert(frame(spark, [(5, "b")], "id bigint, city string"))
