"""Indexes on tables that others write: the same flights as a Delta and as an Iceberg table.

Neither is touched; log and indexes are beside them, in a folder ``_indexes``. Refreshing is what a nightly run does:
it looks at the source's own log for files that came or went, and does nothing where there are none.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_index.operators import BuildIndexOperator, IncrementalRefreshOperator, RegisterTableOperator

COPIES = "{{ var.value.flights_copies }}"
SOURCES = {
    "delta": {},
    # Only its catalog knows which state of an Iceberg table is the newest. The options of the catalog go into
    # the log, and are taken from there because the connection's source_roots hold its address.
    "iceberg": {
        "catalog": "demo",
        "identifier": "demo.flights",
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{COPIES}/catalog.db",
        "catalog.warehouse": f"file://{COPIES}",
    },
}

with DAG("flights_sources", schedule=None, max_active_tasks=2, tags=["flights"], doc_md=__doc__):
    for form, options in SOURCES.items():
        source = {"table": f"{COPIES}/{form}"}
        register = RegisterTableOperator(task_id=f"register_{form}", **source, format=form, options=options)
        build = BuildIndexOperator(
            task_id=f"index_{form}", **source, index="by_tailnum", kind="secondary", columns=["tailnum"]
        )
        refresh = IncrementalRefreshOperator(task_id=f"refresh_{form}", **source, index="by_tailnum")
        register >> build >> refresh
