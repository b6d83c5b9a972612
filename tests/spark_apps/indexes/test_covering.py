"""Covering indexes on keyed tables: the same rows with them as without, whatever was written since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IncludedColumns, IndexedTable
from tests.spark_apps.frames import frame
from tests.spark_apps.indexes.support import index_files, local

pytestmark = pytest.mark.spark

DDL = "id bigint, p string, city string, n int, note string"


def _rows(ids: range, note: str = "x") -> list[tuple[Any, ...]]:
    return [(i, "ab"[i % 2], f"c{i % 7}", i % 5 if i % 5 else None, f"{note}{i}" * 40) for i in ids]


def _read(table: IndexedTable, where: str | None = None, columns: list[str] | None = None) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in table.read(where, columns).collect()), key=repr)


def _kinds(spark: Any, path: Path, **more: Any) -> IndexedTable:
    table = IndexedTable.create(spark, path, DDL, ["id"], partition_by=["p"], buckets=1, **more)
    table.upsert(frame(spark, _rows(range(200)), DDL))
    table.create_index("cov", "covering", ["city"], included=IncludedColumns(include=["n"]),
                       properties={"buckets": "2", "hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1"})  # fmt: skip
    return table


def test_given_writes_since_then_rows_of_the_index_give_way_to_them(spark: Any, tmp_path: Path) -> None:
    table = _kinds(spark, tmp_path / "t")
    assert table.indexes["cov"].included == ("n",)
    expected = {row[0]: row for row in _rows(range(200))}
    where = "city IN ('c1', 'c3')"

    def check() -> Any:
        wanted = sorted(((r[2], r[3]) for r in expected.values() if r[2] in ("c1", "c3")), key=repr)
        assert _read(table, where, ["city", "n"]) == wanted
        whole = sorted((r for r in expected.values() if r[2] in ("c1", "c3")), key=repr)
        assert _read(table, where) == whole
        return table.explain(where, ["city", "n"])

    told = check()
    assert told.index_used == "cov" and told.files_read == 0 and told.indexes[0].replaces == 2
    assert table.explain(where).not_used["cov"].code == "lacks_columns"
    changed = [(1, "b", "c3", 9, "new"), (3, "b", "c2", 1, "new"), (400, "b", "c1", 1, "new"), (2, "a", "c1", 7, "")]
    table.upsert(frame(spark, changed, DDL))
    expected.update({row[0]: row for row in changed})
    assert table.delete("id IN (8, 15)").committed
    del expected[8], expected[15]
    told = check()
    assert told.index_used == "cov" and (told.files_read, told.groups_read) == (4, 2)
    assert table.verify("cov").ok
    assert table.refresh_index("cov").committed, "the log is told that it knows all it can"
    assert not table.refresh_index("cov").committed
    check()
    table.compact()
    assert check().not_used["cov"].code == "covers_nothing"
    receipt = table.refresh_index("cov")
    assert (receipt.metrics["files"], receipt.metrics["removed_files"]) == (2, 2)
    assert check().files_read == 0 and not table.indexes["cov"].lagging
    report = table.verify("cov")
    assert report.ok and report.rows == report.entries == len(expected) and not report.stale
