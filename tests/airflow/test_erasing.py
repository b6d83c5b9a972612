"""A person's rows erased by the example DAG, on a real scheduler: after an approval no file below the table holds them
and nobody can go back to a version that did; after a reject all is as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.storage.errors import SnapshotExpired
from tests.airflow.lake import Lake
from tests.airflow.tables import make
from tests.spark_apps.small_tables import rows_of

pytestmark = pytest.mark.heavy

EXAMPLES = ("erasure",)

RIDER = "rider-17"


def holding(folder: Path) -> list[str]:
    """The Parquet files below a folder that hold the rider, among their values or in their statistics."""
    files = sorted(folder.rglob("*.parquet"))
    assert files
    return [
        str(file.relative_to(folder))
        for file in files
        if RIDER in str(pq.read_table(file, partitioning=None).to_pylist()) or RIDER.encode() in file.read_bytes()
    ]


@pytest.fixture
def trips(lake: Lake, spark: Any) -> IndexedTable:
    """Trips of 30 riders in three partitions, some rows under deltas, with an index of every kind."""
    table = IndexedTable.create(
        spark, lake.warehouse / "lake" / "trips", "id bigint, day string, rider string, fare int", ["id"],
        partition_by=["day"], buckets=1,
    )  # fmt: skip
    rows = "concat('d', id % 3) AS day, concat('rider-', id % 30) AS rider"
    table.create_index("by_id", "record")
    table.create_index("by_rider", "secondary", ["rider"])
    table.upsert(spark.sql(f"SELECT id, {rows}, int(id % 90) AS fare FROM range(300)"))
    table.upsert(spark.sql(f"SELECT id, {rows}, int(id % 80) AS fare FROM range(200, 330)"))
    table.create_index("fares_of_rider", "covering", ["rider"], included=IncludedColumns(include=["fare"]))
    table.create_index("riders_there", "compact", ["rider"])
    return table


def test_given_an_approval_when_a_person_is_erased_then_no_file_holds_them_and_no_version_can_be_gone_back_to(
    lake: Lake, spark: Any, trips: IndexedTable
) -> None:
    where, before = f"rider = '{RIDER}'", trips.version
    others = rows_of(trips, f"NOT {where}")
    assert trips.read(where).count() == 11 and holding(lake.warehouse / "lake" / "trips")

    run_id = lake.run_until_asked("erase_person", {"table": "lake.trips", "where": where})
    assert where in lake.client.asked("erase_person", run_id, "approve")["body"]
    lake.client.answer("erase_person", run_id, "approve", "Approve")
    report = lake.client.wait("erase_person", run_id, timeout=900)
    assert report.state == "success", lake.client.describe(report)

    assert holding(lake.warehouse / "lake" / "trips") == []
    after = IndexedTable.load(spark, trips.uri)
    assert rows_of(after) == others
    assert after.read(where).count() == 0 and not after.locate(where)
    for name in after.indexes:
        assert after.verify(name).ok, name
    with pytest.raises(SnapshotExpired):
        IndexedTable.load(spark, trips.uri, version=before)


def test_given_a_reject_when_the_run_ends_then_nothing_was_changed(lake: Lake) -> None:
    make(lake.warehouse / "lake" / "kept", 2)
    before = sorted(path for path in (lake.warehouse / "lake" / "kept").rglob("*") if path.is_file())
    run_id = lake.run_until_asked("erase_person", {"table": "lake.kept", "where": "city = 'c3'"})
    lake.client.answer("erase_person", run_id, "approve", "Reject")
    report = lake.client.wait("erase_person", run_id, timeout=300)
    assert report.state == "success" and set(report.tasks.values()) == {"success", "skipped"}
    assert sorted(path for path in (lake.warehouse / "lake" / "kept").rglob("*") if path.is_file()) == before
