"""Runs index statements: from a file, again after their commits landed, and with a mistake in them."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_index.operators import IndexSQLOperator, WriteTableOperator

ROWS = "SELECT id, concat('c', id % 10) AS city, 'p' AS part FROM range(100)"


class LosesItsWorker(IndexSQLOperator):
    """Ends in failure right after its commits have landed, the first time."""

    def execute(self, context):
        answers = super().execute(context)
        if context["ti"].try_number == 1:
            raise RuntimeError("the worker is gone")
        return answers


with DAG("statements", params={"table": "towns"}, default_args={"retry_delay": timedelta(seconds=1)}):
    make = LosesItsWorker(task_id="make", sql="statements.sql", table_conn_id="lake", retries=1)
    load = WriteTableOperator(task_id="load", sql=ROWS, table="db.towns", table_conn_id="lake")
    look = IndexSQLOperator(
        task_id="look",
        sql="ALTER INDEX by_city ON db.towns REBUILD; SHOW INDEXES ON db.towns",
        table_conn_id="lake",
    )
    mistake = IndexSQLOperator(
        task_id="mistake", sql="DROP INDEX by_city ON db.towns; DROP INDX x", table_conn_id="lake", retries=5
    )
    make >> load >> look >> mistake
