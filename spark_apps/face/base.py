"""What every part of the face stands on: the version shown, and how an action is run."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any, Self

from spark_apps.actions.staging import Stage
from spark_apps.actions.template import Action, TableHandle, run
from spark_apps.mergetree.tree import ForeignFiles, Snapshot
from spark_apps.query.describe import (
    HistoryEntry,
    IndexInfo,
    IndexStatus,
    PartitionInfo,
    history_of,
    indexes_of,
    partitions_of,
    status_of,
)
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.model import Receipt, TableDefinition
from spark_apps.timeline.state import State

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Face:
    """A table at one version, which moves to the versions that its own calls commit."""

    def __init__(
        self, handle: TableHandle, state: State, pinned: bool = False, foreign: ForeignFiles | None = None
    ) -> None:
        self._handle = handle
        self._state = state
        self._pinned = pinned
        self._foreign = foreign

    def __repr__(self) -> str:
        return f"IndexedTable({self.uri!r}, version={self.version})"

    @property
    def uri(self) -> str:
        return self._handle.timeline.store.uri

    @property
    def version(self) -> int:
        return self._state.version

    @property
    def definition(self) -> TableDefinition:
        return self._state.table

    @property
    def schema(self) -> StructType:
        """The Spark schema of the rows."""
        return self.snapshot.data.schema

    @property
    def snapshot(self) -> Snapshot:
        """This version, for what works below this class."""
        return Snapshot(self._handle.spark, self._handle.timeline.store, self._state, foreign=self._foreign)

    @property
    def partitions(self) -> dict[str, PartitionInfo]:
        """Partition path ("" without partition columns) -> bucket count and live files."""
        return partitions_of(self._state)

    @property
    def indexes(self) -> dict[str, IndexInfo]:
        """The indexes that were created by name."""
        return indexes_of(self._state)

    def index_status(self, name: str) -> IndexStatus:
        """What an index covers, how large it is, and when it was brought up to date. :raises IndexNotFound:"""
        return status_of(self._handle.timeline, self._state, name)

    def history(self) -> list[HistoryEntry]:
        """All commits up to this version, oldest first."""
        return history_of(self._handle.timeline, self.version)

    def in_stage(self, stage: Stage) -> Self:
        """The same table, whose next action is staged for a transaction and committed with its other stages.

        :param stage: of a transaction that :func:`spark_apps.timeline.transactions.begin` began.
        """
        other = copy.copy(self)
        other._handle = dataclasses.replace(self._handle, stage=stage)
        return other

    # --- inside -----------------------------------------------------------------------------------------------

    def _run(self, action: Action, txn_id: str | None, window: int | None) -> Receipt:
        self._check_not_pinned()
        return self._moved_to(run(self._handle, action, txn_id=txn_id, window=window))

    def _moved_to(self, receipt: Receipt) -> Receipt:
        if receipt.version is not None and receipt.version > self.version:
            timeline = self._handle.timeline
            timeline.refresh()
            self._state = timeline.head if timeline.head.version == receipt.version else timeline.at(receipt.version)
            if self._foreign is not None and not self._state.dropped:
                shown = self._handle.snapshot(self._state)
                self._state, self._foreign = shown.state, shown.foreign
        return receipt

    def _check_writable(self) -> None:
        """For what commits by itself."""
        self._check_not_pinned()
        if self._handle.stage is not None:
            raise InvalidInput(
                f"This cannot be done in stage {self._handle.stage.name!r} of a transaction: it commits by itself.",
                hint="Do it before or after the transaction.",
            )

    def _check_not_pinned(self) -> None:
        if self._pinned:
            raise InvalidInput(
                f"This table was loaded as of version {self.version}, which can only be read.",
                hint="Load it without version or as_of to write.",
            )

    def _planned(self, action: Any) -> Any:
        self._check_writable()
        self._handle.timeline.refresh()
        snapshot = self._handle.snapshot()
        action.validate(snapshot)
        return action.plan(snapshot)
