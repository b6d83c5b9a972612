"""Indexes made, kept, asked and compared: the part of a table's face for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from spark_apps.face.base import Face
from spark_apps.timeline.model import Receipt

if TYPE_CHECKING:
    from spark_apps.indexes.columns import IncludedColumns
    from spark_apps.indexes.verification import VerificationReport


class IndexesFace(Face):
    """Creates, refreshes, changes and drops indexes, and tells how they are used and whether they are right."""

    def create_index(
        self,
        name: str,
        kind: str,
        columns: Sequence[str] = (),
        *,
        included: IncludedColumns | Sequence[str] | None = None,
        deferred: bool = False,
        properties: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        comment: str | None = None,
        partition_by: Sequence[str] | None = None,
        index_table: str | None = None,
        location: str | None = None,
        plan_only: bool = False,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Any:
        """Builds an index over the rows that are there, while writers go on, and makes it active.

        :param kind: the registered name of a handler: "record", "secondary", …
        :param included: columns that are carried beside those indexed, for kinds that can; a list names them.
        :param deferred: refreshed by a task of its own, instead of in every commit of rows.
        :param partition_by: partition columns that its entries are kept apart by, for kinds that can; ``()``: by none.
        :param index_table: a name for what stores it. :param location: where, for kinds stored outside of the table.
        :param plan_only: return the plan of the build and do nothing.
        :raises IndexExists: :raises InvalidInput: :raises UnknownColumn:
        """
        from spark_apps.actions.altering import IndexPlace
        from spark_apps.actions.indexing import CreateIndex

        place = IndexPlace(partition_by, index_table, location)
        action = CreateIndex(name, kind, columns, included, deferred, properties, if_not_exists, comment, place=place)
        return self._planned(action) if plan_only else self._run(action, txn_id, window)

    def refresh_index(
        self,
        name: str,
        mode: Literal["incremental", "full", "quick"] = "incremental",
        partitions: Iterable[str] | None = None,
        included: IncludedColumns | Sequence[str] | None = None,
        schema: str | None = None,
        *,
        plan_only: bool = False,
        txn_id: str | None = None,
        window: int | None = None,
    ) -> Any:
        """Brings an index up to date with this table.

        :param included: columns to include from now on, which a list names, and columns to leave out.
        :param schema: types of added columns where the files lack them.
        :raises IndexNotFound: :raises InvalidInput:
        """
        from spark_apps.actions.indexing import RefreshIndex

        action = RefreshIndex(name, mode, partitions, included, schema)
        return self._planned(action) if plan_only else self._run(action, txn_id, window)

    def drop_index(
        self, name: str, if_exists: bool = False, *, txn_id: str | None = None, window: int | None = None
    ) -> Receipt:
        """Drops an index; its files go when the table is cleaned. :raises IndexNotFound:"""
        from spark_apps.actions.indexing import DropIndexAction

        return self._run(DropIndexAction(name, if_exists), txn_id, window)

    def alter_index(
        self, name: str, properties: Mapping[str, str], *, txn_id: str | None = None, window: int | None = None
    ) -> Receipt:
        """Changes properties of an index that only say what is done from now on.

        :raises IndexNotFound: :raises InvalidInput: if one is unknown, or is fixed while the index stands.
        """
        from spark_apps.actions.altering import AlterIndex

        return self._run(AlterIndex(name, properties), txn_id, window)

    def verify(
        self, name: str, *, repair: bool = False, txn_id: str | None = None, window: int | None = None
    ) -> VerificationReport:
        """Compares an index with a full scan of this version: ``report.ok``, ``report.differences``.

        :param repair: rebuild the index in one commit if it is wrong (``report.repaired``).
        :raises IndexNotFound: :raises InvalidInput: if its kind cannot be compared.
        """
        from spark_apps.actions.verify import verify

        report = verify(self.snapshot, name)
        return self.repair_indexes([report], txn_id=txn_id, window=window)[0][0] if repair else report

    def repair_indexes(
        self, reports: Sequence[VerificationReport], *, txn_id: str | None = None, window: int | None = None
    ) -> tuple[list[VerificationReport], Receipt]:
        """Rebuilds the indexes that :meth:`verify` found wrong, all in one commit; those that agree are left alone.

        :returns: the reports, with ``repaired`` where an index was rebuilt; and the receipt of the commit.
        :raises IndexNotFound:
        """
        from spark_apps.actions.verify import repair

        self._check_writable()
        mended, receipt = repair(self._handle, reports, txn_id=txn_id, window=window)
        return mended, self._moved_to(receipt)

    def explain(self, where: str | None = None, columns: Sequence[str] | None = None) -> Any:
        """How :meth:`read` would answer: index used, files and bytes read and skipped, why not the other
        indexes."""
        from spark_apps.query.explain import explain

        return explain(self.snapshot, where, columns)
