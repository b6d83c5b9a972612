"""Files that do not agree on a column, and columns that a table cannot have: each is named, and no other is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps import IndexedTable, open_table
from spark_apps.storage.errors import StorageError, UnsupportedSource

pytestmark = pytest.mark.spark


def test_given_names_that_a_table_cannot_have_then_these_columns_alone_are_left_out(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    pq.write_table(
        pa.table({"id": [1, 2], "b`c": [3, 4], "A": [5, 6], "a": [7, 8], "d.e": [9, 9]}), folder / "f.parquet"
    )

    table = IndexedTable.register(spark, folder)
    assert table.schema.names == ["id", "d.e"]
    assert all(f"{name!r}: " in caplog.text for name in ("b`c", "A", "a")) and "left out" in caplog.text
    table.create_index("by_id", kind="secondary", columns=["id"])
    assert [tuple(row) for row in table.read("id = 2").collect()] == [(2, 9)]
    assert open_table(folder).read("id = 2").to_pylist() == [{"id": 2, "d.e": 9}]

    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "f.csv").write_text("id,b`c,d\n1,2,3\n")
    lines = IndexedTable.register(spark, tmp_path / "lines", format="csv", options={"header": True})
    assert lines.schema.names == ["id", "_c1", "d"] and [tuple(row) for row in lines.read().collect()] == [
        ("1", "2", "3")
    ]


def test_given_a_column_of_another_type_in_one_file_then_the_column_and_both_types_are_named(
    spark: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1], "v": pa.array([1], pa.int64())}), folder / "a.parquet")
    table = IndexedTable.register(spark, folder)
    pq.write_table(pa.table({"id": [2], "v": pa.array(["x"])}), folder / "b.parquet")

    table = IndexedTable.load(spark, folder)
    for work in (lambda: table.create_index("by_v", kind="secondary", columns=["v"]),):
        with pytest.raises(StorageError, match=r"b\.parquet.*is whole, and holds the column 'v' as .*bigint") as told:
            work()
        assert "Files of one source must agree" in told.value.hint and "write the file again" not in told.value.hint
    with pytest.raises(
        UnsupportedSource, match=r"The column 'v' of .*b\.parquet .*string, which the table has as bigint"
    ):
        open_table(folder).read()
    assert open_table(folder).read(columns=["id"]).num_rows == 2
