"""Rows written and read: the part of a table's face for its data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from spark_apps.actions.overwrite import Drop, DropPartitions, InsertOverwrite
from spark_apps.actions.write import Delete, Insert, Upsert
from spark_apps.face.base import Face
from spark_apps.query.checking import judged_by_spark
from spark_apps.query.files import LocatedFile, locate_files
from spark_apps.query.reading import read_rows
from spark_apps.timeline.model import Receipt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RowsFace(Face):
    """Writes rows, each call in one commit with the indexes kept with them, and reads them."""

    def upsert(
        self,
        rows: DataFrame,
        *,
        deleted: str | None = None,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Receipt:
        """Rows replace those of their key; new keys are added. Columns are matched by name.

        :param deleted: a boolean column of ``rows`` beside the table's: where it is true, the row of that
            key is deleted.
        :raises InvalidSchema: if columns are missing, unknown or of another type, or a key is null.
        """
        return self._run(Upsert(rows, deleted), txn_id, window)

    def insert(self, rows: DataFrame, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Adds rows of new keys. :raises KeysExist: naming examples of keys that the table holds. :raises
        InvalidSchema:"""
        return self._run(Insert(rows), txn_id, window)

    def delete(self, rows: DataFrame | str, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Deletes rows by their record key (other columns are ignored), or those that a SQL predicate
        matches.

        A key that is not there is no error. Without a ``record`` index a key is unique in its partition only:
        where ``rows`` has the partition columns the key is deleted there, else wherever it is found.

        :raises InvalidPredicate: :raises UnknownColumn: :raises InvalidSchema:
        """
        return self._run(Delete(rows), txn_id, window)

    def delete_repeated_keys(self, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Keeps one row of each record key that stands in several partitions, and builds the ``record`` index anew.

        Kept is the row with the highest ordering column where ``merge_by`` is "ordering", else the one written last.
        For tables that got a ``record`` index later, or are to get one; where every key stands once nothing is done.

        :raises InvalidInput: if the partition columns are part of the record key.
        """
        from spark_apps.actions.repeated import DeleteRepeatedKeys

        return self._run(DeleteRepeatedKeys(), txn_id, window)

    def insert_overwrite(
        self,
        rows: DataFrame,
        partitions: Iterable[str] | None = None,
        *,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Receipt:
        """Replaces whole partitions: those that ``rows`` has rows of, or the ones given (which may become
        empty).

        :raises InvalidInput: if ``rows`` has a row of a partition that is not among those given.
        """
        return self._run(InsertOverwrite(rows, partitions), txn_id, window)

    def drop_partition(self, *paths: str, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Drops partitions with their rows and bucket counts; one that is not there is passed over.

        :raises InvalidInput: if a path is not one of this table's form.
        """
        return self._run(DropPartitions(paths), txn_id, window)

    def drop(self, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Drops the table and its indexes. Its files and its log stay where they are."""
        return self._run(Drop(), txn_id, window)

    def read(self, where: str | None = None, columns: Sequence[str] | None = None) -> DataFrame:
        """The rows of this version, as a DataFrame with the columns in declared order, or those named in
        their order.

        :param where: a SQL predicate; indexes and bucket layout are used for what they can tell of it.
        :raises InvalidPredicate: :raises UnknownColumn:
        """
        if where is None:
            return read_rows(self.snapshot, None, columns)
        with judged_by_spark(self.snapshot, where):
            return read_rows(self.snapshot, where, columns)

    def lookup(self, keys: Any, index: str | None = None) -> Any:
        """Where the rows with some record keys live, told by a record index without a Spark job.

        :param keys: an Arrow array (of a key of one column), an Arrow table whose columns are those of the key, or
            Python values: one each, or tuples.
        :param index: name of a record index; the only one if not given.
        :returns: an Arrow table of the keys found, once each, in no order: the key columns and ``__index_partition``;
            ``__index_group`` too where no hash of the key tells a row's file group.
        :raises InvalidInput: if there is no such index, or it does not cover all rows. :raises InvalidSchema: if a key
            is not one. :raises StorageError: if a file of the index is missing or damaged.
        """
        from spark_apps.indexes.asking import look_up

        return look_up(self.snapshot, keys, index)

    def locate(self, where: str, count: bool = False) -> list[LocatedFile]:
        """The files that can hold rows which satisfy a predicate, found by the indexes: which files hold this person.

        Every file that holds such a row is among them. Without ``count`` no rows are read.

        :param count: of a registered source, read these files, count the matching rows of each, and leave out those
            without.
        :raises InvalidPredicate: :raises UnknownColumn:
        """
        return locate_files(self.snapshot, where, count)
