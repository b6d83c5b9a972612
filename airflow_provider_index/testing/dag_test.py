"""The process in which :meth:`TemporaryLake.run <airflow_provider_index.testing.TemporaryLake.run>` runs a DAG.

What to run comes by standard input, and how it ended goes into the file named.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any


def main() -> int:
    """Run one DAG by ``dag.test()``; returns the exit status."""
    order = json.loads(sys.stdin.read())
    sys.stdin = Path("/dev/null").open()  # noqa: SIM115 - for the rest of the process
    dag = _dag(order["dags"], order["dag_id"])
    date = order["date"] and datetime.fromisoformat(order["date"])
    run = dag.test(run_conf=order["conf"], mark_success_pattern=order["skip"], logical_date=date)
    answer = {"dag_id": order["dag_id"], "state": str(run.state.value), **_tasks(run)}
    target = Path(sys.argv[1])
    target.with_suffix(".part").write_text(json.dumps(answer, default=str))
    target.with_suffix(".part").replace(target)
    return 0


def _dag(folder: str, dag_id: str) -> Any:
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:  # before Airflow 3.2
        from airflow.models.dagbag import DagBag

    bag = DagBag(folder)
    if bag.import_errors:
        sys.exit("Airflow cannot parse:\n" + "\n".join(f"{file}\n{error}" for file, error in bag.import_errors.items()))
    if dag_id not in bag.dags:
        sys.exit(f"There is no DAG {dag_id!r} in {folder}; there are {', '.join(sorted(bag.dags)) or 'none'}.")
    return bag.dags[dag_id]


def _tasks(run: Any) -> dict[str, dict[str, Any]]:
    states: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for one in run.get_task_instances():
        name = one.task_id if one.map_index < 0 else f"{one.task_id}[{one.map_index}]"
        states[name] = None if one.state is None else str(getattr(one.state, "value", one.state))
        value = one.xcom_pull(task_ids=one.task_id, map_indexes=one.map_index)
        if value is not None:
            values[name] = value
    return {"tasks": states, "xcoms": values}


if __name__ == "__main__":
    sys.exit(main())
