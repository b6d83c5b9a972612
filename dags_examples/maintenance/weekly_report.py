"""Each week a report on tables by e-mail: how they are, and what their indexes saved the queries.

Airflow's own notifier sends it, by the connection `smtp_default`. For a chat, use the notifier of its provider with the
task's XCom `text`, which is in Slack's markup:
`SlackWebhookNotifier(slack_webhook_conn_id=…, text="{{ ti.xcom_pull(task_ids='report', key='text') }}")`.
"""

from __future__ import annotations

from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import DAG, Param

from airflow_provider_index.operators import ReportTablesOperator

with DAG(
    "weekly_report",
    schedule="@weekly",
    catchup=False,
    tags=["maintenance"],
    doc_md=__doc__,
    params={
        "tables": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Tables",
            description="Names or patterns; all if empty.",
        ),
        "to": Param("lake@example.org", type="string", title="Send to"),
        "table_conn_id": Param("index_table_store_default", type="string", title="Table connection"),
    },
):
    ReportTablesOperator(
        task_id="report",
        tables="{{ (params.tables or ['*']) | tojson }}",
        table_conn_id="{{ params.table_conn_id }}",
        on_success_callback=SmtpNotifier(
            from_email="airflow@example.org",
            to="{{ params.to }}",
            subject="Lake tables, {{ dag_run.run_after | ds }}",
            html_content="{{ ti.xcom_pull(task_ids='report', key='html') }}",
        ),
    )
