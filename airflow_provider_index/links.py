"""Links of a task in Airflow's interface: its table's page, Spark's pages while and after it works, driver logs."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode, urlsplit

from airflow.sdk import BaseOperatorLink

from airflow_provider_index.compat import conf

_ADDRESS = re.compile(r"https?://[A-Za-z0-9\[][A-Za-z0-9._~:/?#\[\]@!$&()*+,;=%\-]*", re.IGNORECASE)
_LONGEST = 2000

PAGE = "/lakeindex/tables"
"""Route of the plugin page that shows one table."""


def web_address(text: str | None) -> str:
    """Return the address of a page as an app reported it, if a browser may be sent there; else "".

    That is one of http or https, with a host and without a password or characters that are no part of an address.
    """
    if not text or len(text) > _LONGEST or not _ADDRESS.fullmatch(text):
        return ""
    try:
        parts = urlsplit(text)
        usable = parts.hostname and "@" not in parts.netloc and (parts.port is None or parts.port > 0)
    except ValueError:
        return ""
    return text if usable else ""


class SparkUILink(BaseOperatorLink):
    """Spark's own page while the app works, and its page on the history server afterwards, as far as there are any."""

    name = "Spark UI"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address, or "" if there is none (``spark.ui.enabled=false``, or the app has not said yet).

        Airflow asks when a try has ended: what then stays is the page on the history server.
        """
        lasting = web_address(getattr(operator, "spark_history_url", None))
        return lasting or web_address(getattr(operator, "spark_ui_url", None))


class DriverLogLink(BaseOperatorLink):
    """Log of the app's driver, where a cluster manager keeps it; what other drivers write is in the task's own log."""

    name = "Driver log"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address, or "" if there is none."""
        return web_address(getattr(operator, "driver_log_url", None))


class TablePageLink(BaseOperatorLink):
    """The page on which the table's indexes, commits and windows are shown."""

    name = "Table"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address, or "" if the task did not come to know its table."""
        location = getattr(operator, "table_location", None)
        if not location:
            return ""
        return page_url(location, operator.table_conn_id)


def page_url(location: str, table_conn_id: str) -> str:
    """Return the page of a table, below the address under which people reach Airflow (``[api] base_url``).

    Of an address that holds a secret, the page of the connection's tables: others see links.
    """
    from spark_apps.storage.secrets import hide_address

    base = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    if hide_address(location) != location:
        return f"{base}{PAGE.removesuffix('tables')}?{urlencode({'conn': table_conn_id})}"
    return f"{base}{PAGE}?{urlencode({'table': location, 'conn': table_conn_id})}"
