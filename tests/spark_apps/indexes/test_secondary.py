"""The example of the secondary index's document: what its log files and its base file are merged to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.registry import find
from tests.spark_apps.frames import frame
from tests.spark_apps.small_tables import in_order

pytestmark = pytest.mark.spark

DDL = "uuid string, ts bigint, rider string, city string"

BASE = [
    ("c8abbe79-8d89-47ea-b4ce-4d224bae5bfa", "chennai"),
    ("9909a8b1-2d15-4d3d-8ec9-efc48c536a01", "los-angeles"),
    ("9809a8b1-2d15-4d3d-8ec9-efc48c536a01", "los-angeles"),
    ("334e26e9-8355-45cc-97c6-c31daf0df330", "sfo"),
    ("334e26e9-8355-45cc-97c6-c31daf0df329", "sfo"),
]
WRITTEN = [
    ("e3cf430c-889d-4015-bc98-59bdce1e530c", "chennai"),
    ("9809a8b1-2d15-4d3d-8ec9-efc48c536a01", "austin"),
]
DELETED = "334e26e9-8355-45cc-97c6-c31daf0df329"
MERGED = [
    ("austin", "9809a8b1-2d15-4d3d-8ec9-efc48c536a01"),
    ("chennai", "c8abbe79-8d89-47ea-b4ce-4d224bae5bfa"),
    ("chennai", "e3cf430c-889d-4015-bc98-59bdce1e530c"),
    ("los-angeles", "9909a8b1-2d15-4d3d-8ec9-efc48c536a01"),
    ("sfo", "334e26e9-8355-45cc-97c6-c31daf0df330"),
]


def entries(table: IndexedTable) -> list[tuple[str, str]]:
    definition = table.indexes["idx_city"].definition
    handler: Any = find("secondary")
    entry_rows = handler.entries(IndexContext(table.snapshot, definition, ""))
    return in_order(entry_rows.select("city", "uuid").collect())


@pytest.mark.by_turn(8)
def test_entries_of_base_and_log_are_merged_by_secondary_key_and_record_key(spark: Any, tmp_path: Path) -> None:
    table = IndexedTable.create(spark, tmp_path / "trips", DDL, ["uuid"], ordering_column="ts", buckets=2)
    table.upsert(frame(spark, [(uuid, 1, "rider", city) for uuid, city in BASE], DDL))
    table.create_index("idx_city", "secondary", ["city"])

    changes = [(uuid, 2, "rider", city, False) for uuid, city in WRITTEN]
    batch = frame(spark, [*changes, (DELETED, 2, "rider", "sfo", True)], f"{DDL}, gone boolean")
    table.upsert(batch, deleted="gone")

    files = table.snapshot.state.files(table.indexes["idx_city"].definition.tree)
    assert {file.kind for file in files} == {"base", "delta"}
    assert sum(file.tombstones for file in files) == 2  # of the old values of the row that moved and of the deleted one
    assert entries(table) == MERGED
    assert [row.uuid for row in table.read("city = 'los-angeles'").collect()] == [MERGED[3][1]]

    table.compact("idx_city", mode="full")

    files = table.snapshot.state.files(table.indexes["idx_city"].definition.tree)
    assert {file.kind for file in files} == {"base"} and not sum(file.tombstones for file in files)
    assert entries(table) == MERGED
    assert table.verify("idx_city").ok
