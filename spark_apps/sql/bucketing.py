"""``CALL partition_bucket_index_manager(…)``: new bucket rules, what they would do, and which there have been.

Follows Hudi's RFC-89 (the call command of the partition-level bucket index).
"""

from __future__ import annotations

from typing import Any

from spark_apps.actions.rescale import RescalePlan
from spark_apps.sql.statements import NEWEST, ManageBuckets
from spark_apps.storage.errors import InvalidInput
from spark_apps.table import IndexedTable
from spark_apps.timeline.model import Receipt

PLAN_COLUMNS = ("result", "operation", "partition", "from_buckets", "to_buckets", "files", "bytes", "estimated_seconds",
                "note")  # fmt: skip
CONFIG_COLUMNS = ("instant", "rule", "expressions", "default")

Columns = tuple[str, ...]
Rows = tuple[tuple[Any, ...], ...]


def show_config(table: IndexedTable) -> tuple[Columns, Rows]:
    """The configs in force, newest first: the order in which they are asked."""
    rules = table.bucket_rules()
    return CONFIG_COLUMNS, tuple((one.instant, one.rule, one.expressions, one.default) for one in rules)


def change_rules(
    table: IndexedTable, statement: ManageBuckets, window: int | None, txn_id: str | None
) -> RescalePlan | Receipt:
    """Overwrites, adds to or rolls back the rules; a plan where nothing is to be done yet.

    :raises InvalidRule: :raises InvalidInput: :raises StopWriteWindowOpen: :raises DrainTimeout:
    """
    more = _options(statement, window)
    if statement.dry_run:
        more = {"plan_only": True}
    else:
        more["txn_id"] = txn_id
    if statement.operation == "rollback":
        instant = None if statement.argument == NEWEST else statement.argument
        return table.rollback_rescale(instant, **more)
    if statement.operation == "add":
        return table.rescale(add=statement.argument, **more)
    return table.rescale(statement.bucket_number, statement.rule, statement.argument, **more)


def show_plan(statement: ManageBuckets, plan: RescalePlan) -> tuple[Columns, Rows]:
    """A row a partition that would be written anew; one without a partition where there is none."""
    head = ("DRY_RUN", statement.operation.upper())
    rules = (
        f"rules would be {plan.expressions or 'none'} ({plan.rule}), {plan.default} buckets where none matches"
        if plan.rules_change
        else "the rules would stay as they are"
    )
    note = f"nothing was changed; {rules}; dry_run => false does it"
    if not plan.partitions:
        return PLAN_COLUMNS, ((*head, None, None, None, 0, 0, 0.0, f"no partition changes its count; {note}"),)
    whole = plan.bytes or 1
    return PLAN_COLUMNS, tuple(
        (*head, one.partition, one.from_buckets, one.to_buckets, one.files, one.bytes,
         round(plan.estimated_seconds * one.bytes / whole, 1), note)
        for one in plan.partitions
    )  # fmt: skip


def _options(statement: ManageBuckets, window: int | None) -> dict[str, Any]:
    given = dict(statement.options)
    more: dict[str, Any] = {"window": window}
    try:
        if "window" in given:
            more["window"] = int(given["window"])
        if "drain_seconds" in given:
            more["drain_seconds"] = float(given["drain_seconds"])
    except ValueError as error:
        raise InvalidInput(
            f"The options {given} of the call are not numbers.", hint="window is an epoch, drain_seconds are seconds."
        ) from error
    return more
