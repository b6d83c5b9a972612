"""A Spark connection with a form for every setting that this package takes.

The connection of Airflow's Spark provider does as well; its form asks for less, and the rest goes into its extra.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook

from airflow_provider_index.hooks.connection_forms import with_form
from airflow_provider_index.masking import shown_by_airflow
from airflow_provider_index.runners.settings import SparkSettings


@with_form
class IndexRunnerHook(BaseHook):
    """Says which Spark works on tables, and by which runner.

    :param spark_conn_id: id of a connection of type ``index_runner`` (or ``spark``, ``spark_connect``).
    """

    conn_name_attr = "spark_conn_id"
    default_conn_name = "index_runner_default"
    conn_type = "index_runner"
    hook_name = "Index runner (Spark)"

    def __init__(self, spark_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spark_conn_id = spark_conn_id

    def get_conn(self) -> SparkSettings:
        """Return the settings of the connection. :raises InvalidInput: for settings that cannot be used."""
        return SparkSettings.from_connection(self.get_connection(self.spark_conn_id))

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the connection can be understood and its runner made; starts nothing."""
        from airflow_provider_index.runners.choosing import make_runner
        from spark_apps.storage.errors import LakeIndexError

        try:
            settings = self.get_conn()
            runner = make_runner(settings, self.log)
        except LakeIndexError as error:
            return False, str(error)
        extra = self.get_connection(self.spark_conn_id).extra_dejson
        shown = shown_by_airflow(extra, "conf", "runner_options")
        if extra.get("keytab"):
            shown += " Airflow's API shows the keytab: move it to secret_keytab."
        return True, f"{type(runner).__name__} would submit to {settings.master}; nothing was started.{shown}"
