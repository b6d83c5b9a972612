"""Operators for bucket counts: the rescale of partitions by rule, and the preview that a person approves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from airflow_provider_index.arguments import (
    declares_arguments,
    flag_or_text,
    mapping,
    rules,
)
from airflow_provider_index.compat import AirflowSkipException
from airflow_provider_index.links import page_url
from airflow_provider_index.operators.base import SparkTableOperator, TableOperator
from spark_apps.storage.errors import InvalidInput


class PreviewRescaleOperator(TableOperator):
    """Draws the plan of a :class:`BucketRescaleOperator`; skips the downstream tasks if nothing would change.

    ::

        PreviewRescaleOperator(task_id="show", table="shop.orders", plan=plan.output)

    :param plan: what that operator returned with ``plan_only``.

    Pushes three XCom keys: ``markdown`` (for the body of an ``ApprovalOperator``), ``svg`` (the same as a picture),
    and ``partitions``: the partitions that would be rewritten, for the window and the rescale; ``None`` if only the
    rules change.
    """

    @declares_arguments
    def __init__(self, *, plan: Annotated[Any, mapping], **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def work(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from airflow_provider_index.maintenance.rescale_picture import RescaledPartition, markdown, svg
        from spark_apps.timeline.hudi_indexes import buckets_of
        from spark_apps.timeline.statistics import partition_statistics

        plan: dict[str, Any] = self.plan
        if not plan["partitions"] and not plan["rules_change"]:
            raise AirflowSkipException("Every partition has the count that the rules say: there is nothing to approve.")
        counts = {one["partition"]: one["to_buckets"] for one in plan["partitions"]}
        state = self.hook.timeline(self.table).head
        of_hudi = state.table.source is not None
        if of_hudi:
            before = {one["partition"]: one["from_buckets"] for one in plan["partitions"]}
            statistics = [buckets_of(state, path, count) for path, count in before.items()]
        else:
            statistics = partition_statistics(state, counts)
        drawn = [RescaledPartition(one, counts[one.path]) for one in statistics]
        shown = {
            "markdown": markdown(self.table, plan, drawn, page_url(self.location(), self.table_conn_id)),
            "svg": svg(self.table, drawn),
            # The log has no partitions of a Hudi table: its window is over the whole table, and Hudi chooses.
            "partitions": None if of_hudi else sorted(counts) or None,
        }
        self.log.info("%s", shown["markdown"])
        self.push(context, **shown)
        return {"partitions": shown["partitions"], "files": plan["files"], "bytes": plan["bytes"]}


Expressions = str | Sequence[Sequence[Any]]
"""Rules: the string form ``expression,count;…``, or pairs of expression and count."""


class BucketRescaleOperator(SparkTableOperator):
    """Changes the bucket rules of a table, and gives every partition the bucket count of the rules.

    Partitions that already have this count are left alone. Without ``window``, the app opens a stop-write window over
    the partitions that it rewrites, and closes it; with ``window``, it works inside that window. Without ``buckets``,
    ``bucket_expressions``, ``add`` and ``rollback``, the partitions get the counts of the current rules.

    ::

        BucketRescaleOperator(
            task_id="plan", table="shop.orders", buckets=8, bucket_expressions="dt=2026-11-11,64", plan_only=True
        )

    :param buckets: the count if no rule matches; by default it does not change.
    :param bucket_rule: the engine that reads the expressions: ``regex`` (the default), ``range``, or one of your own.
    :param bucket_expressions: the new rules, which come before all older ones: ``pattern,count;…``, or pairs of
        pattern and count; the first that matches a partition's path wins.
    :param add: the same, read by the engine of the table's newest rules if none is named.
    :param rollback: roll back a change of the rules: the instant of the change, or ``True`` for the newest.
    :param partitions: the only partitions to rescale, as paths: a sequence, or text (from a form) with one per line.

    A registered Hudi table of the bucket index is rescaled by Hudi's own ``partition_bucket_index_manager``: with
    ``bucket_expressions`` (its overwrite), ``add`` or ``rollback``, all partitions at once, within a window over the
    table. Queries that Hudi would then answer without rows are asked before and after.

    With ``plan_only`` it returns the partitions with old and new counts, files, bytes and an estimated time, and
    changes nothing.
    """

    program = "rescale_buckets"
    can_plan = True

    @declares_arguments
    def __init__(
        self,
        *,
        buckets: int | str | None = None,
        bucket_rule: str | None = None,
        bucket_expressions: Annotated[Expressions | None, rules] = None,
        add: Annotated[Expressions | None, rules] = None,
        rollback: Annotated[bool | str, flag_or_text] = False,
        partitions: Sequence[str] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def arguments(self) -> dict[str, Any]:
        given = super().arguments()
        if given.pop("rollback") is False:
            return given
        beside = [name for name, value in given.items() if value is not None]
        if beside:
            raise InvalidInput(
                f"A rollback was asked for, and {', '.join(beside)} beside it.",
                hint="A rollback takes back one change of the rules; make other changes in a task of their own.",
            )
        return {"rollback": self.rollback}
