"""Operators that expire old versions and go back to an earlier one. They commit from the worker; no Spark
is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_index.identity import transaction_id
from airflow_provider_index.operators.base import TableOperator, epoch_of
from spark_apps.timeline.limits import RETAIN_SECONDS, RETAIN_VERSIONS


class CleanTableOperator(TableOperator):
    """Expires versions and deletes the files that nothing needs any more.

    :param retain_versions: the newest so many always stay.
    :param retain_hours: versions younger than that stay.
    :param plan_only: return what would go, and delete nothing.
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "retain_versions", "retain_hours")

    def __init__(
        self,
        *,
        retain_versions: int = RETAIN_VERSIONS,
        retain_hours: float = RETAIN_SECONDS / 3600,
        plan_only: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.retain_versions = retain_versions
        self.retain_hours = retain_hours
        self.plan_only = plan_only

    def inputs(self) -> dict[str, Any]:
        return {**super().inputs(), "clean": [int(self.retain_versions), float(self.retain_hours)]}

    def work(self, context: Mapping[str, Any]) -> dict[str, Any]:
        import msgspec

        from spark_apps.timeline import cleaning

        timeline = self.hook.timeline(self.table)
        keep = {
            "retain_versions": int(self.retain_versions),
            "retain_seconds": float(self.retain_hours) * 3600,
        }
        if self.plan_only:
            plan = cleaning.plan(timeline, **keep)  # type: ignore[arg-type]
            self.log.info("%s files of %s bytes would go.", len(plan.files), plan.bytes)
            built: dict[str, Any] = msgspec.to_builtins(plan)
            # A list of every file is too much to hand on.
            return {**built, "files": len(plan.files)}
        receipt = cleaning.clean(timeline, **keep, txn_id=transaction_id(context, self.inputs))  # type: ignore[arg-type]
        self.log.info("Cleaned: %s", receipt.metrics)
        return receipt.to_dict()


class RestoreTableOperator(TableOperator):
    """Brings back the rows, bucket counts and indexes of an earlier version, as a new commit.

    :param version: the version to go back to.
    :param window: epoch of a stop-write window over the whole table, if one is held.
    """

    template_fields: Sequence[str] = (*TableOperator.template_fields, "version", "window")

    def __init__(self, *, version: int | str, window: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.version = version
        self.window = window

    def inputs(self) -> dict[str, Any]:
        return {**super().inputs(), "restore": int(self.version), "window": epoch_of(self.window)}

    def work(self, context: Mapping[str, Any]) -> dict[str, Any]:
        from spark_apps.timeline.restore import restore

        receipt = restore(
            self.hook.timeline(self.table),
            int(self.version),
            txn_id=transaction_id(context, self.inputs),
            window=epoch_of(self.window),
        )
        self.log.info("Version %s holds what version %s held.", receipt.version, self.version)
        return receipt.to_dict()
