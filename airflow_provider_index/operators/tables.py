"""Operators on a whole table: compact its files or an index, expire old versions, go back to an earlier one.

Compacting is a job for Spark; what expires or brings back versions commits from the worker, and starts none. On a
registered Delta, Iceberg or Hudi table each of them makes calls of the format's own maintenance, where ``native`` asks
for them by name: that is a job for Spark too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from airflow_provider_index.arguments import (
    choice,
    declares_arguments,
    integer,
    native_calls,
    required,
)
from airflow_provider_index.identity import transaction_id
from airflow_provider_index.operators.base import IndexOperator, SparkTableOperator, TableOperator
from spark_apps.maintenance.native_calls import CallKind, check_calls, transactions_of
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.limits import RETAIN_SECONDS, RETAIN_VERSIONS

_MODE = required(choice("quick", "full"))
_NATIVE = "native_maintenance"


class _WithNative(SparkTableOperator):
    """An operator that can make calls of the own maintenance of a registered table.

    :param native: calls of the table's own format instead of the operator's work on this package's log, such as
        ``{"optimize": {"zorder_by": ["rider"]}}``; each call is a transaction of its own. Only what is named is done.
    :param refresh: refresh the table's active indexes after these calls.
    """

    native_kind: ClassVar[CallKind]
    can_plan = True

    @declares_arguments
    def __init__(
        self, *, native: Annotated[Mapping[str, Any] | None, native_calls] = None, refresh: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)

    def check_arguments(self) -> None:
        super().check_arguments()
        if isinstance(self.native, Mapping):
            check_calls(self.native, self.native_kind)
            self.program = _NATIVE

    def arguments(self) -> dict[str, Any]:
        return {"native": self.native, "refresh": self.refresh}

    def transactions(self, txn_id: str) -> list[str]:
        if self.native is None:
            return super().transactions(txn_id)
        return transactions_of(txn_id, self.native, self._refreshed())

    def check_may_be_stage(self) -> None:
        if self.native is not None:
            raise InvalidInput(
                f"{type(self).__name__} with native= cannot be a stage of a transaction: it is a commit of another "
                "format.",
                hint="Put the task before or after the transaction.",
            )
        super().check_may_be_stage()

    def _refreshed(self) -> list[str]:
        """Return the indexes that are refreshed after the calls: those that are active now."""
        timeline = self._timeline() if self.refresh else None
        return [] if timeline is None else timeline.head.active_indexes

    def _hand_on(self, receipts: Any) -> Any:
        result = super()._hand_on(receipts)
        return result if self.native is None or isinstance(result, list) else [result]


class CompactTableOperator(_WithNative):
    """Compacts the table's own file groups.

    ::

        CompactTableOperator(task_id="compact", table="shop.orders", mode="full", partitions=["dt={{ ds }}"])

    :param mode: ``quick`` compacts the file groups for which it pays, ``full`` all groups with deltas.
    :param partitions: only these partitions, as paths; all by default.
    :param where: only partitions in which a row may satisfy this SQL predicate, such as ``dt >= '2026-11-01'``.

    Returns the receipt; with ``plan_only`` the files and bytes of each partition that would be compacted. With
    ``native`` (:mod:`spark_apps.maintenance.native_calls` lists the calls) it returns the receipts of the calls and of
    the refreshes after them; with ``plan_only`` the plan of each call. ``mode``, ``partitions`` and ``where`` are for
    tables of this package.
    """

    program = "compact_index"
    native_kind = "compact"
    stageable = "alone"

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
        if self.native is not None:
            return super().arguments()
        # Without them, a task's transaction is named as before there were any.
        confined = {"mode": self.mode, "partitions": self.partitions, "where": self.where}
        return {"name": None, **{name: given for name, given in confined.items() if given is not None}}


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


class CleanTableOperator(_WithNative):
    """Expires versions of this package's log, and deletes the files that nothing needs any more.

    Files of a registered table's own are never deleted by that, whatever the retention is; only calls of its format do
    that, where ``native`` asks for them by name (``native={"vacuum": {}}``). They take the format's retention, and
    nothing else is cleaned then.

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

    No Spark is started, and ``spark_conn_id``, ``conf`` and ``window`` count for nothing, unless ``native`` is given.
    """

    program = _NATIVE
    native_kind = "clean"

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
        super().__init__(plan_only=plan_only, **kwargs)

    def inputs(self) -> dict[str, Any]:
        if self.native is not None:
            return super().inputs()
        more = {name: True for name in ("published_log", "query_log", "tombstones") if getattr(self, name)}
        return {**TableOperator.inputs(self), "clean": [self.retain_versions, float(self.retain_hours)], **more}

    def work(self, context: Mapping[str, Any]) -> Any:
        if self.native is not None:
            return super().work(context)
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


class RestoreTableOperator(_WithNative):
    """Brings back the rows, bucket counts and indexes of an earlier version, as a new commit.

    ::

        RestoreTableOperator(task_id="restore", table="shop.orders", version="{{ params.version }}")

    :param version: the version of this package's table to go back to.
    :param window: epoch of a stop-write window over the whole table, if one is held.

    A registered table is brought back by a call of its format, such as ``native={"restore": {"version": 17}}``; without
    one, no Spark is started.
    """

    program = _NATIVE
    native_kind = "restore"

    @declares_arguments
    def __init__(self, *, version: Annotated[int | str | None, integer] = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def check_arguments(self) -> None:
        super().check_arguments()
        if self.version is None and self.native is None:
            raise self._one_of_both()

    @staticmethod
    def _one_of_both() -> InvalidInput:
        return InvalidInput(
            "RestoreTableOperator takes version, for a table of this package, or native, for a registered one.",
            hint="Give one of both.",
        )

    def inputs(self) -> dict[str, Any]:
        if self.native is not None:
            return super().inputs()
        return {**TableOperator.inputs(self), "restore": self.version, "window": self.window}

    def work(self, context: Mapping[str, Any]) -> Any:
        if self.native is not None:
            if self.version is not None:
                raise self._one_of_both()
            return super().work(context)
        if self.plan_only:
            raise InvalidInput("RestoreTableOperator makes a plan with native= only.", hint="Leave plan_only out.")
        from spark_apps.timeline.restore import restore

        receipt = restore(
            self.hook.timeline(self.table),
            self.version,
            txn_id=transaction_id(context, self.inputs),
            window=self.window,
        )
        self.log.info("Version %s holds what version %s held.", receipt.version, self.version)
        return receipt.to_dict()
