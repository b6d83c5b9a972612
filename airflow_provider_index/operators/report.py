"""The operator that reports on tables to people: how they are, and what their indexes are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator

from airflow_provider_index.arguments import (
    declares_arguments,
)
from airflow_provider_index.connected import Connected
from airflow_provider_index.operators.maintenance import warehouses_of


class ReportTablesOperator(Connected, BaseOperator):
    """Reports on tables: the health of each, and what its indexes were worth to its queries in the last 30 days.

    The worker reads the tables' logs and query logs, without Spark, and nothing is changed. A table that cannot be read
    is named in the report, and fails nothing.

    Returns one mapping a table, of 50 at most, those that a person should look at first. Hands on, each under an XCom
    key of its own, ``html`` and ``text`` (in Slack's markup), which one of Airflow's notifiers sends:

    .. code-block:: python

        ReportTablesOperator(
            task_id="report",
            tables=["sales.*"],
            on_success_callback=SmtpNotifier(
                to="lake@example.org",
                subject="Lake tables",
                html_content="{{ ti.xcom_pull(task_ids='report', key='html') }}",
            ),
        )

    :param tables: names below the connection's warehouse, URIs or paths, or patterns over the names (``sales.*``).
    """

    ui_color = "#f2ead0"

    @declares_arguments
    def __init__(self, *, tables: Sequence[str] | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def execute(self, context: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Make the report. :raises InvalidInput: if no table is named, or there is no such connection."""
        from airflow_provider_index.maintenance.report import SHOWN, html, in_order, report_on
        from airflow_provider_index.maintenance.report import text as as_text
        from spark_apps.maintenance.policies import read_config
        from spark_apps.maintenance.survey import find_tables, look_at
        from spark_apps.storage.secrets import hide, known_secrets

        with self.reading(context):
            entries = read_config(self.tables, "tables").tables
            warehouses = warehouses_of([self.table_conn_id])
            tables, unknown = find_tables(entries, warehouses, self.table_conn_id)
            reports, unreachable = look_at(tables, report_on)
        secrets = known_secrets(warehouses[self.table_conn_id].options)
        missed = [(one.name, hide(one.skipped.reason, secrets)) for one in (*unknown, *unreachable)]
        ordered = in_order(reports)
        shown = as_text(ordered, missed)
        self.log.info("%s", shown)
        self.push(context, html=html(ordered, missed), text=shown)
        return [one.to_dict() for one in ordered[:SHOWN]]
