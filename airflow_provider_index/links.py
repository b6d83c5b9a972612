"""Links of a task in Airflow's interface: the page of its table, and Spark's own page while and after it works."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from airflow.sdk import BaseOperatorLink

from airflow_provider_index.compat import conf

PAGE = "/lakeindex/tables"
"""Route of the plugin page that shows one table."""


class SparkUILink(BaseOperatorLink):
    """Spark's own page, where the app said that it has one."""

    name = "Spark UI"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The address, or "" if there is none (``spark.ui.enabled=false``, or the app has not said yet)."""
        return getattr(operator, "spark_ui_url", None) or ""


class TablePageLink(BaseOperatorLink):
    """The page on which the table's indexes, commits and windows are shown."""

    name = "Table"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The address, or "" if the task did not come to know its table."""
        location = getattr(operator, "table_location", None)
        if not location:
            return ""
        return page_url(location, operator.table_conn_id)


def page_url(location: str, table_conn_id: str) -> str:
    """The page of a table, below the address under which people reach Airflow (``[api] base_url``)."""
    base = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return f"{base}{PAGE}?{urlencode({'table': location, 'conn': table_conn_id})}"
