"""What OpenLineage gets of a task, as the very events that its client would send."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from airflow.providers.openlineage.extractors.manager import ExtractorManager
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.serde import Serde

from airflow_provider_index.assets import index_asset, table_asset
from airflow_provider_index.lineage import asset_to_dataset
from airflow_provider_index.operators import (
    BuildIndexOperator,
    DropIndexOperator,
    MeasureAdviceOperator,
    VerifyIndexOperator,
    WriteTableOperator,
)
from airflow_provider_index.reporting import ReportedCommit
from spark_apps.timeline.model import Field, SourceDefinition, TableDefinition

DEFINITION = TableDefinition("t", (Field("id", "bigint"), Field("city", "string")), ("id",))
RECEIPT = {"version": 4, "txn_id": "x", "operation": "upsert", "metrics": {"rows": 3, "bytes": 900, "files": 2}}


def event(operator: Any, state: RunState) -> dict[str, Any]:
    """The event that OpenLineage sends for a task: its own extraction, its own client classes, its own JSON."""
    ti = SimpleNamespace(task=operator, dag_id="d", task_id=operator.task_id)
    lineage = ExtractorManager().extract_metadata(
        dagrun=SimpleNamespace(dag_id="d", run_id="r"),  # type: ignore[arg-type]
        task=operator,
        task_instance_state={RunState.START: "running", RunState.COMPLETE: "success"}[state],  # type: ignore[arg-type]
        task_instance=ti,  # type: ignore[arg-type]
    )
    sent = RunEvent(
        eventTime=datetime.now(UTC).isoformat(),
        eventType=state,
        run=Run(str(uuid4()), facets=lineage.run_facets),
        job=Job("airflow", f"d.{operator.task_id}", facets=lineage.job_facets),
        inputs=lineage.inputs,
        outputs=lineage.outputs,
    )
    sent_event: dict[str, Any] = json.loads(Serde.to_json(sent))
    return sent_event


def names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["namespace"], one["name"]) for one in datasets]


def test_a_write_tells_of_the_files_it_read_and_of_the_table_with_version_schema_and_figures() -> None:
    operator = WriteTableOperator(task_id="w", table="s3://lake/db/t", source=["s3://raw/in/", "/local/in.csv"])

    begun = event(operator, RunState.START)
    operator.table_location = "s3://lake/db/t"
    operator.reported_commits = (ReportedCommit(RECEIPT, "db.t", "s3://lake/db/t", None, DEFINITION),)
    ended = event(operator, RunState.COMPLETE)

    assert names(begun["inputs"]) == names(ended["inputs"]) == [("s3://raw", "in"), ("file", "/local/in.csv")]
    assert names(begun["outputs"]) == names(ended["outputs"]) == [("s3://lake", "db/t")]
    (table,) = ended["outputs"]
    assert table["facets"]["version"]["datasetVersion"] == "4"
    assert [one["name"] for one in table["facets"]["schema"]["fields"]] == ["id", "city"]
    statistics = table["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (3, 900, 2)
    (receipt,) = ended["run"]["facets"]["lakeindex_receipt"]["receipts"]
    assert (receipt["txn_id"], receipt["operation"], receipt["table"]) == ("x", "upsert", "s3://lake/db/t")


def test_an_index_is_a_dataset_of_its_own_made_from_its_table_and_the_tables_source() -> None:
    operator = BuildIndexOperator(task_id="b", table="/lake/t", index="by_city", kind="secondary", columns=["city"])
    source = TableDefinition("t", DEFINITION.fields, (), source=SourceDefinition("delta", "s3://theirs/t"))
    operator.table_location = "/lake/t"
    operator.reported_commits = (
        ReportedCommit({**RECEIPT, "operation": "create_index"}, "/lake/t", "/lake/t", "by_city", source),
    )

    ended = event(operator, RunState.COMPLETE)

    assert names(ended["inputs"]) == [("file", "/lake/t"), ("s3://theirs", "t")]
    assert names(ended["outputs"]) == [("file", "/lake/t/_index/indexes/by_city")]
    assert ended["outputs"][0]["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"


def test_what_was_dropped_says_so_and_what_only_reads_writes_nothing() -> None:
    drop = DropIndexOperator(task_id="d", table="/lake/t", index="by_city")
    drop.reported_commits = (ReportedCommit({**RECEIPT, "operation": "drop_index"}, "/lake/t", "/lake/t", "by_city"),)
    verify = VerifyIndexOperator(task_id="v", table="/lake/t")

    assert (
        event(drop, RunState.COMPLETE)["outputs"][0]["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "DROP"
    )
    looked = event(verify, RunState.COMPLETE)
    assert (names(looked["inputs"]), looked["outputs"]) == ([("file", "/lake/t")], [])


def test_a_table_by_name_is_told_of_once_its_connection_has_said_where_it_is() -> None:
    operator = WriteTableOperator(task_id="w", table="db.t", sql="SELECT 1")

    assert event(operator, RunState.START)["outputs"] == []


def test_assets_become_the_same_datasets() -> None:
    assert names([vars_of(asset_to_dataset(table_asset("s3://lake/db/t"), None))]) == [("s3://lake", "db/t")]
    assert asset_to_dataset(index_asset("/lake/t", "i"), None).name == "/lake/t/_index/indexes/i"
    assert asset_to_dataset(table_asset("db.t"), None) is None


def vars_of(dataset: Any) -> dict[str, Any]:
    return {"namespace": dataset.namespace, "name": dataset.name}


def test_what_was_measured_of_indexes_is_told_by_the_task_that_measured() -> None:
    operator = MeasureAdviceOperator(task_id="m", table="s3://lake/db/t", promised={"by_city": 5.0})
    operator.judged = [{"index": "by_city", "promised_a_day": 5.0, "measured_a_day": 1.0, "verdict": "taken back"}]

    facet = event(operator, RunState.COMPLETE)["run"]["facets"]["lakeindex_index_worth"]

    assert facet["indexes"] == operator.judged
