"""Columns that come, go and change: the part of a table's face for its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_apps.actions.schema import AddColumns, DropColumns, RenameColumn, WidenColumn
from spark_apps.face.base import Face

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_apps.timeline.model import Receipt


class ColumnsFace(Face):
    """Changes of columns. Each is a commit that writes no row; versions before it keep the columns that they had."""

    def add_columns(
        self,
        columns: StructType | str,
        *,
        properties: Mapping[str, str] | None = None,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Receipt:
        """Adds columns at the end, null in the rows that are there.

        :param columns: a DDL string as ``"fare double, tip double"``, or a StructType.
        :param properties: of the table, that come with them, as ``{"comment.fare": "in cents"}``.
        :raises InvalidSchema: for a name that there is, or a column that takes no null.
        """
        return self._run(AddColumns(columns, properties), txn_id, window)

    def widen_column(self, name: str, type: str, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Gives a column a type that holds all its values: a longer integer, double for float, a longer decimal.

        :raises UnknownColumn: :raises InvalidSchema: :raises InvalidInput: for one of the record key or of an index.
        """
        return self._run(WidenColumn(name, type), txn_id, window)

    def rename_column(self, name: str, to: str, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Gives a column another name, also in the indexes over it.

        :raises UnknownColumn: :raises InvalidSchema: :raises InvalidInput: for a partition column, or one that an index
            holds whose kind does not follow renames.
        """
        return self._run(RenameColumn(name, to), txn_id, window)

    def drop_column(self, *names: str, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Drops a column, or several in one commit; earlier versions still have them.

        :raises UnknownColumn: :raises InvalidInput: for one of the key, the partitioning, the ordering or an index.
        """
        return self._run(DropColumns(names), txn_id, window)
