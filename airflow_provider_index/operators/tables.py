"""Operators on a whole table: compact its files or an index, expire old versions, go back to an earlier one.

Compacting is a job for Spark; what expires or brings back versions commits from the worker, and starts none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from airflow_provider_index.arguments import (
    choice,
    declares_arguments,
    epoch,
    required,
)
from airflow_provider_index.identity import transaction_id
from airflow_provider_index.operators.base import IndexOperator, SparkTableOperator, TableOperator
from spark_apps.timeline.limits import RETAIN_SECONDS, RETAIN_VERSIONS

_MODE = required(choice("quick", "full"))


class CompactTableOperator(SparkTableOperator):
    """Compacts the table's own file groups.

    ::

        CompactTableOperator(task_id="compact", table="shop.orders", mode="full", partitions=["dt={{ ds }}"])

    :param mode: ``quick`` compacts the file groups for which it pays, ``full`` all groups with deltas.
    :param partitions: only these partitions, as paths; all by default.
    :param where: only partitions in which a row may satisfy this SQL predicate, such as ``dt >= '2026-11-01'``.

    Returns the receipt; with ``plan_only`` the files and bytes of each partition that would be compacted.
    """

    program = "compact_index"
    stageable = "alone"
    can_plan = True

    @declares_arguments
    def __init__(
        self,
        *,
        mode: Annotated[str, _MODE] = "quick",
        partitions: Sequence[str] | None = None,
        where: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def arguments(self) -> dict[str, Any]:
        # Without them, a task's transaction is named as before there were any.
        confined = {name: given for name, given in super().arguments().items() if given is not None}
        return {"name": None, **confined}


class CompactIndexOperator(IndexOperator):
    """Compacts one index, which can be used meanwhile.

    ::

        CompactIndexOperator(task_id="compact", table="shop.orders", index="by_city", mode="quick")

    :param mode: ``quick`` compacts the shards for which it pays, ``full`` all shards with deltas.
    """

    program = "compact_index"
    stageable = "alone"

    @declares_arguments
    def __init__(self, *, mode: Annotated[str, _MODE] = "quick", **kwargs: Any) -> None:
        super().__init__(**kwargs)


# --- Operators that expire old versions and go back to an earlier one -----------------------------------------------


class CleanTableOperator(TableOperator):
    """Expires versions, and deletes the files that nothing needs any more.

    ::

        CleanTableOperator(task_id="clean", table="shop.orders", retain_versions=20, retain_hours=48)

    :param retain_versions: this many of the newest versions are always kept.
    :param retain_hours: versions that are younger are kept.
    :param published_log: also replace the Delta log of a published table by a checkpoint of its newest version, so that
        nothing there names values of rows that are gone.
    :param query_log: also delete all lines of the table's query log, whose predicates hold values.
    :param tombstones: also drop the orderings of deletes that compactions have kept, which hold keys
        (``merge_by="ordering"``); rows of those keys that come again are then written again.
    :param plan_only: return what would be deleted, and delete nothing.
    """

    @declares_arguments
    def __init__(
        self,
        *,
        retain_versions: int = RETAIN_VERSIONS,
        retain_hours: float = RETAIN_SECONDS / 3600,
        published_log: bool = False,
        query_log: bool = False,
        tombstones: bool = False,
        plan_only: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def inputs(self) -> dict[str, Any]:
        more = {name: True for name in ("published_log", "query_log", "tombstones") if getattr(self, name)}
        return {**super().inputs(), "clean": [self.retain_versions, float(self.retain_hours)], **more}

    def work(self, context: Mapping[str, Any]) -> dict[str, Any]:
        import msgspec

        from spark_apps.timeline import cleaning
        from spark_apps.workload.query_log import erased

        timeline = self.hook.timeline(self.table)
        keep: dict[str, Any] = {
            "retain_versions": self.retain_versions,
            "retain_seconds": float(self.retain_hours) * 3600,
            "published_log": self.published_log,
            "tombstones": self.tombstones,
        }
        if self.plan_only:
            plan = cleaning.plan(timeline, **keep)
            self.log.info("%s files of %s bytes would go.", len(plan.files), plan.bytes)
            built: dict[str, Any] = msgspec.to_builtins(plan)
            # A list of every file is too much to hand on.
            return {**built, "files": len(plan.files)}
        receipt = cleaning.clean(timeline, **keep, txn_id=transaction_id(context, self.inputs))
        if self.query_log:
            receipt = erased(receipt, timeline.store)
        self.log.info("Cleaned: %s", receipt.metrics)
        return receipt.to_dict()


class RestoreTableOperator(TableOperator):
    """Brings back the rows, bucket counts and indexes of an earlier version, as a new commit.

    ::

        RestoreTableOperator(task_id="restore", table="shop.orders", version="{{ params.version }}")

    :param version: the version to go back to.
    :param window: epoch of a stop-write window over the whole table, if one is held.
    """

    @declares_arguments
    def __init__(self, *, version: int | str, window: Annotated[int | str | None, epoch] = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def inputs(self) -> dict[str, Any]:
        return {**super().inputs(), "restore": self.version, "window": self.window}

    def work(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from spark_apps.timeline.restore import restore

        receipt = restore(
            self.hook.timeline(self.table),
            self.version,
            txn_id=transaction_id(context, self.inputs),
            window=self.window,
        )
        self.log.info("Version %s holds what version %s held.", receipt.version, self.version)
        return receipt.to_dict()
