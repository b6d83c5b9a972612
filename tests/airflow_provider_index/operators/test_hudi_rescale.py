"""The plan of a Hudi table's rescale as a person sees it who approves it: drawn by the log, in the worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_index.operators import PreviewRescaleOperator
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.model import AddFile, Field, SourceDefinition, TableDefinition
from tests.airflow_provider_index.operators.plain_table import context

MB = 1_000_000


def test_given_a_plan_of_hudis_then_its_buckets_are_drawn_and_the_window_is_over_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", '{"conn_type": "index_table_store"}')
    definition = TableDefinition(
        "t", (Field("id", "bigint"),), ("id",), source=SourceDefinition("hudi", str(tmp_path / "t"))
    )
    name = f"file://{tmp_path}/t/p=p1/0000000{{}}-bc09-4181-b355-32b16b5e3543-0_2-473-3264_20261128101542406.parquet"
    files = [
        AddFile("data", "", f"g{at}", name.format(at), "base", 5, size * MB, lineage=at + 1)
        for at, size in enumerate((30, 10))
    ]
    create_table(Store(tmp_path / "_indexes/t"), definition, files, txn_id="make")
    plan = {
        "partitions": [{"partition": "p=p1", "from_buckets": 2, "to_buckets": 4, "files": 2, "bytes": 40 * MB}],
        "unchanged": 1, "default": 2, "rule": "regex", "expressions": "p=p1,4", "rules_change": True, "files": 2,
        "bytes": 40 * MB, "estimated_seconds": 5.0, "estimated_from": "12 MB/s on a core", "takes_back": None,
    }  # fmt: skip
    seen = context("show")
    operator = PreviewRescaleOperator(task_id="show", table=str(tmp_path / "t"), table_conn_id="lake", plan=plan)
    assert operator.execute(seen) == {"partitions": None, "files": 2, "bytes": 40 * MB}
    drawn = seen["ti"].pushed["markdown"]
    assert "before     2 buckets, up to   30.0 MB" in drawn and "after      4 buckets, about   10.0 MB" in drawn
    assert "p=p1,4" in drawn and seen["ti"].pushed["svg"].startswith("<svg")
