"""Versions brought back and let go, and stop-write windows: the part of a table's face for its upkeep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from spark_apps.face.base import Face
from spark_apps.layout.partitions import canonical
from spark_apps.timeline import cleaning, restore, windows
from spark_apps.timeline.limits import RETAIN_SECONDS, RETAIN_VERSIONS, WINDOW_SECONDS
from spark_apps.timeline.model import Receipt
from spark_apps.timeline.state import Window

if TYPE_CHECKING:
    pass


class UpkeepFace(Face):
    """Restores and cleans versions; opens and closes stop-write windows."""

    def restore(self, version: int, *, txn_id: str | None = None, window: int | None = None) -> Receipt:
        """Brings back the rows, bucket counts and indexes of an earlier version, as a new commit.

        :raises VersionNotFound: :raises SnapshotExpired:
        :raises InvalidInput: for a version of a table that was dropped since, or if the rows are somebody else's.
        """
        self._check_writable()
        return self._moved_to(restore.restore(self._handle.timeline, version, txn_id=txn_id, window=window))

    def clean(
        self,
        retain_versions: int = RETAIN_VERSIONS,
        retain_seconds: float = RETAIN_SECONDS,
        *,
        plan_only: bool = False,
        txn_id: str | None = None,
    ) -> Any:
        """Expires versions that are both older than ``retain_seconds`` and not among the newest
        ``retain_versions``, and deletes the files that only they needed.

        :returns: the receipt, or with ``plan_only`` the :class:`~spark_apps.timeline.cleaning.CleaningPlan`.
        """
        self._check_writable()
        timeline = self._handle.timeline
        if plan_only:
            return cleaning.plan(timeline, retain_versions=retain_versions, retain_seconds=retain_seconds)
        receipt = cleaning.clean(
            timeline, retain_versions=retain_versions, retain_seconds=retain_seconds, txn_id=txn_id
        )
        return self._moved_to(receipt)

    def open_window(
        self,
        holder: str,
        partitions: Iterable[str] | None = None,
        seconds: float = WINDOW_SECONDS,
        at_most: float | None = None,
    ) -> Window:
        """Opens a stop-write window over the table or some partitions; its ``epoch`` goes to the holder's own
        calls.

        :raises StopWriteWindowOpen: if one overlaps.
        """
        paths = None if partitions is None else [canonical(self.definition, path) for path in partitions]
        return windows.open_window(self._handle.timeline, holder, partitions=paths, seconds=seconds, at_most=at_most)

    def close_window(self, epoch: int) -> Receipt:
        """Closes a window by its holder. :raises WindowNotOpen:"""
        return windows.close(self._handle.timeline, epoch)
