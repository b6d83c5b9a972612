"""Makes a DAG that looks after many tables: a plan first, then tasks that do on each table what is to be done.

Everything is decided when the DAG runs; while it is parsed, the description is only read and checked.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param

from airflow_provider_index.hooks.table_store import TableStoreHook
from airflow_provider_index.operators.maintenance import (
    OFF_VARIABLE,
    SECONDS_PER_TASK,
    TABLES_PER_TASK,
    MaintainTableOperator,
    PlanMaintenanceOperator,
)
from spark_apps.maintenance.policies import MaintenanceConfig, read_config, read_file
from spark_apps.storage.errors import InvalidInput

DOC = """\
Looks after many tables: refreshes and compacts indexes, compacts tables, compares indexes with the rows, and cleans.

`plan` reads the tables' logs and decides by their policies what is due, and by the budget what is done; its log shows
the plan as a table, with a reason for everything that is left out. `maintain` runs once for each table that something
is to be done on, or once for several tables with little work; what was left comes earlier in the next run.
"""

_DESCRIPTION = ("tables", "defaults", "budget")


def index_maintenance(
    dag_id: str,
    *,
    schedule: Any = None,
    tables: Sequence[str | Mapping[str, Any]] | None = None,
    defaults: Mapping[str, Any] | None = None,
    budget: Mapping[str, Any] | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    table_conn_id: str = TableStoreHook.default_conn_name,
    spark_conn_id: str | None = None,
    conf: Mapping[str, str] | None = None,
    tables_at_once: int = 2,
    tables_per_task: int = TABLES_PER_TASK,
    seconds_per_task: float = SECONDS_PER_TASK,
    pool: str | None = None,
    retries: int = 4,
    retry_delay: timedelta = timedelta(minutes=2),
    off_variable: str = OFF_VARIABLE,
    task_args: Mapping[str, Any] | None = None,
    **dag_args: Any,
) -> DAG:
    """Return a DAG that maintains tables by policy.

    ::

        dag = index_maintenance(
            "nightly", schedule="0 1 * * *", tables=["sales.*", {"table": "web.clicks", "verify": False}],
            budget={"bytes": "500GB", "minutes": 180},
        )

    :param tables: names, locations or patterns, or mappings with ``table`` and the settings that differ from the
        defaults.
    :param defaults: limits for all tables: ``refresh``, ``compact``, ``compact_indexes``, ``clean``, ``verify``.
    :param budget: ``bytes`` and ``minutes`` of one run.
    :param config: the three arguments above as a mapping, or as a YAML file whose path may be relative to the DAG's
        file.
    :param tables_at_once: how many tasks work on tables at the same time, in all runs of the DAG.
    :param tables_per_task: how many tables with little work may share a task and its Spark app; with 1, each table has
        its own.
    :param seconds_per_task: how many seconds the work of tables that share a task may take together, as estimated.
    :param pool: Airflow's pool for the work; the default pool if not given.
    :param retry_delay: the delay before the first retry of a table's work; each later one waits twice as long.
    :param off_variable: the Airflow Variable that lists tables which are switched off.
    :param task_args: more arguments of the tasks that work on tables, such as ``deferrable`` or ``execution_timeout``.
    :param dag_args: more arguments of the DAG.
    :param dag_id: the id of the DAG.
    :param table_conn_id: the connection of the tables.
    :param spark_conn_id: and ``conf``: the Spark connection, and settings that take precedence over it.
    :param retries: retries of the task that maintains a table.
    :raises InvalidInput: for a description that is not valid, naming the entry.
    """
    described = _described(tables, defaults, budget, config, folder=_folder_of_caller())
    if not isinstance(tables_at_once, int) or tables_at_once < 1:
        raise InvalidInput(f"tables_at_once is {tables_at_once!r}.", hint="Give a whole number from 1 on.")
    if not isinstance(tables_per_task, int) or tables_per_task < 1:
        raise InvalidInput(f"tables_per_task is {tables_per_task!r}.", hint="Give a whole number from 1 on.")
    in_pool = {} if pool is None else {"pool": pool}
    settings: dict[str, Any] = {"catchup": False, "max_active_runs": 1, "doc_md": DOC, "tags": ["maintenance"]}
    with DAG(dag_id, schedule=schedule, params=_params(), **{**settings, **dag_args}) as dag:
        plan = PlanMaintenanceOperator(
            task_id="plan",
            config=described,
            table_conn_id=table_conn_id,
            spark_conn_id=spark_conn_id,
            tables_at_once=tables_at_once,
            tables_per_task=tables_per_task,
            seconds_per_task=seconds_per_task,
            off_variable=off_variable,
            retries=retries,
            retry_delay=retry_delay,
        )
        work: dict[str, Any] = {
            "conf": conf,
            "retries": retries,
            "retry_delay": retry_delay,
            "retry_exponential_backoff": 2.0,
            "max_retry_delay": timedelta(hours=1),
            "max_active_tis_per_dag": tables_at_once,
            "map_index_template": "{{ task.name }}",
            **in_pool,
            **(task_args or {}),
        }
        MaintainTableOperator.partial(
            task_id="maintain", **{name: value for name, value in work.items() if value is not None}
        ).expand_kwargs(plan.output)
    return dag


def _described(
    tables: Sequence[Any] | None,
    defaults: Mapping[str, Any] | None,
    budget: Mapping[str, Any] | None,
    config: str | Path | Mapping[str, Any] | None,
    folder: Path,
) -> MaintenanceConfig:
    given = {"tables": tables, "defaults": defaults, "budget": budget}
    beside = {name: value for name, value in given.items() if value is not None}
    if config is None:
        return read_config(beside, "index_maintenance")
    if beside:
        raise InvalidInput(
            f"index_maintenance was given config and {', '.join(beside)} beside it.",
            hint="Say everything in one place.",
        )
    if isinstance(config, Mapping):
        return read_config(config, "index_maintenance: config")
    return read_file(folder / config)


def _folder_of_caller() -> Path:
    """Return the folder of the file that called the factory: where a DAG's author looks for its YAML file."""
    file = sys._getframe(2).f_globals.get("__file__")
    return Path(file).resolve().parent if file else Path.cwd()


def _params() -> dict[str, Param]:
    # A form of Airflow's has to be filled in wherever the type does not admit null.
    patterns = {"type": ["null", "array"], "items": {"type": "string"}}
    return {
        "tables": Param(None, title="Only these tables", description="Names or patterns; all if empty.", **patterns),
        "skip": Param(None, title="Not these tables", description="Names or patterns.", **patterns),
        "budget_minutes": Param(
            None, type=["null", "number"], minimum=0, title="Minutes", description="In place of the described budget."
        ),
        "budget_bytes": Param(
            None, type=["null", "string"], title="Bytes", description="In place of the described budget: 200GB."
        ),
        "plan_only": Param(
            False, type="boolean", title="Only a plan", description="Do nothing, only say what would be."
        ),
    }
