"""What of this version others keep: deferred tasks, task state, transaction ids, assets and their events."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from tests.airflow_provider_index.every_argument import surface

RECEIPT = {
    "version": 7, "txn_id": "night", "operation": "upsert", "instant": "20261111000000000",
    "metrics": {"rows": 5, "note": "short", "list": [1]},
}  # fmt: skip


def triggers_now() -> dict[str, list[Any]]:
    """Return what deferred tasks and asset watchers keep of each trigger: its class's path, and its arguments."""
    triggers = {}
    for kind in surface.triggers():
        path, kept = kind(**surface.required(kind)).serialize()  # type: ignore[attr-defined]
        triggers[kind.__name__] = [path, sorted(kept)]
    return triggers


def inputs_now() -> dict[str, Any]:
    """Return what the transaction id of a task is made of, for an operator of each kind."""
    inputs = {}
    for kind in surface.operators():
        if hasattr(kind, "inputs"):
            given = surface.required(kind)
            given |= {"table": "/lake/db/trips"} if "table" in surface.arguments(kind) else {}
            given |= {"sql": "SELECT 1 AS id"} if kind.__name__ == "WriteTableOperator" else {}
            made = kind(task_id="t", **given)
            made.read_arguments()
            inputs[kind.__name__] = made.inputs()
    return inputs


def assets_now() -> dict[str, Any]:
    """Return the names, URIs and events by which Airflow knows tables and indexes."""
    from airflow_provider_index.assets import commit_event, index_asset, table_asset

    made = {"table": table_asset("/lake/db/trips"), "index": index_asset("s3://lake/db/trips", "by_city")}
    assets = {name: {"name": one.name, "uri": one.uri, "group": one.group} for name, one in made.items()}
    return {**assets, "event": commit_event(RECEIPT, "/lake/db/trips", "by_city")}


def kept_now() -> dict[str, Any]:
    """Return what the task state store holds of a task's transaction, and the id that is made without one."""
    from airflow_provider_index.identity import make_id, once, remember

    memory: dict[str, Any] = {}
    store = SimpleNamespace(get=memory.get, set=memory.__setitem__)
    run = SimpleNamespace(start_date=datetime(2026, 11, 11, 6, tzinfo=UTC))
    context = {"ti": SimpleNamespace(max_tries=1), "dag_run": run, "task_state_store": store}
    once(context, "transaction", lambda: make_id("dag", "manual__2026-11-11", "group.task", 3, {"table": "t"}))
    remember(context, "job", {"job_id": "x"})
    return memory
