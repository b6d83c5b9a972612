"""Index files of more than a megabyte in which single bytes turned over: pages, page index, footer. Whatever the kind
and the way it is asked, the answer is that of the rows."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.indexes.keyed import lookup
from spark_apps.mergetree import damaged_pages
from tests.spark_apps.indexes.support import index_files, local
from tests.spark_apps.small_tables import in_order, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(16)]

ROWS = 40_000
DDL = "id string, tail string, n int"


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> IndexedTable:
    """One index of each kind, each in files of more than a megabyte."""
    table = IndexedTable.create(spark, tmp_path_factory.mktemp("pages") / "table", DDL, ["id"], buckets=2)
    digest = "sha1(cast({} as string))"
    table.upsert(
        spark.range(0, ROWS, 1, 2).selectExpr(
            f"{digest.format('id')} id", f"concat('t', {digest.format('id + 1')}) tail", "cast(id % 100 as int) n"
        )
    )
    table.create_index("record", "record", ["id"])
    table.create_index("secondary", "secondary", ["tail"])
    table.create_index("compact", "compact", ["tail"])
    included = IncludedColumns(include=["tail"])
    table.create_index("covering", "covering", ["n"], included=included, properties={"buckets": "2"})
    return table


def _pages(data: bytearray, path: Path) -> None:
    """A byte in each column chunk, far behind the headers of its first page."""
    metadata = pq.read_metadata(path)
    for number in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            chunk = metadata.row_group(number).column(place)
            begin = chunk.dictionary_page_offset or chunk.data_page_offset
            data[begin + chunk.total_compressed_size // 2] ^= 4


def _page_index(data: bytearray, path: Path) -> None:
    """A byte in the middle of what lies between pages and footer."""
    metadata = pq.read_metadata(path)
    last = metadata.row_group(metadata.num_row_groups - 1).column(metadata.num_columns - 1)
    begin = (last.dictionary_page_offset or last.data_page_offset) + last.total_compressed_size
    end = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    assert end > begin
    data[(begin + end) // 2] ^= 4


def _footer(data: bytearray, path: Path) -> None:
    data[len(data) - 8 - struct.unpack("<I", data[-8:-4])[0] // 2] ^= 4


@pytest.mark.parametrize("damage", [_pages, _page_index, _footer])
@pytest.mark.parametrize(
    ("name", "by_spark"),
    [("record", False), ("secondary", False), ("secondary", True), ("compact", False), ("covering", False),
     ("covering", True)],
)  # fmt: skip
@pytest.mark.by_turn(24, together=3)
def test_given_a_byte_turned_over_in_a_large_index_file_then_a_query_answers_from_the_rows(
    table: IndexedTable, monkeypatch: pytest.MonkeyPatch, name: str, by_spark: bool, damage: Callable[..., None]
) -> None:
    others = {index: entry for index, entry in table.snapshot.state.indexes.items() if index != name}
    if by_spark:
        monkeypatch.setattr(lookup, "MAX_DRIVER_KEYS", 0)
        monkeypatch.setattr(damaged_pages, "MAX_DRIVER_PAGE_BYTES", 0)
    row = table.read("n = 7").first()
    assert row is not None and len(others) == 3
    column = {"record": "id", "covering": "n"}.get(name, "tail")
    where = f"{column} = " + (str(row.n) if column == "n" else f"'{row[column]}'")
    columns = ["n", "tail"] if name == "covering" else ["id"]
    expected = in_order(table.read().where(where).select(*columns).collect())
    whole = {path: path.read_bytes() for file in index_files(table, name) if file.rows and (path := local(table, file))}
    assert all(len(data) > 1024 * 1024 for data in whole.values())
    try:
        for path, data in whole.items():
            garbled = bytearray(data)
            damage(garbled, path)
            path.write_bytes(bytes(garbled))
        damaged = IndexedTable.load(table.snapshot.spark, table.uri)
        assert rows_of(damaged, where, columns) == expected
        explanation = damaged.explain(where, columns)
        # Readers on the driver need no page index.
        if damage is _page_index and not by_spark and name != "covering":
            assert name not in explanation.not_used and name in (explanation.index_used or "")
        else:
            assert explanation.not_used[name].code == "unreadable" and name not in (explanation.index_used or "")
    finally:
        for path, data in whole.items():
            path.write_bytes(data)
    mended = IndexedTable.load(table.snapshot.spark, table.uri)
    assert rows_of(mended, where, columns) == expected
    assert name in (mended.explain(where, columns).index_used or "")
