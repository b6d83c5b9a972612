"""Actions that race: something else is committed between the work of one and its own commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_apps import IndexedTable
from spark_apps.actions.template import Action, Attempt, StagedChanges, run


def racing(action: Action, meanwhile: Callable[[], Any]) -> Action:
    """The action, with something else committed after its work and before its commit."""

    class Racing(type(action)):  # type: ignore[misc]
        def work(self, attempt: Attempt) -> StagedChanges | None:
            work = super().work(attempt)
            meanwhile()
            return work

    action.__class__ = Racing
    return action


def go(table: IndexedTable, action: Action, meanwhile: Callable[[IndexedTable], Any]) -> IndexedTable:
    """Runs the action while ``meanwhile`` happens through another table object; returns the table
    afterwards."""
    spark = table._handle.spark
    other = IndexedTable.load(spark, table.uri)
    run(table._handle, racing(action, lambda: meanwhile(other)))
    return IndexedTable.load(spark, table.uri)
