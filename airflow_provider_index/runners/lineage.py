"""Settings of a Spark driver for OpenLineage, as Airflow's ``SparkSubmitOperator`` gives it: parent job, transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_index.compat import conf
from airflow_provider_index.runners.settings import CONNECT, SparkSettings
from spark_apps.storage.secrets import holds_secret

_SECTION = "openlineage"


def with_lineage(settings: SparkSettings, context: Mapping[str, Any], log: Any) -> SparkSettings:
    """Return the settings with those of OpenLineage that Airflow's configuration asks for.

    It does so by ``[openlineage] spark_inject_parent_job_info`` and ``spark_inject_transport_info``. Settings that the
    connection or the operator gives stay. A Spark Connect server has a listener of its own. A transport's secret
    reaches a driver beside the task like any other; a driver in a cluster gets no such transport.

    :param context: of the task.
    :param log: of the task.
    """
    parent = conf.getboolean(_SECTION, "spark_inject_parent_job_info", fallback=False)
    transport = conf.getboolean(_SECTION, "spark_inject_transport_info", fallback=False)
    if settings.master.startswith(CONNECT) or not (parent or transport):
        return settings
    from airflow.providers.common.compat.openlineage.utils.spark import (
        inject_parent_job_information_into_spark_properties,
        inject_transport_information_into_spark_properties,
    )

    properties = dict(settings.conf)
    if parent:
        properties = inject_parent_job_information_into_spark_properties(properties, context)
    if transport:
        more = inject_transport_information_into_spark_properties(dict(properties), context)
        secret = [name for name in more if name not in properties and holds_secret(name, more[name])]
        if secret and settings.deploy_mode == "cluster":
            log.warning(
                "The driver in the cluster gets no transport of OpenLineage: %s would be on its command line. Set "
                "spark.openlineage.transport.* there.",
                ", ".join(secret),
            )
        else:
            properties = more
    return settings.with_conf(properties)
