"""Indexes refreshed as soon as data land, whoever brings them.

`refresh_orders` begins with every commit that changes rows of `shop.orders`: a watcher in the triggerer looks at the
table's log. `refresh_trips` begins when the files of `landing.trips` have changed, a registered source that others
write. `announce_orders` begins when the refreshed index is there, and logs which commits it was about.
"""

from __future__ import annotations

from airflow.sdk import DAG, AssetWatcher, get_current_context, task

from airflow_provider_index.assets import index_asset, new_commits, table_asset
from airflow_provider_index.operators import IncrementalRefreshOperator
from airflow_provider_index.triggers import CommitEventTrigger, SourceEventTrigger

ORDERS = table_asset(
    "shop.orders",
    watchers=[AssetWatcher(name="commits of orders", trigger=CommitEventTrigger(table="shop.orders", poll_interval=5))],
)
TRIPS = table_asset(
    "landing.trips",
    watchers=[AssetWatcher(name="files of trips", trigger=SourceEventTrigger(table="landing.trips", poll_interval=5))],
)
BY_CITY = index_asset("shop.orders", "by_city")

# One run at a time: a refresh takes in all that has landed, so the runs that wait behind it find nothing to do.
with DAG("refresh_orders", schedule=[ORDERS], max_active_runs=1, tags=["events"], doc_md=__doc__):
    IncrementalRefreshOperator(task_id="refresh", table="shop.orders", index="by_city", outlets=[BY_CITY])

with DAG("refresh_trips", schedule=[TRIPS], max_active_runs=1, tags=["events"], doc_md=__doc__):
    IncrementalRefreshOperator(task_id="refresh", table="landing.trips", index="by_city")

with DAG("announce_orders", schedule=[BY_CITY], max_active_runs=1, tags=["events"], doc_md=__doc__):

    @task(inlets=[BY_CITY])
    def log_commits() -> list[dict]:
        """Return the commits that this run is about, each once, however often its event was sent."""
        return new_commits(get_current_context())

    log_commits()
