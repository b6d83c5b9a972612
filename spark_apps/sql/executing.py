"""Runs one statement: which function does it, and whether it was done before.

Every one of those functions takes the session, the statement and the transaction to commit under, and returns the
answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_apps.sql import on_indexes, on_tables
from spark_apps.sql import statements as s
from spark_apps.sql.results import Result
from spark_apps.sql.session import Session, changed
from spark_apps.storage.errors import CommitUndone


def execute(session: Session, statement: s.Statement, txn_id: str | None = None) -> Result:
    """Runs one statement.

    :param txn_id: if it has its commit already, that commit's receipt is the answer.
    """
    if txn_id is not None and statement.commits:
        done = _committed(session, statement, txn_id)
        if done is not None:
            return done
    return _EXECUTORS[type(statement)](session, statement, txn_id)


def _committed(session: Session, statement: Any, txn_id: str) -> Result | None:
    """The answer of an earlier try. Looked for in the log itself: the table may be dropped, by this very statement."""
    for location in session.places(statement.table):
        try:
            receipt = session.warehouse.receipt(location, txn_id)
        except CommitUndone as error:
            if error.by is None or not s.of_one_script(error.by, txn_id):
                raise
            receipt = error.receipt  # the script drops itself what it makes
        if receipt is not None:
            return changed(statement, receipt, location, "had committed before")
    return None


_EXECUTORS: dict[type[s.Statement], Callable[[Session, Any, str | None], Result]] = {
    s.CreateTable: on_tables.create_table,
    s.RegisterSource: on_tables.register_source,
    s.DropTable: on_tables.drop_table,
    s.DropPartition: on_tables.drop_partition,
    s.AddColumns: on_tables.add_columns,
    s.AlterColumnType: on_tables.alter_column_type,
    s.RenameColumn: on_tables.rename_column,
    s.DropColumns: on_tables.drop_columns,
    s.CreateIndex: on_indexes.create_index,
    s.DropIndex: on_indexes.drop_index,
    s.RebuildIndex: on_indexes.rebuild_index,
    s.RefreshIndex: on_indexes.refresh_index,
    s.SetIndexProperties: on_indexes.set_properties,
    s.ShowIndexes: on_indexes.show,
    s.DescribeIndex: on_indexes.describe,
    s.ManageBuckets: on_indexes.call,
}
