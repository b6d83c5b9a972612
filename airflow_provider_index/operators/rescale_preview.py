"""The operator that draws a planned rescale for the person who is to approve it. It only reads the table's log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from airflow_provider_index.arguments import Reader, mapping, required
from airflow_provider_index.compat import AirflowSkipException
from airflow_provider_index.links import page_url
from airflow_provider_index.operators.base import TableOperator


class PreviewRescaleOperator(TableOperator):
    """Turns the plan of a :class:`BucketRescaleOperator` into something to look at; skips where nothing would change.

    :param plan: what that operator returned with ``plan_only``.

    Hands on, each under an XCom key of its own: ``markdown`` (for the body of an ``ApprovalOperator``), ``svg`` (the
    same as a picture), and ``partitions``: those that would be written anew, to open the window over and to confine the
    rescale to; ``None`` where only the rules change.
    """

    readers: ClassVar[Mapping[str, Reader]] = {**TableOperator.readers, "plan": required(mapping)}

    def __init__(self, *, plan: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def work(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from airflow_provider_index.maintenance.pictures import Before, markdown, svg
        from spark_apps.timeline.statistics import partition_statistics

        plan: dict[str, Any] = self.plan
        if not plan["partitions"] and not plan["rules_change"]:
            raise AirflowSkipException("Every partition has the count that the rules say: there is nothing to approve.")
        counts = {one["partition"]: one["to_buckets"] for one in plan["partitions"]}
        found = partition_statistics(self.hook.timeline(self.table).head, counts)
        drawn = [Before(one, counts[one.path]) for one in found]
        shown = {
            "markdown": markdown(self.table, plan, drawn, page_url(self.location(), self.table_conn_id)),
            "svg": svg(self.table, drawn),
            "partitions": sorted(counts) or None,
        }
        self.log.info("%s", shown["markdown"])
        for key, value in shown.items():
            context["ti"].xcom_push(key=key, value=value)
        return {"partitions": shown["partitions"], "files": plan["files"], "bytes": plan["bytes"]}
