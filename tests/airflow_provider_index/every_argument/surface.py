"""What can be given to what: all operators, sensors, triggers and task groups with their arguments, found by looking at
them, and for each argument values with what they mean, stated here on their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger

from airflow_provider_index import task_groups
from airflow_provider_index.provider_info import get_provider_info

TXN = {"txn_id": "a.b", "attempt": 1, "base": 7}
STEPS = [{"kind": "compact", "index": None, "bytes": 7}]
PLAN = {"partitions": [], "rules_change": True, "files": 0, "bytes": 0}
SUBMISSION = {"job_id": "j", "jobs_at": "/t", "table_conn_id": "lake"}
ONE_PATH = ("dt=2026-11-11", ["dt=2026-11-11"])
TWO_PATHS = (["dt=1", "dt=2/h=3"], ["dt=1", "dt=2/h=3"])
TEXT = ("some text", "some text")
ODD_TEXT = ("010", "010")
WHOLE = (8, 8)
SECONDS = (90.5, 90.5)
TRUE, FALSE = (True, True), (False, False)

MEANINGS: dict[str, list[tuple[Any, Any]]] = {
    "table": [TEXT, ("/lake/a.b", "/lake/a.b")],
    "table_conn_id": [TEXT],
    "rerun": [TEXT, ODD_TEXT, (7, "7"), ("1_000", "1_000"), ("[1]", "[1]")],
    "deferrable": [FALSE],
    "spark_conn_id": [TEXT],
    "conf": [({"spark.a": 1, "spark.b": True, "spark.c": "x"}, {"spark.a": "1", "spark.b": "true", "spark.c": "x"})],
    "window": [WHOLE],
    "epoch": [WHOLE],
    "poll_interval": [SECONDS],
    "plan_only": [FALSE],
    "runner": [TEXT],
    "silent_seconds": [SECONDS],
    "transaction": [(TXN, TXN)],
    "stage": [("a_stage", "a_stage")],
    "after": [("one", ["one"]), (["one", "two"], ["one", "two"])],
    "index": [("by_city", "by_city")],
    "fail": [FALSE, TRUE],
    "repair": [FALSE, TRUE],
    "deferred": [FALSE, TRUE],
    "if_exists": [FALSE, TRUE],
    "if_not_exists": [FALSE, TRUE],
    "refresh": [FALSE, TRUE],
    "mode": [("full", "full"), ("quick", "quick")],
    "kind": [("secondary", "secondary")],
    "columns": [("city", ["city"]), (["city", "to_date(ts)"], ["city", "to_date(ts)"])],
    "included": [
        ({"include": ["a"], "exclude": ["b"]}, {"include": ["a"], "exclude": ["b"]}),
        (["a", "b"], {"include": ["a", "b"]}),
        ({"include": "fare"}, {"include": ["fare"]}),
    ],
    "properties": [({"shards": 8, "x": False}, {"shards": "8", "x": "false"})],
    "partitions": [ONE_PATH, TWO_PATHS],
    "partition": [("dt=2026-11-11", "dt=2026-11-11")],
    "schema": [("id bigint, s string", "id bigint, s string")],
    "published_log": [TRUE, FALSE],
    "query_log": [TRUE, FALSE],
    "retain_versions": [WHOLE],
    "retain_hours": [SECONDS],
    "tombstones": [FALSE, TRUE],
    "version": [WHOLE],
    "format": [("csv", "csv")],
    "options": [({"header": True, "sep": "|"}, {"header": "true", "sep": "|"})],
    "index_root": [TEXT],
    "name": [TEXT],
    "record_key": [("id", ["id"]), (["id", "ts"], ["id", "ts"])],
    "buckets": [WHOLE],
    "bucket_rule": [("range", "range")],
    "bucket_expressions": [("a,8;b,4", "a,8;b,4"), ([["[0-9]", 8]], [["[0-9]", 8]]), ("[0-9],8", "[0-9],8")],
    "add": [("a,8", "a,8"), ([["a", 8], ["b", 4]], [["a", 8], ["b", 4]])],
    "rollback": [TRUE, FALSE, ("20261121170000000", "20261121170000000")],
    "plan": [(PLAN, PLAN)],
    "max_rows": [WHOLE],
    "output_path": [TEXT],
    "sql": [("REFRESH INDEX i ON t", "REFRESH INDEX i ON t")],
    "stages": [("one", ["one"]), (["one", "two"], ["one", "two"])],
    "patience": [SECONDS],
    "seconds": [SECONDS],
    "at_most": [(7200.5, 7200.5)],
    "holder": [TEXT, ODD_TEXT],
    "drain_seconds": [SECONDS],
    "wait_seconds": [SECONDS],
    "tables": [("sales.trips", ["sales.trips"]), (["a.b", "/lake/c"], ["a.b", "/lake/c"])],
    "operation": [("insert", "insert"), ("insert_overwrite", "insert_overwrite")],
    "source": [("/in/*.csv", ["/in/*.csv"]), (["/a", "[ab].csv"], ["/a", "[ab].csv"])],
    "deleted": [("gone", "gone")],
    "where": [("id = 1", "id = 1")],
    "parameters": [({"city": "o'hare", "least": 3}, {"city": "o'hare", "least": 3})],
    "create": [
        (
            {"schema": "id bigint", "record_key": "id", "buckets": "8", "positions": "False"},
            {"schema": "id bigint", "record_key": ["id"], "buckets": 8, "positions": False},
        )
    ],
    "batches": [
        (
            [{"sql": "a", "partitions": "dt=1"}, {"operation": "delete", "where": "x"}],
            [{"sql": "a", "partitions": ["dt=1"]}, {"operation": "delete", "where": "x"}],
        )
    ],
    "leave_indexes": [("by_city", ["by_city"]), (["a", "b"], ["a", "b"])],
    "steps": [(STEPS, STEPS)],
    "until": [SECONDS],
    "more_tables": [([{"table": "db.b", "steps": STEPS}], [{"table": "db.b", "steps": STEPS}])],
    "tables_at_once": [WHOLE],
    "tables_per_task": [WHOLE],
    "seconds_per_task": [SECONDS],
    "off_variable": [TEXT],
    "after_version": [WHOLE],
    "operations": [("upsert", ["upsert"]), (["insert", "upsert"], ["insert", "upsert"])],
    "within_commits": [WHOLE],
    "with_source": [TRUE],
    "at_least": [WHOLE],
    "budget_bytes": [TEXT],
    "budget_minutes": [SECONDS],
    "judge_after_days": [SECONDS],
    "promised": [({"by_city": 8.5}, {"by_city": 8.5})],
    "least": [SECONDS],
    "time_zone": [("Asia/Tokyo", "Asia/Tokyo")],
    "states": [("active", ["active"]), (["active", "absent"], ["active", "absent"])],
    "deadline": [SECONDS],
    "abort_at": [SECONDS],
    "submission": [(SUBMISSION, SUBMISSION)],
    "log": [TEXT],
}
OF_SOME: dict[tuple[str, str], list[tuple[Any, Any]]] = {
    ("VerifyIndexOperator", "index"): [("by_city", ["by_city"]), (["a", "b"], ["a", "b"])],
    ("TableCommitTrigger", "after"): [WHOLE],
    ("CompactTableOperator", "native"): [
        ({"optimize": {"zorder_by": "a"}}, {"optimize": {"zorder_by": ["a"]}}),
        ("rewrite_manifests", {"rewrite_manifests": {}}),
    ],
    ("CleanTableOperator", "native"): [({"vacuum": {"retain_hours": "200"}}, {"vacuum": {"retain_hours": 200.0}})],
    ("RestoreTableOperator", "native"): [({"restore": {"version": "3"}}, {"restore": {"version": 3}})],
    ("WriteTableOperator", "until"): [TEXT, (7, "7")],
    ("IncrementalRefreshOperator", "mode"): [("incremental", "incremental"), ("full", "full")],
    ("RefreshIndexOperator", "mode"): [("incremental", "incremental"), ("full", "full")],
}

NOT_READ = {("PlanMaintenanceOperator", "config"), ("TableCommitTrigger", "log")}
"""What only a program makes: a description that has been read, the identity of a log."""

_OURS = "airflow_provider_index."


def meanings(kind: type, name: str) -> list[tuple[Any, Any]]:
    """Values of an argument with what they mean. :raises KeyError: for an argument that nobody thought of here."""
    return OF_SOME.get((kind.__name__, name)) or MEANINGS[name]


def classes(key: str, base: type) -> list[type]:
    """The public classes in the modules that the provider tells Airflow of."""
    modules = [import_module(name) for name in get_provider_info()[key][0]["python-modules"]]
    public = {
        one
        for module in modules
        for _, one in inspect.getmembers(module, inspect.isclass)
        if one.__module__ == module.__name__ and issubclass(one, base) and not one.__name__.startswith("_")
    }
    abstract = {one for one in public if any(one in other.__mro__[1:] for other in public)}
    return sorted(public - abstract, key=lambda one: one.__name__)


def operators() -> list[type]:
    """Operators and sensors."""
    return [*classes("operators", BaseOperator), *classes("sensors", BaseOperator)]


def triggers() -> list[type]:
    return classes("triggers", BaseTrigger)


def groups() -> list[Callable[..., Any]]:
    return [one for name, one in vars(task_groups).items() if name in task_groups.__all__ and inspect.isfunction(one)]


def arguments(kind: type) -> dict[str, inspect.Parameter]:
    """The arguments of a class that are of this package, those of its bases included."""
    parameters: dict[str, inspect.Parameter] = {}
    for one in reversed(kind.__mro__):
        if one.__module__.startswith(_OURS) and "__init__" in one.__dict__:
            parameters |= named(one.__init__)
    if kind.__name__ == "IndexSQLOperator":
        del parameters["table"]  # its statements name tables
    parameters.pop("poke_interval", None)  # Airflow's own
    return parameters


def named(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one for one in parameters if one.name != "self" and one.kind is not inspect.Parameter.VAR_KEYWORD}


def required(kind: type) -> dict[str, Any]:
    """The least that the class takes."""
    needed = [name for name, one in arguments(kind).items() if one.default is inspect.Parameter.empty]
    values = {name: meanings(kind, name)[0][0] for name in needed if (kind.__name__, name) not in NOT_READ}
    if kind.__name__ == "RestoreTableOperator":
        values["version"] = 8  # or native
    if kind.__name__ == "PlanMaintenanceOperator":
        from spark_apps.maintenance.policies import read_config

        values["config"] = read_config(["db.*"])
    return values


def readable(kind: type) -> Iterator[str]:
    """The names of the arguments that have readers."""
    return (name for name in arguments(kind) if (kind.__name__, name) not in NOT_READ)
