"""Values bound to parameters, through every door that takes SQL: they find their own rows alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_apps import IndexedTable, open_table
from spark_apps.storage.errors import InvalidInput
from tests.spark_apps.sql.desk import Desk

CITIES = ["sfo", "o'hare", "' OR '1' = '1", 'a "b" \\', "${x} {y}", "line\nend"]


@pytest.fixture(scope="module")
def desk(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    desk = Desk(spark, tmp_path_factory.mktemp("lake"))
    table = IndexedTable.create(spark, desk.root / "t", "id bigint, city string", ["id"], buckets=1)
    table.insert(spark.createDataFrame(list(enumerate(CITIES)), table.schema))
    table.create_index("by_city", "secondary", ["city"])
    return desk


@pytest.mark.by_turn(3)
@pytest.mark.parametrize("number", [0, 2, 3])
def test_given_a_value_then_each_reader_finds_its_row_alone_and_by_the_index(desk: Desk, number: int) -> None:
    given: dict[str, Any] = {"where": "city = :city", "parameters": {"city": CITIES[number]}}
    table, opened = desk.table("t"), open_table(str(desk.root / "t"))

    assert [row.id for row in table.read(**given).collect()] == [number]
    assert opened.read(**given)["id"].to_pylist() == [number]
    assert table.explain(**given).index_used == opened.explain(**given).index_used == "by_city"
    assert desk("SELECT id FROM t WHERE city = :city", parameters=given["parameters"]).rows == ((number,),)
    with pytest.raises(InvalidInput, match="'town' is given"):
        table.read("id = 1", parameters={"town": "x"})


@pytest.mark.by_turn(8)
def test_given_values_then_statements_write_and_delete_what_they_are(spark: SparkSession, tmp_path: Path) -> None:
    desk = Desk(spark, tmp_path)
    values: dict[str, Any] = {f"c{number}": city for number, city in enumerate(CITIES)}
    rows = ", ".join(f"({number}, :c{number})" for number in range(len(CITIES)))
    desk(
        f"CREATE TABLE t (id bigint, city string) USING indexed TBLPROPERTIES (primaryKey = 'id', buckets = 1);"
        f"INSERT INTO t VALUES {rows}; DELETE FROM t WHERE city = :c2; UPDATE t SET city = :c3 WHERE id = 0",
        parameters=values,
    )
    table = desk.table("t")
    table.delete("city = :city", parameters={"city": CITIES[1]})

    left = {row.id: row.city for row in table.read().collect()}
    assert left == {0: CITIES[3], 3: CITIES[3], 4: CITIES[4], 5: CITIES[5]}
