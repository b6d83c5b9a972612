"""A table without Spark, for operators that commit from the worker; and the context that Airflow hands them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    AnyAction,
    Field,
    HashingConfig,
    PutHashingConfig,
    PutPartition,
    TableDefinition,
    Write,
    group_scope,
)
from spark_apps.timeline.transactions import Transaction


class Memory(dict[str, Any]):
    """Airflow's task state store: keeps values through retries and clears."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


def make_table(path: Path) -> Timeline:
    """An empty table with one bucket a partition."""
    store = Store(path)
    fields = (Field("p", "string"), Field("k", "string"))
    definition = TableDefinition("t", fields, ("k",), ("p",))
    create_table(store, definition, (PutHashingConfig(HashingConfig("", 1)),))
    return Timeline.load(store)


def context(
    task: str,
    *,
    tries: int = 0,
    memory: Memory | None = None,
    run: str = "r",
    number: int = 1,
    retries: int = 0,
) -> dict[str, Any]:
    ti = SimpleNamespace(
        dag_id="d", run_id=run, task_id=task, map_index=-1, max_tries=tries, try_number=number, pushed={},
        task=SimpleNamespace(retries=retries),
    )  # fmt: skip
    ti.xcom_push = lambda key, value: ti.pushed.update({key: value})
    return {"ti": ti, "task_state_store": Memory() if memory is None else memory}


def stage_rows(transaction: Transaction, stage: str, partition: str, **fields: Any) -> str:
    """Stages a file of one row, as an app would."""
    token = transaction.claim(stage)
    path = f"{transaction.data_folder(f'{stage}-{token[:8]}-rows')}/part.parquet"
    transaction.timeline.store.put(path, b"row")
    actions: list[AnyAction] = [
        PutPartition(partition, 1, (partition.removeprefix("p="),)),
        AddFile(DATA_TREE, partition, "0", path, "delta", 1, 3),
    ]
    writes = [Write(group_scope(partition, "0"))]
    return transaction.stage(stage, actions, writes=writes, token=token, operation="upsert", **fields)
