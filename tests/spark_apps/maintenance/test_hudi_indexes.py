"""A Hudi table's own index that a writer has removed is found by the nightly look, without Spark, and is due."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_apps.maintenance.plan import DueWork, due_works, plan_maintenance
from spark_apps.maintenance.policies import Budget
from spark_apps.maintenance.survey import TableSurvey
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.hudi_indexes import NAME
from spark_apps.timeline.model import AddFile, Field, IndexDefinition, PutIndex, SourceDefinition, TableDefinition
from tests.spark_apps.maintenance.lake import survey

BY_ID = IndexDefinition("by_id", "hudi:record", ("id",), "1", properties={NAME: "record_index"}, addresses="file")
BY_CITY = IndexDefinition("by_city", "hudi:secondary", ("city",), "2", addresses="file")


@pytest.fixture
def hudi(tmp_path: Path) -> Path:
    """The folder of a Hudi table beside the log of its indexes."""
    (tmp_path / "t/.hoodie").mkdir(parents=True)
    source = SourceDefinition("hudi", str(tmp_path / "t"))
    definition = TableDefinition("t", (Field("id", "bigint"), Field("city", "string")), ("id",), source=source)
    file = AddFile("data", "", "g", f"file://{tmp_path}/t/a.parquet", "base", 10, 5_000_000, lineage=1)
    indexes = (PutIndex(BY_ID, covered=True), PutIndex(BY_CITY, covered=True))
    create_table(Store(tmp_path / "_indexes/t"), definition, (*indexes, file), txn_id="make")
    return tmp_path / "t"


def has(table: Path, *partitions: str) -> None:
    said = f"hoodie.table.version=9\nhoodie.table.metadata.partitions={','.join(partitions)}\n"
    (table / ".hoodie/hoodie.properties").write_text(said)


def look(table: Path) -> TableSurvey:
    [seen], missed = survey(table.parent, [{"table": str(table), "verify": False, "clean": False}])
    assert not missed
    return seen


def test_given_an_index_that_a_writer_removed_then_the_plan_names_it_and_builds_it_again(hudi: Path) -> None:
    has(hudi, "files", "record_index", "secondary_index_by_city")
    seen = look(hudi)
    assert seen.hudi == {"by_id": "active", "by_city": "active"}
    assert not [one for one in due_works(seen) if isinstance(one, DueWork)]  # whatever time has passed

    has(hudi, "files", "secondary_index_by_city")
    seen = look(hudi)
    assert seen.hudi == {"by_id": "vanished", "by_city": "active"}
    [due] = [one for one in due_works(seen) if isinstance(one, DueWork)]
    assert (due.kind, due.index, due.mode, due.bytes) == ("refresh", "by_id", "incremental", 5_000_000)
    assert "vanished" in due.reason
    plan = plan_maintenance([seen], [], Budget(), "nightly")
    assert [step["kind"] for step in plan.tables()[0]["steps"]] == ["refresh"]


def test_given_a_table_that_cannot_be_asked_then_its_refresh_asks_as_that_of_any_source(hudi: Path) -> None:
    seen = look(hudi)  # its properties are not there
    assert seen.hudi is None
    assert [one.code for one in due_works(seen) if not isinstance(one, DueWork) and one.kind == "refresh"] == [
        "not_due", "not_due",
    ]  # fmt: skip
