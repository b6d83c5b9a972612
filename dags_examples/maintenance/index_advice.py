"""Each week advice on a table's indexes, a picture, a person's approval, the work; two weeks later a measurement.

The table keeps a query log (property `query_log`: `on` or `sampled`). Look at the task `approve`: it shows what each
index would save and cost, and the statements. Until a person approves, nothing is changed. Two weeks later `measure`
compares what the new indexes saved with what was promised, and those that saved less than half of it are dropped.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.sensors.date_time import DateTimeSensorAsync
from airflow.sdk import DAG, Param

from airflow_provider_index.operators import AdviseIndexesOperator, IndexSQLOperator, MeasureAdviceOperator

WHERE = {"table": "{{ params.table }}", "table_conn_id": "{{ params.table_conn_id }}"}

with DAG(
    "index_advice",
    schedule="@weekly",
    catchup=False,
    max_active_runs=8,
    tags=["maintenance"],
    doc_md=__doc__,
    params={
        "table": Param("sales.trips", type="string", minLength=1, title="Table", description="Name, URI or path."),
        "budget_bytes": Param(
            "5GB", type=["null", "string"], title="All indexes may hold", description="Whatever they need if empty."
        ),
        "budget_minutes": Param(
            20, type=["null", "number"], minimum=0, title="Minutes of upkeep a day", description="Any if empty."
        ),
        "measure_after_days": Param(14, type="number", minimum=0, title="Days until it is measured"),
        "table_conn_id": Param("index_table_store_default", type="string", title="Table connection"),
    },
):
    advise = AdviseIndexesOperator(
        task_id="advise",
        budget_bytes="{{ params.budget_bytes or '' }}",
        budget_minutes="{{ '' if params.budget_minutes is none else params.budget_minutes }}",
        judge_after_days="{{ params.measure_after_days }}",
        **WHERE,
    )
    approve = ApprovalOperator(
        task_id="approve",
        subject="Change the indexes of this table?",
        body="{{ ti.xcom_pull(task_ids='advise', key='markdown') }}",
        # From apache-airflow-providers-standard 1.12.3 on; the constraints of Airflow 3.1.8 pin an older one.
        response_timeout=timedelta(days=5),
    )
    build = IndexSQLOperator(task_id="build", sql=advise.output["sql"], table_conn_id=WHERE["table_conn_id"])
    # Waits in the triggerer, and takes no slot.
    used = DateTimeSensorAsync(
        task_id="used", target_time="{{ dag_run.run_after + macros.timedelta(days=params.measure_after_days) }}"
    )
    measure = MeasureAdviceOperator(task_id="measure", promised=advise.output["promised"], **WHERE)
    take_back = IndexSQLOperator(task_id="take_back", sql=measure.output["sql"], table_conn_id=WHERE["table_conn_id"])
    advise >> approve >> build >> used >> measure >> take_back
