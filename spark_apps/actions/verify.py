"""Compares an index with a full scan of the rows, as its kind knows how, and rebuilds what is wrong."""

from __future__ import annotations

from dataclasses import replace

from spark_apps.actions.indexing import RefreshIndex
from spark_apps.actions.template import TableHandle, run
from spark_apps.indexes.handler import IndexContext
from spark_apps.indexes.registry import find
from spark_apps.indexes.verification import Difference, VerificationReport
from spark_apps.mergetree.tree import Snapshot
from spark_apps.timeline.model import Receipt

__all__ = ["Difference", "VerificationReport", "repair", "verify"]


def verify(snapshot: Snapshot, name: str) -> VerificationReport:
    """Compares an index of a version with its rows, by a full scan of both.

    :raises IndexNotFound: :raises InvalidInput: if its kind cannot be compared.
    """
    definition = snapshot.state.index(name).definition
    return find(definition.kind).verify(IndexContext(snapshot, definition, ""))


def repair(
    handle: TableHandle, name: str, report: VerificationReport, *, txn_id: str | None = None, window: int | None = None
) -> tuple[VerificationReport, Receipt | None]:
    """Rebuilds an index from the rows alone, in one commit, if a comparison found it wrong.

    :returns: the report, with the version of that commit; and its receipt. An index that agrees is left alone.
    """
    if report.ok:
        return report, None
    receipt = run(handle, RefreshIndex(name, "full"), txn_id=txn_id, window=window)
    return replace(report, repaired=receipt.version), receipt
