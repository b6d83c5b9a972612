"""Tables whose rows are placed by a function of a user's: a SQL expression, or a class."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from spark_apps import IndexedTable
from spark_apps.actions.bucket_rules import check_agrees
from spark_apps.layout import hash_functions
from spark_apps.storage import errors
from spark_apps.timeline.model import DATA_TREE
from tests.spark_apps.small_tables import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

SQL = "sql:crc32(cast(id as binary))"


class Length(hash_functions.HashFunction):
    """Has no twin on the driver."""

    def column(self, fields: Any, types: Any, count: Any) -> Any:
        return F.length(fields[0]) % count


hash_functions.register("by_length", Length())


def made(spark: Any, folder: Path, function: str) -> IndexedTable:
    table = IndexedTable.create(spark, folder, "id string, n int", ["id"], buckets=4, hash_function=function)
    table.create_index("by_n", "secondary", ["n"])
    table.upsert(spark.sql("select concat(repeat('k', int(id % 7)), id) id, int(id % 5) n from range(60)"))
    table.upsert(spark.sql("select concat(repeat('k', int(id % 7)), id) id, 9 n from range(0, 60, 6)"))
    return table


@pytest.mark.parametrize("function", [SQL, "by_length"])
@pytest.mark.by_turn(8)
def test_rows_are_placed_found_and_rescaled_by_it(spark: Any, tmp_path: Path, function: str) -> None:
    table = made(spark, tmp_path / "t", function)
    everything = rows_of(table)
    assert len(everything) == 60

    def bucket(key: str, count: int) -> int:
        return (zlib.crc32(key.encode()) if function == SQL else len(key)) % count

    for count in (4, 3):
        groups = {str(bucket(key, count)) for key in ("kk9", "0")}
        assert table.explain("id in ('kk9', '0')").groups_read == len(groups)
        assert {file.group for file in table._state.files(DATA_TREE)} >= groups
        assert [tuple(row) for row in table.read("id = 'kk9'").collect()] == [("kk9", 4)]
        matching = table.read("n = 9").collect()
        assert sorted(row.id for row in matching) == sorted(key for key, n in everything if n == 9)
        assert table.verify("by_n").ok
        if count == 4:
            table.rescale(buckets=3)
    assert rows_of(table) == everything
    assert IndexedTable.load(spark, table.uri).definition.hash_function == function


def test_where_its_code_is_missing_rows_are_still_read_and_nothing_is_written(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(spark, tmp_path / "t", "by_length")
    everything = rows_of(table)
    monkeypatch.setattr(hash_functions.FUNCTIONS, "_loaded", {})

    assert rows_of(table) == everything
    assert [tuple(row) for row in table.read("id = 'kk9'").collect()] == [("kk9", 4)]
    assert len(table.read("n = 9").collect()) == 10
    with pytest.raises(errors.InvalidRule, match=r"no hash function named 'by_length'.*Nothing was changed"):
        table.upsert(spark.sql("select 'k' id, 1 n"))
    assert rows_of(IndexedTable.load(spark, table.uri)) == everything


def test_a_function_that_is_not_stable_makes_no_table(spark: Any, tmp_path: Path) -> None:
    for function in ("sql:rand() * length(id)", "sql:id", "java.util.Random", "sql:length(n)"):
        with pytest.raises(errors.InvalidRule):
            IndexedTable.create(spark, tmp_path / "t", "id string, n int", ["id"], hash_function=function)
    assert not (tmp_path / "t").exists()


def test_a_writer_that_brings_other_rules_or_another_hash_is_refused(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(
        spark, tmp_path / "t", "id string, d date", ["id"], ["d"], buckets=2, bucket_rule="range",
        bucket_expressions=[("2024-11-01 <= d < 2024-12-01", 3)],
    )  # fmt: skip
    files = {file.path for file in table._state.files(DATA_TREE)}
    table.rescale(buckets=5, bucket_expressions="d=2025,4")
    first = {"buckets": 2, "bucket_rule": "range", "bucket_expressions": [["2024-11-01 <= d < 2024-12-01", 3]]}
    for agrees in ({}, first, {"buckets": 5}, {"buckets": 5, "bucket_expressions": "d=2025,4;"}, {"buckets": 2},
                   {"hash_function": "xxhash64", "hash_fields": ["id"]}):  # fmt: skip
        check_agrees(table._state, {"record_key": ["id"], **agrees})
    for brought, said in (
        ({"buckets": 6}, "5 buckets where none matches; the writer brings none .regex. and 6 buckets"),
        ({**first, "buckets": 5}, "2024-11-01"),
        ({"bucket_expressions": "d=2024,4"}, "d=2024,4"),
        ({"hash_function": "java"}, "'xxhash64'; the writer brings 'java'"),
        ({"hash_fields": ["d"]}, r"\['id'\]; the writer brings \['d'\]"),
    ):
        with pytest.raises(errors.InvalidRule, match=f"{said}.*Nothing was changed"):
            check_agrees(table._state, brought)
    assert files == {file.path for file in table._state.files(DATA_TREE)}
